"""The Grafana dashboard is well-formed; dashboard, alerts and the monitoring page name only existing metrics."""

import re

from service.metrics import Metrics
from tests.support.contract import CONTRACT
from tests.support.dashboard import ALERTS, BOARD, DASHBOARD, QUERIES
from tests.support.paths import ROOT

DOCUMENT = (ROOT / "docs" / "operate" / "monitoring.md").read_text()
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""


def series() -> dict[str, set[str]]:
    """Return the names of the series as queries use them, with their labels."""
    known = {
        family.name + suffix: CONTRACT.get(family.name, set()) | SCRAPED | ({"le"} if suffix == "_bucket" else set())
        for family in Metrics().registry.collect()
        for suffix in SUFFIXES[family.type]
    }
    processes = [name.removeprefix("process_") for name in known if name.startswith("process_")]
    return known | {f"longdoc_worker_{name}": SCRAPED | {"worker"} for name in processes}


def test_variables_are_defined() -> None:
    used = set(re.findall(r"\$\{?(?!_)(\w+)", DASHBOARD))
    assert used == {variable["name"] for variable in BOARD["templating"]["list"]}


def test_queried_metrics_and_labels_exist() -> None:
    known = series()
    for text in (ALERTS, *QUERIES):
        names = re.findall(r"\b((?:longdoc|process)_\w+)", text)
        assert set(names) <= known.keys(), text
        for name, matchers in re.findall(r"\b(\w+)\{([^{}]+)\}", text):
            if name in known:
                assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= known[name], text


def test_every_metric_of_the_service_is_shown() -> None:
    shown = " ".join(QUERIES)
    for name in CONTRACT:
        assert re.search(rf"\b{name}(_total|_bucket|_sum|_count)?\b", shown), name


def test_monitoring_page_explains_every_metric_and_alert() -> None:
    families = [family for family in Metrics().registry.collect() if family.name in CONTRACT]
    names = [family.name + ("_total" if family.type == "counter" else "") for family in families]
    assert re.findall(r"^\| `(longdoc_\w+)", DOCUMENT, re.MULTILINE) == names
    assert re.findall(r"^\| `(Longdoc\w+)", DOCUMENT, re.MULTILINE) == re.findall(r"alert: (\w+)", ALERTS)
