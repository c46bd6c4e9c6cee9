"""Benchmarks of the models: accuracy, error and speed of what is shipped."""
