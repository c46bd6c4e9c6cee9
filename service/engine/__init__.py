"""Models with their batchers: loading, selection, reload."""
