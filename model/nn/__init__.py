"""The encoder, its attention layers, and the models built on it."""
