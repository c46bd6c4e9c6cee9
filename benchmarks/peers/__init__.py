"""Comparison with other servers under the same model and load: `python -m benchmarks.peers`."""
