"""Tensor operations shared by the encoders."""
