"""docker-compose.yml and the settings of the service; tests/docker tests Compose itself."""

import re

from service.settings import Settings
from tests.support.paths import ROOT

COMPOSE = (ROOT / "docker-compose.yml").read_text()


def test_compose_file_passes_every_setting_to_the_service() -> None:
    passed = re.findall(r"^      (LONGDOC_\w+):", COMPOSE, re.MULTILINE)
    assert sorted(passed) == sorted(f"LONGDOC_{name.upper()}" for name in Settings.model_fields)
