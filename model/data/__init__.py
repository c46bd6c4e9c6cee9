"""Data sets: readers of files, splits."""
