"""What is done for a request, apart from HTTP: one file a task."""
