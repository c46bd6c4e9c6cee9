"""From a user's file to the report beside the run, for every task."""

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.commands import call, export
from tests.support.reports import ReadReport
from tests.support.waves import write_ts

EVIL = "<script>document.title = 'run'</script> & \"quoted\""
SMALL = ("training.epochs=1", "model.encoder.dim=8", "model.encoder.num_heads=1", "model.encoder.ffn_dim=8")
WORDS = {"tea": "leaf cup pot steam", "<b>sea</b>, wide": "wave salt ship shore"}


def sentence(generator: random.Random, topic: str) -> str:
    words = generator.choices(["the", "of", "and", "in", "with", "some", "over"], k=6) + generator.choices(
        WORDS[topic].split(), k=2
    )
    return f"{EVIL} {' '.join(words)} {generator.random()}"


def write_table(path: Path, head: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(head)
        writer.writerows(rows)
    return path


def trained(task: str, data: Path, *settings: str) -> Path:
    """Train on a file and return the folder of the run."""
    words = [word for setting in settings for word in ("--set", setting)]
    runs = data.parent / "runs"
    assert call("train", "--task", task, "--data", data, "--runs", runs, "--device", "cpu", *words) == 0
    (run,) = runs.iterdir()
    return run


def predictions(run: Path) -> list[dict[str, str]]:
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def results(run: Path) -> dict[str, dict[str, float]]:
    """Name of the model or of a baseline -> metric -> value, for the first condition of each metric."""
    found: dict[str, dict[str, float]] = {"model": {}}
    for result in json.loads((run / "evaluation.json").read_text()):
        found["model"].setdefault(result["metric"], result["value"])
        for one in result["baselines"]:
            found.setdefault(one["name"], {}).setdefault(result["metric"], one["value"])
    return found


def test_documents(tmp_path: Path) -> None:
    generator, topics = random.Random(0), list(WORDS) * 60
    rows = [(sentence(generator, topic), topic) for topic in topics]
    for place in range(0, len(rows), 4):  # labels that no model can learn, so that some answers are wrong
        rows[place] = (rows[place][0], generator.choice(list(WORDS)))
    data = write_table(tmp_path / "topics.csv", ("text", "label"), rows)
    run = trained("text-classification", data, "model.ngram_vectors.epochs=0", "model.ngram_view.max_length=256")
    read = ReadReport(run / "report.html")
    assert read.is_closed
    assert EVIL in read.text
    assert {"Confusion", "Reliability", "Accuracy by length", "Most wrong", "Training"} <= set(read.texts)
    found = predictions(run)
    lines = {f"{data}:{place}": row for place, row in enumerate(rows, 2)}
    assert {row["label"] for row in found} == set(WORDS)
    assert [row["label"] for row in found] == [lines[row["source"]][1] for row in found]
    right = np.mean([row["label"] == row["predicted"] for row in found])
    (baseline,) = set(found_results := results(run)) - {"model"}
    assert baseline.startswith("TF-IDF and logistic regression (")
    assert found_results["model"]["accuracy"] == pytest.approx(right, abs=1e-6)
    assert 0 < found_results[baseline]["accuracy"] < 1
    assert read.table("metric")[0][-1] == f"{found_results[baseline]['accuracy']:.4f}"


def test_documents_with_any_number_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator, topics = random.Random(0), list(WORDS)
    rows = []
    for _ in range(160):
        chosen = generator.sample(topics, generator.randrange(3))
        text = " ".join(["the of", *(sentence(generator, topic) for topic in chosen)])
        rows.append((f"{generator.random()} {text}", json.dumps(chosen)))
    data = write_table(tmp_path / "tags.csv", ("text", "label"), rows)
    run = trained("text-classification", data, "model.ngram_vectors.epochs=0", "model.ngram_view.max_length=256")
    read = ReadReport(run / "report.html")
    assert read.is_closed
    assert {"Labels", "Reliability", "F1 by length", "Most wrong", "Training"} <= set(read.texts)
    assert [row[0] for row in read.table("label")] == sorted(topics)
    found, lines = predictions(run), {f"{data}:{place}": row for place, row in enumerate(rows, 2)}
    sets = [[set(json.loads(row[key])) for row in found] for key in ("labels", "predicted")]
    assert sets[0] == [set(json.loads(lines[row["source"]][1])) for row in found]
    exact = np.mean([truth == answer for truth, answer in zip(*sets, strict=True)])
    assert results(run)["model"]["exact_match"] == pytest.approx(exact, abs=1e-6)
    report, model = tmp_path / "again.html", export(run, tmp_path / "exports")
    monkeypatch.chdir(tmp_path)
    assert call("evaluate", model, "--data", data, "--device", "cpu", "--report", report) == 0
    assert {"Labels", "Most wrong"} <= set(ReadReport(report).texts)
    with report.with_name("again-predictions.csv").open(encoding="utf-8", newline="") as stream:
        assert [row["predicted"] for row in csv.DictReader(stream)] == [row["predicted"] for row in found]


def test_pairs(tmp_path: Path) -> None:
    generator = random.Random(0)
    rows = []
    for number in range(200):
        one, other = (generator.choice(list(WORDS)) for _ in range(2))
        rows.append((sentence(generator, one), sentence(generator, other), int(one == other if number else True)))
    data = write_table(tmp_path / "pairs.csv", ("text_a", "text_b", "label"), rows)
    run = trained("text-matching", data, *SMALL, "model.stem.num_buckets=1024", "model.head_dim=8")
    read = ReadReport(run / "report.html")
    assert read.is_closed
    assert {"Ranking", "Scores by label", "Most wrong"} <= set(read.texts)
    found = predictions(run)
    assert [int(row["label"]) for row in found] == [rows[int(row["source"].rpartition(":")[2]) - 2][2] for row in found]
    right = np.mean([row["label"] == row["predicted"] for row in found])
    assert results(run)["model"]["accuracy"] == pytest.approx(right, abs=1e-6)
    assert [name for name in results(run) if name.startswith("TF-IDF cosine")]


def test_series(tmp_path: Path) -> None:
    hours = np.arange(600)
    values = 5 + np.sin(hours * 2 * np.pi / 24) + 0.1 * np.random.default_rng(0).standard_normal(600)
    rows = [(f"{value:.3f}", f"{2 * value:.3f}") for value in values]
    data = write_table(tmp_path / "load.csv", (f"load {EVIL}", "heat"), rows)
    run = trained("forecasting", data, *SMALL)
    read = ReadReport(run / "report.html")
    assert read.is_closed
    assert f"load {EVIL}, from row" in read.text
    found = predictions(run)
    assert {row["channel"] for row in found} == {f"load {EVIL}", "heat"}
    for row in found:
        written = rows[int(row["row"])][row["channel"] == "heat"]
        assert float(row["truth"]) == pytest.approx(float(written), abs=1e-4)
        assert float(row["low"]) <= float(row["high"])
    assert {"model", "linear map", "repeat-last"} <= set(results(run))


def test_recordings(tmp_path: Path) -> None:
    run = trained("series-classification", write_ts(tmp_path / "waves.ts", 20), "training.epochs=1")
    read = ReadReport(run / "report.html")
    assert read.is_closed
    assert {"Confusion", "Reliability", "Accuracy by length", "Most wrong"} <= set(read.texts)
    found = predictions(run)
    assert all(row["source"].startswith(str(tmp_path / "waves.ts")) for row in found)
    right = np.mean([row["label"] == row["predicted"] for row in found])
    assert results(run)["model"]["accuracy"] == pytest.approx(right, abs=1e-6)
    assert "MiniRocket and ridge" in results(run)
