"""Training runs, from recipe to run folder: loop, checkpoints, device, provenance. Independent of the model."""
