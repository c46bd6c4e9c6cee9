"""Exports: the files that training writes and the service runs, and what both compute around the model."""
