"""HTTP connections, and what applies to every request: keys, admission, CORS, metrics, tracing."""
