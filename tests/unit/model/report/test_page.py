"""Reports and `predictions.csv` as files."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from artifact.manifest import Result
from model.report.page import Report, write_report
from model.tasks.predictions import (
    LabelPredictions,
    LabelSetPredictions,
    PairPredictions,
    Predictions,
    Rival,
    Stretch,
    WindowPredictions,
)
from tests.support.reports import ReadReport

EVIL = "<script>alert(1)</script>\"'&amp;"
LABELS = ["yes", f"no {EVIL}", "=1+1", "a,b\n"]
TEXTS = [f"{EVIL} {number} ".encode() * (1 + number % 50) for number in range(80)]
LARGEST = 2_000_000
"""Bytes of a report."""


def labels(classes: int = 4, count: int = 80) -> LabelPredictions:
    generator = np.random.default_rng(0)
    names = [*LABELS, *(f"{number} {EVIL * 30}" for number in range(4, classes))]
    scores, others = generator.dirichlet(np.ones(classes), (2, count))
    texts = [TEXTS[row % len(TEXTS)] for row in range(count)]
    places = [f"{EVIL}.csv:{row}" for row in range(count)]
    truth = generator.integers(0, classes, count)
    return LabelPredictions(names, truth, scores, texts, "bytes", places, [3] * classes, Rival(EVIL, others))


def recordings() -> LabelPredictions:
    found = labels()
    examples = [np.random.default_rng(row).standard_normal((5 + row, 2)) for row in range(80)]
    return replace(found, examples=examples, unit="steps", training=(), rival=None)


def label_sets(classes: int = 4, count: int = 80) -> LabelSetPredictions:
    found, generator = labels(classes, count), np.random.default_rng(0)
    assert found.rival is not None
    truth, scores, others = generator.random((3, count, classes))
    rival = found.rival._replace(scores=others, thresholds=np.full(classes, 0.4))
    texts = [TEXTS[row % len(TEXTS)] for row in range(count)]
    thresholds, sizes = np.full(classes, 0.5), [3] * classes
    return LabelSetPredictions(
        found.labels, (truth > 0.7).astype(int), scores, thresholds, texts, found.places, sizes, rival
    )


def pairs() -> PairPredictions:
    generator = np.random.default_rng(0)
    truth, scores, others = generator.integers(0, 2, 80), generator.random(80), generator.random(80)
    return PairPredictions(truth, scores, [(text, text) for text in TEXTS], [EVIL] * 80, Rival("cosine", others, 0.3))


def windows(channels: int = 2) -> WindowPredictions:
    generator = np.random.default_rng(0)
    past, parts = generator.random((5, 48, channels)), generator.random((5, 5, 24, channels))
    parts[0, -1, 12:] = np.nan  # the truth after the end of the series
    names = [f"{EVIL} {number}" for number in range(channels)]
    return WindowPredictions(
        names, 24 * np.arange(5), past, parts[0], parts[1], parts[2], parts[3], [Rival("linear map", parts[4])]
    )


def report(predictions: Predictions | None) -> Report:
    classes = len(getattr(predictions, "labels", ()))
    results = tuple(
        Result(
            metric=metric,
            value=value,
            split="test",
            examples=80,
            condition="windows",
            seeds=(0,),
            compared_with=compared,
        )
        for metric, value, compared in (
            ("accuracy", 0.75, "TF-IDF <b>: 0.7000; paper 0.8"),
            ("ece", 0.125, "nothing"),
        )
    )
    return Report(
        name=EVIL,
        task="task",
        results=results,
        notes=(EVIL,),
        facts={"data": f"/home/{EVIL}", "empty": ""},
        settings={"data.text_column": EVIL, "model.sizes": [1, 2]},
        predictions=predictions,
        explain=lambda text: [
            Stretch(start, min(start + 100, len(text)), np.sin(start + np.arange(classes)))
            for start in range(0, len(text), 100)
        ],
        metric="accuracy",
        history=[{"epoch": number, "training_loss": 0.5, "validation_accuracy": 0.75} for number in (1, 2)],
        source=EVIL,
        warning=EVIL,
    )


def written(found: Report, folder: Path) -> ReadReport:
    write_report(found, folder / "report.html", folder / "predictions.csv")
    return ReadReport(folder / "report.html")


@pytest.mark.parametrize("predictions", [labels(), recordings(), label_sets(), pairs(), windows(), None])
def test_report_runs_and_loads_nothing_whatever_the_data_hold(predictions: Predictions | None, tmp_path: Path) -> None:
    read = written(report(predictions), tmp_path)
    assert read.is_closed
    assert EVIL in read.text
    assert len(read.addresses) >= (1 if predictions is None else 2)
    assert read.size < LARGEST


def test_results_have_the_baselines_of_their_own_metric_beside_them(tmp_path: Path) -> None:
    read = written(report(None), tmp_path)
    assert read.tables[0] == [
        ["metric", "condition", "n", EVIL, "TF-IDF <b>", "paper"],
        ["accuracy", "windows, test", "80", "0.7500", "0.7000", "0.8000"],
        ["ece", "windows, test", "80", "0.1250", "", ""],
    ]
    assert read.table("epoch") == [["1", "0.5", "0.75"], ["2", "0.5", "0.75"]]
    assert read.table("setting") == [["data.text_column", EVIL], ["model.sizes", "[1, 2]"]]
    assert not (tmp_path / "predictions.csv").exists()


@pytest.mark.parametrize("predictions", [labels(400, 3_000), label_sets(400, 3_000), windows(300)])
def test_report_of_large_data_is_bounded(predictions: Predictions, tmp_path: Path) -> None:
    assert written(report(predictions), tmp_path).size < LARGEST


def test_predictions_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = labels()
    write_report(report(found), tmp_path / "report.html", tmp_path / "predictions.csv")
    with (tmp_path / "predictions.csv").open(encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    assert head == ["row", "source", "label", "predicted", *(f"score {label}" for label in LABELS)]
    assert len(rows) == 80
    for number, row in enumerate(rows):
        answer = LABELS[found.scores[number].argmax()]
        row[2:4] = [cell.removeprefix("'") for cell in row[2:4]]
        assert row[:4] == [str(number + 1), f"{EVIL}.csv:{number}", LABELS[found.truth[number]], answer]
        assert list(map(float, row[4:])) == pytest.approx(found.scores[number], abs=1e-6)


def test_texts_of_predictions_are_no_formulas_and_can_be_restored(tmp_path: Path) -> None:
    texts = ["=1+1", "+A1", "-A1", "@A1", "\t=1", "\r=1", "'=1", "plain", "a=1", "-1", "+1.5e3"]
    truth = np.arange(len(texts))
    scores = np.eye(len(texts))
    found = LabelPredictions(texts, truth, scores, [b"a"] * len(texts), "bytes", texts)
    write_report(report(found), tmp_path / "report.html", tmp_path / "predictions.csv")
    with (tmp_path / "predictions.csv").open(encoding="utf-8", newline="") as stream:
        _, *rows = csv.reader(stream)
    for number, row in enumerate(rows):
        assert row[0] == str(number + 1)
        assert row[1] == row[2] == row[3] == (f"'{texts[number]}" if number < 7 else texts[number])
        assert list(map(float, row[4:])) == scores[number].tolist()


def test_predictions_of_pairs_and_of_windows() -> None:
    found = pairs()
    first = next(found.rows())
    assert found.head == ("row", "source", "label", "predicted", "score", "score of the baseline")
    assert first[:4] == (1, EVIL, f"{found.truth[0]:g}", int(found.scores[0] >= 0.5))
    series = windows()
    rows = list(series.rows())
    assert series.head == ("origin", "row", "channel", "truth", "forecast", "low", "high", "linear map")
    assert len(rows) == 5 * 24 * 2
    assert rows[-1][:4] == (96, 119, f"{EVIL} 1", "")
    assert rows[0] == (
        0,
        0,
        f"{EVIL} 0",
        *(
            f"{part[0, 0, 0]:.6g}"
            for part in (series.truth, series.forecast, series.low, series.high, series.rivals[0].scores)
        ),
    )


def test_predictions_of_any_number_of_labels_are_lists() -> None:
    found = label_sets()
    assert found.head == ("row", "source", "labels", "predicted", *(f"score {label}" for label in LABELS))
    for number, row in enumerate(found.rows()):
        assert row[:2] == (number + 1, f"{EVIL}.csv:{number}")
        for cell, chosen in zip(row[2:4], (found.truth[number], found.scores[number] >= 0.5), strict=True):
            assert json.loads(str(cell)) == [LABELS[i] for i in np.flatnonzero(chosen)]
        assert list(map(float, map(str, row[4:]))) == pytest.approx(found.scores[number], abs=1e-6)


@pytest.mark.parametrize(("is_one_series", "caption"), [(True, f"{EVIL} 0, from row 1 of"), (False, f"{EVIL} 0")])
def test_forecasts_name_their_row_if_they_are_of_one_series(
    is_one_series: bool,
    caption: str,
    tmp_path: Path,
) -> None:
    read = written(report(replace(windows(), is_one_series=is_one_series)), tmp_path)
    assert caption in read.text
    assert ("from row" in read.text) is is_one_series


def test_texts_that_are_no_utf_8_are_written(tmp_path: Path) -> None:
    found = replace(labels(), places=["caf\udce9.csv"] * 80, examples=[b"\xff\x00\xe9"] * 80)
    assert written(report(found), tmp_path).is_closed
    assert "caf?.csv" in (tmp_path / "predictions.csv").read_text(encoding="utf-8")
