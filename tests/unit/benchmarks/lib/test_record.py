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
