"""The OpenAPI document of the service is the committed one: no change of it goes unseen.

`python -m tests.contract.test_openapi` writes it anew, for a change that is meant.
"""

import json
from typing import Any

from fastapi import FastAPI

from service.app import create_app
from service.engine.engine import Engine
from service.observe.metrics import Metrics
from service.settings import Settings
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs/openapi.json"


def document() -> dict[str, Any]:
    """What the code describes today; it does not depend on the models that are served."""
    settings = Settings()
    app = create_app(Engine([], settings, Metrics()), settings, Metrics())._app
    assert isinstance(app, FastAPI)
    return app.openapi()


def test_document_is_the_committed_one() -> None:
    assert document() == json.loads(DOCUMENT.read_text()), "`python -m tests.contract.test_openapi` writes it anew"


if __name__ == "__main__":
    DOCUMENT.write_text(json.dumps(document(), indent=1, sort_keys=True) + "\n")
