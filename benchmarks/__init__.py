"""Programs that measure the project; `results/` holds what they found. Not part of what is served."""
