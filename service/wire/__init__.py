"""Requests and responses: schemas, reading, writing."""
