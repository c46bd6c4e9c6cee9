"""HTTP: one file a protocol or concern; each route reads a request, calls a task and writes its answer."""
