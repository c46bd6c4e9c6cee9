"""Classification of series: windows, coverage, contributions, tensors, and what manifests must hold."""

from typing import Any, cast

import numpy as np
import pytest
from pydantic import ValidationError

from artifact.arrays import Array
from artifact.documents import OnOverflow, cut
from artifact.errors import InvalidInput
from artifact.recordings import STRETCHES, row_bytes, stretch_bounds
from artifact.tasks.base import Answer, Computation, RunModel, advance
from artifact.tasks.labels import ResultOptions
from artifact.tasks.series_classification import ClassifiedRecording, SeriesClassification, SeriesClassifierManifest
from tests.support import recordings as reference
from tests.support.models import AXES, GESTURES, RATE, STEP_OVERLAP, STEPS, gesture_logits, rows_of, series_classifier

Values = list[float | None]
SHORT: dict[str, Values] = {"x": [10, None, 12], "y": [10, 12, 14]}
LONG: dict[str, Values] = {
    "x": [10 + step % 5 for step in range(30)],
    "y": [None if step % 7 == 3 else 12 - step % 4 for step in range(30)],
}


@pytest.fixture
def task() -> SeriesClassification:
    return cast(SeriesClassification, series_classifier().task)


def compute(task: SeriesClassification, computation: Computation[Any]) -> Answer[Any]:
    """Return the answer, with rows computed by the model."""
    step = advance(computation)
    while not isinstance(step, Answer):
        assert isinstance(step, RunModel)
        outputs: Array = gesture_logits(task.pack(step.rows, 0)).astype(np.float32)
        step = advance(computation, list(outputs))
    return step


def classified(
    task: SeriesClassification,
    *given: dict[str, Values],
    rate: float | None = None,
    on_overflow: OnOverflow = "windows",
    detail: bool = False,
) -> list[ClassifiedRecording]:
    recordings = [task.recording(list(one.values()), list(one), rate) for one in given]
    answer = compute(task, task.classify(recordings, on_overflow, detail=detail))
    results: list[ClassifiedRecording] = answer.value
    assert list(answer.coverages) == [result.coverage for result in results]
    return results


@pytest.mark.parametrize("on_overflow", ["windows", "head", "tail", "head_tail"])
def test_recordings_of_any_length_get_the_scores_of_the_reference(
    task: SeriesClassification, on_overflow: OnOverflow
) -> None:
    for result, given in zip(classified(task, SHORT, LONG, on_overflow=on_overflow), (SHORT, LONG), strict=True):
        expected = reference.score(given["x"], given["y"], on_overflow)
        assert result.scores == pytest.approx([1 - expected, expected], abs=1e-6)


def test_another_rate_is_resampled_to_that_of_the_model(task: SeriesClassification) -> None:
    for rate, steps in ((2 * RATE, 15), (RATE / 3, 90), (25 * RATE, 1)):
        (result,) = classified(task, LONG, rate=rate)
        assert result.scores[1] == pytest.approx(reference.score(LONG["x"], LONG["y"], steps=steps), abs=1e-6)
        assert result.coverage.is_resampled
    plain, same = (classified(task, LONG, rate=rate)[0] for rate in (None, RATE))
    assert plain.scores == same.scores
    assert not same.coverage.is_resampled


@pytest.mark.parametrize("on_overflow", ["windows", "head", "tail", "head_tail"])
@pytest.mark.parametrize("rate", [None, RATE, 2 * RATE, 7.0])
def test_coverage_counts_the_values_that_were_read(
    task: SeriesClassification, on_overflow: OnOverflow, rate: float | None
) -> None:
    """A sent step was read if a step that the model reads lies in it, at least in part."""
    (result,) = classified(task, LONG, rate=rate, on_overflow=on_overflow)
    steps = round(30 * RATE / (rate or RATE))
    plan = cut(steps, STEPS, STEP_OVERLAP, on_overflow)
    kept = [step for spans in plan for start, end in spans for step in range(start, end)]
    read = [
        at for at in range(30) if any(step * 30 < (at + 1) * steps and at * steps < (step + 1) * 30 for step in kept)
    ]
    values = [LONG[axis][at] for axis in AXES for at in read]
    found = result.coverage
    assert (found.observations_total, found.windows) == (60 - 4, len(plan))
    assert found.observations_used == sum(value is not None for value in values)
    assert found.imputed == sum(value is None for value in values)


