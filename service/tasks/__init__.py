"""The work of a request without HTTP, one file per task."""
