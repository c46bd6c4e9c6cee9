"""Media types."""

JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
MARKDOWN = "text/markdown"
BINARY = "application/octet-stream"
NDJSON = "application/x-ndjson"
PROBLEM = "application/problem+json"
