"""One run, from recipe to run folder: loop, checkpoints, device, provenance. Nothing here is about one model."""
