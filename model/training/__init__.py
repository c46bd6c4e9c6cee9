"""The engine of training: stages, training loop, checkpoints, plots, device, provenance."""
