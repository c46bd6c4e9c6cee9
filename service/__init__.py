"""Serves exported long-sequence models over HTTP with dynamic batching."""
