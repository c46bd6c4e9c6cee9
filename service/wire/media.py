"""Media types of bodies."""

JSON = "application/json"
TEXT = "text/plain"
BINARY = "application/octet-stream"
NDJSON = "application/x-ndjson"
PROBLEM = "application/problem+json"