def test_longer_recordings_may_be_an_error(task: SeriesClassification) -> None:
    classified(task, {axis: LONG[axis][:STEPS] for axis in AXES}, on_overflow="error")
    recording = task.recording(list(LONG.values()), None, place="series.4")
    message = "series.4: the recording has 30 steps; the model reads 8 and on_overflow is 'error'"
    with pytest.raises(InvalidInput, match=message) as caught:
        advance(task.classify([recording], "error"))
    assert caught.value.errors[0][0] == "series.4"


def deleted(channel: list[float], start: int, end: int) -> list[float]:
    """Return a channel with a straight line in place of a stretch."""
    known: Values = [None if start <= step < end else value for step, value in enumerate(channel)]
    return reference.imputed(known)


@pytest.mark.parametrize("rate", [None, RATE / 2, 3 * RATE])
@pytest.mark.parametrize("on_overflow", ["windows", "head_tail"])
@pytest.mark.parametrize("given", [SHORT, LONG], ids=["short", "long"])
def test_contribution_is_what_deleting_the_stretch_changes(
    task: SeriesClassification, given: dict[str, Values], on_overflow: OnOverflow, rate: float | None
) -> None:
    """The reference deletes each stretch of the recording as the model reads it, and computes all windows again."""
    (result,) = classified(task, given, rate=rate, on_overflow=on_overflow, detail=True)
    sent = len(given["x"])
    steps = max(1, round(sent * RATE / (rate or RATE)))
    x, y = (reference.standardised(given[axis], steps) for axis in AXES)
    whole = reference.logit(x, y, on_overflow)
    count = min(sent, steps, STRETCHES)
    assert [part.start for part in result.stretches][1:] == [part.end for part in result.stretches][:-1]
    assert (result.stretches[0].start, result.stretches[-1].end, len(result.stretches)) == (0, sent, count)
    if steps == 1:  # the mean of the only value is the value
        assert [part.contributions.tolist() for part in result.stretches] == [[0, 0]]
        return
    for (start, end), part in zip(stretch_bounds(min(sent, steps)), result.stretches, strict=True):
        first, last = (round(at * steps / min(sent, steps)) for at in (start, end))
        changed = reference.logit(deleted(x, first, last), deleted(y, first, last), on_overflow)
        assert part.contributions[0] == 0
        assert part.contributions[1] == pytest.approx(whole - changed, abs=1e-5)
        assert (part.start, part.end) == (round(first * sent / steps), round(last * sent / steps))


def test_stretch_outside_of_what_is_read_contributes_nothing(task: SeriesClassification) -> None:
    (result,) = classified(task, LONG, on_overflow="head", detail=True)
    outside = [part for part in result.stretches if part.start >= STEPS]
    assert len(outside) == 12
    assert not any(part.contributions.any() for part in outside)
    assert result.stretches[0].contributions.any()


def test_json_holds_what_was_asked_for(task: SeriesClassification) -> None:
    (result,) = classified(task, SHORT, detail=True)
    wave = pytest.approx(reference.score(SHORT["x"], SHORT["y"]), abs=1e-6)
    found = result.as_json(ResultOptions(top_k=1, detail=True))
    assert found["scores"] == [{"label": "wave", "score": wave}]
    assert [(part["start"], part["end"], list(part["contributions"])) for part in found["stretches"]] == [
        (0, 1, ["wave"]), (1, 2, ["wave"]), (2, 3, ["wave"])
    ]  # fmt: skip
    assert found["coverage"] == {
        "observations_total": 5,
        "observations_used": 5,
        "imputed": 1,
        "strategy": "whole",
        "windows": 1,
        "resampled": False,
    }
    plain = result.as_json(ResultOptions())
    assert list(plain) == ["label", "score", "scores", "coverage"]
    assert [score["label"] for score in plain["scores"]] == ["wave", "rest"]


def test_rows_have_the_length_of_the_only_bucket(task: SeriesClassification) -> None:
    recordings = [task.recording(list(one.values()), list(one)) for one in (SHORT, LONG)]
    rows = rows_of(task.classify(recordings))
    assert {len(row) for row in rows} == {*task.row_lengths("onnx")} == {row_bytes(STEPS, len(AXES))}
    assert len(rows) == 1 + len(cut(30, STEPS, STEP_OVERLAP, "windows"))


