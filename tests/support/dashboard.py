"""The dashboard and alerts of the repository."""

import json
from typing import Any

from tests.support.paths import ROOT

DASHBOARD = (ROOT / "docker" / "grafana" / "dashboards" / "longdoc.json").read_text()
ALERTS = (ROOT / "docker" / "alerts.yml").read_text()
BOARD: dict[str, Any] = json.loads(DASHBOARD)
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES: list[str] = [target["expr"] for panel in PANELS for target in panel["targets"]]
