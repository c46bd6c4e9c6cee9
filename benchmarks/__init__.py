"""Measurements; each module is one command, `python -m benchmarks.<name>`, and writes into `benchmarks/results/`."""
