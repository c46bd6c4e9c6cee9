"""Recipes: schemas of their sections, reading, and recipes stored in checkpoints and manifests."""
