import { defineConfig } from 'vite'

export default defineConfig({
  // Relative addresses: the page works below any path prefix.
  base: './',
  build: {
    outDir: '../service/page',
    emptyOutDir: true,
    // The policy of the page forbids scripts and styles in the document.
    assetsInlineLimit: 0,
    modulePreload: false,
    target: 'es2022',
    reportCompressedSize: true,
  },
})
