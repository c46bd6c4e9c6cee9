"""The OpenAPI document of the service is the committed one: no change of it goes unseen.

`python -m tests.contract.test_openapi` writes it anew, for a change that is meant.
"""

import json
from typing import Any

from service.app import create_api
from service.settings import Settings
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs/openapi.json"


def document() -> dict[str, Any]:
    """What the code describes today; it does not depend on the models that are served."""
    return create_api(Settings()).openapi()


def test_document_is_the_committed_one() -> None:
    assert document() == json.loads(DOCUMENT.read_text()), "`python -m tests.contract.test_openapi` writes it anew"


if __name__ == "__main__":
    DOCUMENT.write_text(json.dumps(document(), indent=1, sort_keys=True) + "\n")
