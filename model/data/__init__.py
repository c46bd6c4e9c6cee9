"""Data sets: files on disk -> labelled documents in named splits."""
