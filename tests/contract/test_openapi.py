"""The OpenAPI document of the service equals the committed one, so that every change is visible in a review.

`python -m tests.contract.test_openapi` writes it again after an intended change.
"""

import json
from typing import Any

from service.app import create_app
from service.settings import Settings
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs/openapi.json"


def document() -> dict[str, Any]:
    """Return the document that the code generates; it does not depend on the served models."""
    return create_app(Settings()).openapi()


def test_document_equals_the_committed_one() -> None:
    assert document() == json.loads(DOCUMENT.read_text()), "`python -m tests.contract.test_openapi` updates it"


if __name__ == "__main__":
    DOCUMENT.write_text(json.dumps(document(), indent=1, sort_keys=True) + "\n")
