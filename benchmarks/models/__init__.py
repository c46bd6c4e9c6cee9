"""Benchmarks of the shipped models: accuracy, error, speed."""
