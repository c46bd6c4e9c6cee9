"""The commands: train, evaluate, export, card, runs."""
