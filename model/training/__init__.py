"""The training loop and its checkpoints; nothing here is about one model."""
