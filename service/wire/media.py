"""Media types."""

JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
BINARY = "application/octet-stream"
NDJSON = "application/x-ndjson"
PROBLEM = "application/problem+json"
