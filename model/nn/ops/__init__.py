"""Tensor operations of the encoder and the attention layers."""
