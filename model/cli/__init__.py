"""The commands: train, evaluate, export."""
