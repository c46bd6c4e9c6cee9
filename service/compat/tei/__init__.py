"""The HTTP API of text-embeddings-inference (TEI). Unknown fields are ignored."""
