"""Answers to files, without a server."""
