import { render } from 'preact'
import 'uplot/dist/uPlot.min.css'
import './style.css'
import { App } from './app'
import { poll } from './metrics'

const root = document.getElementById('page')
if (root) render(<App />, root)
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) void poll()
})
void poll()
