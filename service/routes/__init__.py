"""The service's own routes: each reads a request, calls a task and writes the response."""
