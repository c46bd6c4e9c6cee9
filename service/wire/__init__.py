"""Requests and responses: their schemas, how they are read and how they are written."""
