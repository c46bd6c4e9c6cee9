"""Labelled series of the UCR and UEA archives: `python -m benchmarks.models.labelled_series`."""