def test_tensors_are_recordings_padded_with_nan(task: SeriesClassification) -> None:
    values = np.full((3, 30, 2), np.nan, np.float32)
    for row, given in ((0, SHORT), (1, LONG)):
        values[row, : len(given["x"])] = np.array([given[axis] for axis in AXES], float).T
    values[2] = values[1]
    values[2, 20:] = np.nan
    answer = compute(task, task.infer({"series": values}, "windows"))
    expected = [
        reference.score(SHORT["x"], SHORT["y"]),
        reference.score(LONG["x"], LONG["y"]),
        reference.score(LONG["x"][:20], LONG["y"][:20]),
    ]
    assert answer.value.outputs["scores"][:, 1].tolist() == pytest.approx(expected, abs=1e-6)
    assert answer.value.outputs["label"].tolist() == ["wave" if score > 0.5 else "rest" for score in expected]
    assert answer.value.parameters == {"observations_total": 98, "observations_used": 98, "imputed": 8}
    inputs, outputs = task.tensors
    assert [(one.name, one.shape) for one in (*inputs, *outputs)] == [
        ("series", (-1, -1, 2)), ("rate", (-1,)), ("scores", (-1, 2)), ("label", (-1,))
    ]  # fmt: skip
    assert task.parameters == {"labels": list(GESTURES), "channels": list(AXES)}


def test_tensor_without_a_value_is_an_error(task: SeriesClassification) -> None:
    values = np.zeros((2, 3, 2), np.float32)
    values[1] = np.nan
    with pytest.raises(InvalidInput, match=r"series\.1\.x: it has no known value"):
        advance(task.infer({"series": values}, "windows"))
    values[1, 2, 1] = np.inf
    with pytest.raises(InvalidInput, match=r"series\.1\.y\.2: must be finite or missing"):
        advance(task.infer({"series": values}, "windows"))
    with pytest.raises(InvalidInput, match=r"series\.0: at least 1 value of each channel is needed"):
        advance(task.infer({"series": np.zeros((1, 0, 2), np.float32)}, "windows"))


def test_work_and_answers_are_counted_before_they_are_computed(task: SeriesClassification) -> None:
    recordings = [task.recording(list(LONG.values()), list(LONG), RATE / 10) for _ in range(3)]
    assert task.count_values(recordings) == 3 * 300 * 2
    assert task.count_items(3, 1023) == 4
    assert task.count_items(3, 1023, detail=True) == 4 * 17
    assert [task.count_contributions(3, top_k) for top_k in (None, 1, 9)] == [96, 48, 96]


@pytest.mark.parametrize("top_k", [None, 1])
def test_details_are_not_longer_than_the_task_says(task: SeriesClassification, top_k: int | None) -> None:
    options = ResultOptions(top_k, detail=True)
    (result,) = classified(task, LONG, detail=True)
    written = len(str(result.as_json(options)["stretches"]))
    assert written / 3 < task.max_detail_bytes(options) < 3 * written
    assert task.max_detail_bytes(ResultOptions(top_k)) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": ["x", "x"]}, "channels must differ"),
        ({"mean": [0.0]}, "2 channels need as many means and scales"),
        ({"scale": [1.0, 0.0]}, "greater than 0"),
        ({"window_overlap": STEPS}, "window_overlap 8 must be below length 8"),
        ({"length": 9}, r"inputs are .*; expected .*\(-1, 9, 2\)"),
        ({"channels": ["x", "y", "z"], "mean": [0] * 3, "scale": [1] * 3}, "inputs are"),
        ({"rate": 0}, "greater than 0"),
        ({"own_scale": ["z"]}, "own_scale has z, which is not one of the channels"),
        ({"own_scale": ["x", "x"]}, "the channels of own_scale must differ"),
        ({"own_scale": ["x"]}, r"inputs are .*; expected .*\(-1, 8, 3\)"),
        ({"labels": ["a", "b", "c"]}, "3 labels do not fit outputs"),
        ({"labels": ["a", "a"]}, "labels must differ"),
    ],
)
def test_manifest_is_checked(task: SeriesClassification, changes: dict[str, object], message: str) -> None:
    valid = task.manifest.model_dump()
    with pytest.raises(ValidationError, match=message):
        SeriesClassifierManifest.model_validate({**valid, **changes})


def test_graph_of_the_manifest_is_checked(task: SeriesClassification) -> None:
    valid = task.manifest.model_dump()
    files = [{**file, "bucket": STEPS + 1} for file in valid["files"]]
    inputs = [valid["inputs"][0], valid["inputs"][1], {**valid["inputs"][2], "datatype": "FP32"}]
    outputs = [*valid["outputs"], {"name": "more", "datatype": "FP32", "shape": (-1, 2)}]
    for changes, message in (
        ({"files": files}, "the bucket must be 8, the length"),
        ({"inputs": inputs}, "inputs are .*'lengths', 'FP32'"),
        ({"outputs": outputs}, "the only output is the logits; outputs has 2"),
    ):
        with pytest.raises(ValidationError, match=message):
            SeriesClassifierManifest.model_validate({**valid, **changes})
