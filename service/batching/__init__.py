"""Dynamic batching: a queue and slots for each model."""
