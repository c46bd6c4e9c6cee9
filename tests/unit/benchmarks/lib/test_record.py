"""Records as files."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lib import record
from tests.support.records import MEASURED


def test_records_are_read_back_unchanged(tmp_path: Path) -> None:
    assert record.earlier("made_up", tmp_path) == {}
    folder = record.write(MEASURED, tmp_path)
    assert record.read("made_up", tmp_path) == MEASURED
    assert record.earlier("made_up", tmp_path) == MEASURED.data
    assert record.names(tmp_path) == ["made_up"]
    assert [path.name for path in folder.iterdir()] == ["data.json"]


def test_numbers_are_written_with_eight_significant_digits(tmp_path: Path) -> None:
    data = {"scores": [1 / 3, 1e-9 / 7, 123456789.25, -2 / 3], "number": 1234567890123, "nested": {"value": [[0.1]]}}
    record.write(replace(MEASURED, data=data), tmp_path)
    assert record.read(MEASURED.name, tmp_path).data == {
        "scores": [0.33333333, 1.4285714e-10, 123456790.0, -0.66666667],
        "number": 1234567890123,
        "nested": {"value": [[0.1]]},
    }


def test_nan_is_rejected_and_the_old_record_is_kept(tmp_path: Path) -> None:
    record.write(MEASURED, tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        record.write(replace(MEASURED, data={"value": float("nan")}), tmp_path)
    assert record.read("made_up", tmp_path) == MEASURED


def test_interrupted_writing_keeps_the_old_file(tmp_path: Path) -> None:
    def write(text: str) -> None:
        with record.replacing(tmp_path / "report.md") as path:
            path.write_text(text)
            if text != "old":
                raise KeyboardInterrupt

    write("old")
    with pytest.raises(KeyboardInterrupt):
        write("ne")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.md", "old")]


def test_result_folders_contain_records_only() -> None:
    assert {path.name for path in record.RESULTS.iterdir()} == set(record.names())
