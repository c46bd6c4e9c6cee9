"""Trains S3Attention encoders and exports them for `service`."""
