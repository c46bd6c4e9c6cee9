"""Recipes: what each section may hold, how they are read, and how stored ones are."""
