"""Evaluating a run, and an export as it is served."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from artifact.tasks.classification import ClassifierManifest
from tests.support.commands import call
from tests.support.reports import ReadReport


def test_evaluate_reproduces_the_results_in_the_manifest(
    exported: Path, manifest: ClassifierManifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exported, "--out", target, "--device", "cpu") == 0
    results = json.loads(target.read_text())
    assert results == json.loads(manifest.model_dump_json())["results"]
    assert [(r["metric"], r["condition"], r["split"], r["examples"]) for r in results] == [
        ("accuracy", "windows", "test", 200),
        ("macro_f1", "windows", "test", 200),
        ("ece", "windows", "test", 200),
        ("accuracy", "head", "test", 200),
        ("accuracy", "windows, over 128 bytes", "test", 59),
        ("accuracy", "head, over 128 bytes", "test", 59),
    ]
    assert 0.6 < results[0]["value"] <= 1
    out = capsys.readouterr().out
    for result in results:
        values = rf"{result['value']:.4f} +{result['value']:.4f}"
        assert re.search(rf"{result['condition']} +test +{result['examples']} +{values}\n", out)
    assert f"written to {target}" in out


def test_evaluate_uses_the_newest_version_of_a_name(
    exported: Path, manifest: ClassifierManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in (2, 10):
        folder = tmp_path / "synthetic" / str(version)
        shutil.copytree(exported, folder)
        (folder / "manifest.json").write_text(manifest.model_copy(update={"version": version}).model_dump_json())
    monkeypatch.chdir(tmp_path)
    assert call("evaluate", "synthetic", "--device", "cpu") == 0
    assert (tmp_path / "evaluation-synthetic-10.json").is_file()


def test_evaluate_works_in_the_folder_of_the_export(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(exported)
    assert call("evaluate", ".", "--out", tmp_path / "out.json", "--device", "cpu") == 0
    assert (tmp_path / "out.json").is_file()


def test_evaluate_of_a_run_measures_its_best_checkpoint(run: Path, manifest: ClassifierManifest) -> None:
    assert call("evaluate", run, "--device", "cpu") == 0
    assert json.loads((run / "evaluation.json").read_text()) == json.loads(manifest.model_dump_json())["results"]


def test_evaluate_of_a_folder_that_is_neither_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("evaluate", tmp_path) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} is not an export\n"


def test_evaluate_of_an_unknown_run_names_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("evaluate", tmp_path / "nosuch") == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/nosuch does not exist\n"
    for name in ("b-seed0", "a-seed0"):
        (tmp_path / name).mkdir()
    assert call("evaluate", tmp_path / "nosuch") == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/nosuch does not exist; in {tmp_path} there are a-seed0, b-seed0\n"
    )


def test_evaluate_of_a_damaged_export_is_an_error(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(exported, tmp_path / "synthetic" / "1")
    with (folder / "model.onnx").open("ab") as stream:
        stream.write(b"\0")
    assert call("evaluate", folder) == 2
    assert re.fullmatch(r"error: synthetic/1: model\.onnx has sha256 \S+, the manifest .*\n", capsys.readouterr().err)


def test_evaluate_writes_a_report_of_a_run_and_of_an_export(
    run: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report that training has written has the same content."""
    trained = ReadReport(run / "report.html")
    assert trained.is_closed
    for folder, name in ((run, "run.html"), (exported, "export.html")):
        arguments = () if folder == run else ("--out", tmp_path / "out.json")
        assert call("evaluate", folder, "--report", tmp_path / name, *arguments, "--device", "cpu") == 0
        assert f"report: {tmp_path / name}\n" in capsys.readouterr().out
        read = ReadReport(tmp_path / name)
        assert read.is_closed
        for first in ("metric", "class", "bytes"):
            assert read.table(first) == trained.table(first)
    assert ReadReport(tmp_path / "run.html").tables == trained.tables
    assert "Measured in training" in trained.text
    assert "Measured in training" not in ReadReport(tmp_path / "export.html").text
    assert (tmp_path / "run-predictions.csv").read_bytes() == (run / "predictions.csv").read_bytes()
    with (tmp_path / "run-predictions.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    results = json.loads((run / "evaluation.json").read_text())
    right = [row["label"] == row["predicted"] for row in rows]
    assert (len(right), sum(right) / len(right)) == (results[0]["examples"], results[0]["value"])


def test_a_report_replaces_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call("evaluate", tmp_path, "--report", tmp_path / "data.csv")
    told = f"argument --report: expected a file that ends in .html or .htm, not '{tmp_path / 'data.csv'}'"
    assert told in capsys.readouterr().err
    with pytest.raises(SystemExit):
        call("evaluate", tmp_path, "--data", "")
    assert "argument --data: expected the path of a file or folder, not an empty string" in capsys.readouterr().err
