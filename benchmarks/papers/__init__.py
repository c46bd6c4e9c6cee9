"""Benchmarks of the papers: their experiments at a small scale, and checks of their claims."""
