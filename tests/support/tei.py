"""Check errors in the format of text-embeddings-inference."""

import httpx


def check_error(response: httpx.Response, status: int, kind: str = "Validation") -> str:
    """Check TEI's error body and return its message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    message: str = response.json()["error"]
    assert response.json() == {"error": message, "error_type": kind}
    return message
