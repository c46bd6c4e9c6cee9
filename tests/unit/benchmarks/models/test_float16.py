"""The benchmark of float16: the difference of golden rows, and the report."""

from artifact.manifest import read_manifest, version_folder
from benchmarks.lib.record import Data, Record
from benchmarks.models.float16 import golden_difference, report
from tests.support.paths import EXPORTS

RESULT: Data = {
    "metric": "mse",
    "condition": "horizon 96",
    "examples": 1422,
    "float32": 0.08115,
    "float16": 0.0811512,
}
EXPORT: Data = {
    "export": "series@2",
    "difference": 0.00037,
    "results": [RESULT],
}


def test_golden_rows_are_computed_in_both_precisions() -> None:
    folder = version_folder(EXPORTS / "ili")
    assert 0 < golden_difference(read_manifest(folder), folder) <= 1e-3


def test_report_tells_metrics_and_difference() -> None:
    text = report(Record("float16", "p", "c", "d", "r", {"cpu": "x"}, {}, {}, {"exports": [EXPORT]}))
    assert "| series@2 | mse    | horizon 96 | 1,422 | 0.081150 | 0.081151 |" in text
    assert "| series@2 |    3.7e-04 |" in text
