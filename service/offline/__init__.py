"""Predictions for files, without a server."""
