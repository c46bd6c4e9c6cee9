"""Trains S3Attention models and exports them for `service`."""
