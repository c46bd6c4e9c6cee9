"""The served models: load, select and reload them."""
