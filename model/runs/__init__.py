"""Run folders: training a recipe into one, loading what was trained, evaluating it."""
