"""Serves exported long-sequence models over HTTP with dynamic batching."""

__version__ = "0.1.0"
