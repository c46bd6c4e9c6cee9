"""Dynamic batching: every model has a queue; batches run in slots."""
