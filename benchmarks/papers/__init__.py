"""Benchmarks of the papers: their experiments at a small scale, their claims."""
