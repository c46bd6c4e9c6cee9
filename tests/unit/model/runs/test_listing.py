"""The list of runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from model.runs.listing import best_of, difference, find_runs
from model.training import checkpoint
from tests.support.commands import call


@pytest.fixture
def runs(run: Path, tmp_path: Path) -> Path:
    """Three runs: one that has ended, one of another seed with other answers, and an interrupted one."""
    folder = tmp_path / "runs"
    for name in ("one-seed0", "two-seed1", "three-seed0"):
        shutil.copytree(run, folder / name)
    for name in ("best.pt", "last.pt"):
        config, progress, facts, state = checkpoint.load(folder / "two-seed1" / name)
        other = config.model_copy(update={"name": "two", "seed": 1})
        checkpoint.save(folder / "two-seed1" / name, other, progress, facts, state)
    two = folder / "two-seed1"
    lines = (two / "predictions.csv").read_text().splitlines()
    wrong = [line.replace(",plus,plus,", ",plus,minus,") for line in lines[:21]]
    (two / "predictions.csv").write_text("\n".join((*wrong, *lines[21:])) + "\n")
    results = json.loads((two / "evaluation.json").read_text())
    count = sum(old != new for old, new in zip(lines[:21], wrong, strict=True))
    assert count > 0
    results[0]["value"] = round(results[0]["value"] - count / 200, 6)
    (two / "evaluation.json").write_text(json.dumps(results))
    three = folder / "three-seed0"
    for path in three.iterdir():
        if path.name not in ("last.pt", "metrics.jsonl"):
            path.unlink()
    return folder


def test_runs_are_listed_with_results_status_and_differences(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", runs) == 0
    lines = capsys.readouterr().out.splitlines()
    best, less = (
        json.loads((runs / name / "evaluation.json").read_text())[0]["value"] for name in ("one-seed0", "two-seed1")
    )
    assert lines[0] == "text-classification:"
    assert [line.split()[0] for line in lines[1:5]] == ["run", "one-seed0", "three-seed0", "two-seed1"]
    assert lines[2].split()[1:] == [
        "synthetic",
        "accuracy",
        lines[2].split()[3],
        "accuracy",
        f"{best:.4f}",
        "200",
        "finished",
    ]
    assert lines[3].split()[-1] == "unfinished"
    assert f"accuracy {less:.4f}" in lines[4]
    assert f"{less - best:+.4f} ± " in lines[4]
    assert len({line.index("finished") for line in (lines[2], lines[4])}) == 1
    assert lines[5] == "synthetic, settings that differ:"
    assert [line.split() for line in lines[6:8]] == [["one-seed0", "three-seed0", "two-seed1"], ["seed", "0", "0", "1"]]


def test_difference_has_the_standard_error_of_pairs(runs: Path) -> None:
    found = {run.name: run for run in find_runs(runs)}
    best = best_of(list(found.values()))
    assert difference(found["one-seed0"], best) == ""
    text = difference(found["two-seed1"], best)
    value, error = map(float, text.split(" ± "))
    count = round(-value * 200)
    expected = np.array([-1.0] * count + [0.0] * (200 - count)).std() / np.sqrt(200)
    assert error == pytest.approx(expected, abs=1e-4)
    (runs / "one-seed0" / "predictions.csv").unlink()
    assert difference(found["two-seed1"], best) == f"{value:+.4f}"


def test_damaged_run_is_listed_and_a_folder_without_runs_is_an_error(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "one-seed0" / "last.pt").write_bytes(b"")
    assert call("runs", runs) == 0
    first, _, row = capsys.readouterr().out.splitlines()[:3]
    assert (first, row.split()) == ("no recipe can be read:", ["one-seed0", "damaged"])
    (runs / "two-seed1" / "evaluation.json").write_text("[")
    assert call("runs", runs) == 2
    assert "evaluation.json is damaged" in capsys.readouterr().err
    assert call("runs", runs / "nosuch") == 2
    assert capsys.readouterr().err == f"error: {runs / 'nosuch'} holds no run, which is a folder with last.pt\n"
