"""The HTTP protocol and what surrounds every request."""
