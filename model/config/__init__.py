"""Recipes: their schemas and how they are read."""
