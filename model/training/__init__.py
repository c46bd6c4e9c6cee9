"""Training runs, from recipe to run folder: loop, stages, checkpoints, device, provenance."""
