"""Other servers beside ours, with the same model and load: `python -m benchmarks.peers`."""
