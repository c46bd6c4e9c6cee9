"""The benchmark of float16: differences and times of golden rows, and the report."""

from artifact.manifest import read_manifest, version_folder
from benchmarks.lib.record import Data, Record
from benchmarks.models.float16 import measure_golden, report
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
    "seconds": {"float32": [1.0, 2.0, 9.0], "float16": [3.0, 3.0, 4.0]},
    "results": [RESULT],
}


def test_golden_rows_are_computed_in_both_precisions() -> None:
    folder = version_folder(EXPORTS / "ili")
    found = measure_golden(read_manifest(folder), folder, rounds=2)
    assert found["export"] == f"ili@{folder.name}"
    assert 0 < found["difference"] <= 1e-2
    assert {precision: len(rounds) for precision, rounds in found["seconds"].items()} == {"float32": 2, "float16": 2}


def test_report_tells_metrics_difference_and_ratio() -> None:
    text = report(Record("float16", "p", "c", "d", "r", {"cpu": "x"}, {}, {}, {"exports": [EXPORT]}))
    assert "| series@2 | mse    | horizon 96 | 1,422 | 0.081150 | 0.081151 |" in text
    assert "| series@2 |    3.7e-04 | 1.50 x |" in text
