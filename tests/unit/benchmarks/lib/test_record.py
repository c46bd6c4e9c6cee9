"""Records as files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lib import record
from tests.support.records import MEASURED


def test_records_survive_writing(tmp_path: Path) -> None:
    assert record.earlier("made_up", tmp_path) == {}
    folder = record.write(MEASURED, tmp_path)
    assert record.read("made_up", tmp_path) == MEASURED
    assert record.earlier("made_up", tmp_path) == MEASURED.data
    assert record.names(tmp_path) == ["made_up"]
    assert [path.name for path in folder.iterdir()] == ["data.json"]


def test_each_run_has_a_line_of_its_own(tmp_path: Path) -> None:
    runs = [{"seed": seed, "accuracy": 0.5, "note": "x" * 60} for seed in range(5)]
    path = record.write(replace(MEASURED, data={"runs": runs}), tmp_path) / "data.json"
    lines = [line.strip().rstrip(",") for line in path.read_text().splitlines()]
    assert all(json.dumps(run) in lines for run in runs)


def test_what_is_no_number_is_refused_and_the_old_record_stays(tmp_path: Path) -> None:
    record.write(MEASURED, tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        record.write(replace(MEASURED, data={"value": float("nan")}), tmp_path)
    assert record.read("made_up", tmp_path) == MEASURED
