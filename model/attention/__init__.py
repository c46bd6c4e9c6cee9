"""Attention layers, one file a paper."""
