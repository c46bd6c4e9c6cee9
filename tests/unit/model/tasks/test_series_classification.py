"""A small model of recordings: trained, resumed, evaluated, exported, loaded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import artifact
from artifact.exports import read_manifest
from artifact.tables.recordings import read_recordings
from artifact.tasks.series_classification import SeriesClassifierManifest
from model.config.recipes import find_recipe, load_recipe
from model.config.run import SeriesClassificationRun
from model.data.own import DataFiles
from model.data.own_recordings import OwnRecordings, model_keys
from model.runs.load import load_trained
from model.tasks import series_classification
from model.tasks.graphs import module_functions
from model.tasks.link import SOFTMAX
from model.tasks.series_classification import BOTH, ENCODER, ROCKET, SeriesClassificationTask, computed
from model.training.checkpoint import BEST, load
from tests.support.commands import call, export
from tests.support.waves import LABELS, write_ts

SMALL = (
    "model.encoder.dim=16",
    "model.encoder.num_layers=1",
    "model.encoder.num_heads=2",
    "model.features_per_kernel=8",
    "training.epochs=2",
    "training.examples_per_epoch=64",
    "training.batch_size=8",
    "training.warmup_steps=2",
)


def _train(folder: Path, *arguments: object, settings: tuple[str, ...] = SMALL) -> int:
    words = [word for setting in settings for word in ("--set", setting)]
    files = ("--data", folder / "waves.ts", "--test", folder / "test.ts")
    runs = ("--runs", folder / "runs", "--device", "cpu")
    return call("train", "--task", "series-classification", *files, *runs, *words, *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a trained run and its export."""
    path = tmp_path_factory.mktemp("recordings")
    write_ts(path / "waves.ts", 12)
    write_ts(path / "test.ts", 10, first=100)
    assert _train(path) == 0
    export(path / "runs" / RUN, path / "exports")
    return path


RUN = "waves-seed0"


def _with_small(path: Path, small: int, first: int = 0) -> Path:
    """A file of 24 recordings; of each 12, `small` are smaller by a factor of 10,000."""
    lines = write_ts(path, 12, first).read_text().splitlines()
    header = lines.index("@data") + 1
    for number, line in enumerate(lines[header:]):
        *channels, label = line.split(":")
        if number % 12 < small:
            channels = [",".join(f"{float(value) * 1e-4!r}" for value in channel.split(",")) for channel in channels]
        lines[header + number] = ":".join((*channels, label))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("small", [8, 4])
def test_channels_in_which_most_recordings_are_small_are_also_read_with_their_own_scale(
    tmp_path: Path, small: int
) -> None:
    file = read_recordings(_with_small(tmp_path / "waves.ts", small))
    test = read_recordings(write_ts(tmp_path / "test.ts", 4, first=100))
    data = OwnRecordings(file, test).split(seed=0)
    config = load_recipe(find_recipe("recordings"), (), model_keys([len(values) for values in data.train.values], {}))
    assert isinstance(config, SeriesClassificationRun)
    task = SeriesClassificationTask(config).with_facts_of(data)
    expected = list(data.channels) if small == 8 else []
    found = [line.partition(":")[0] for line in task.describe(data) if "scaled by itself" in line]
    assert found == task.facts.get("own_scale", []) == expected
    rows = task.rows(data.train.values)
    assert rows.inputs["series"].shape[2] == 2 + len(expected)


def test_small_recordings_are_classified_through_the_export(tmp_path: Path) -> None:
    _with_small(tmp_path / "waves.ts", 8)
    _with_small(tmp_path / "test.ts", 8, first=100)
    assert _train(tmp_path) == 0
    export(tmp_path / "runs" / RUN, tmp_path / "exports")
    manifest = read_manifest(tmp_path / "exports" / "waves" / "1")
    assert isinstance(manifest, SeriesClassifierManifest)
    assert manifest.own_scale == manifest.channels == ("c1", "c2")
    model = artifact.load(tmp_path / "exports" / "waves")
    test = read_recordings(tmp_path / "test.ts")
    found = [model.classify(one.values.T)["label"] for one in test.recordings]
    assert np.mean([label == one.label for label, one in zip(found, test.recordings, strict=True)]) > 0.7
    large, small = (model.classify(factor * test.recordings[0].values.T, detail=True) for factor in (1, 1e-3))
    assert sum(score["score"] for score in small["scores"]) == pytest.approx(1, abs=1e-6)
    assert {*large["stretches"][0]["contributions"]} == set(LABELS)
    trained: Any = load_trained(tmp_path / "runs" / RUN, DataFiles(tmp_path))
    rows = trained.task.rows(trained.data.test.values)
    logits = rows.mean(computed(module_functions(trained.finished.graphs, torch.device("cpu"))[0], rows))
    scores = [model.classify(values.T)["scores"] for values in trained.data.test.values]
    served = [[{part["label"]: part["score"] for part in one}[label] for label in manifest.labels] for one in scores]
    assert np.array(served) == pytest.approx(SOFTMAX.probabilities(logits), abs=1e-5)


def test_training_compares_the_views_on_folds(folder: Path) -> None:
    records = [json.loads(line) for line in (folder / "runs" / RUN / "metrics.jsonl").read_text().splitlines()]
    assert [record["stage"] for record in records] == [ROCKET, ENCODER, BOTH]
    assert all(0 <= record["validation_accuracy"] <= 1 for record in records)
    assert (folder / "runs" / RUN / "stages.png").is_file()
    best = load(folder / "runs" / RUN / BEST)
    assert best.facts["labels"] == sorted(LABELS)
    assert best.facts["channels"] == ["c1", "c2"]
    assert best.progress.best == records[-1]["validation_accuracy"]


def test_results_are_those_of_the_model_beside_those_of_its_baselines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder / "runs" / RUN
    assert call("evaluate", run, "--device", "cpu") == 0
    out = capsys.readouterr().out
    assert "test.ts: 20 recordings of the test split" in out
    assert "1-NN DTW" in out
    results = {result["metric"]: result for result in json.loads((run / "evaluation.json").read_text())}
    trained: Any = load_trained(run, DataFiles(folder))
    rows = trained.task.rows(trained.data.test.values)
    logits = rows.mean(computed(module_functions(trained.finished.graphs, torch.device("cpu"))[0], rows))
    assert results["accuracy"]["value"] == pytest.approx(SOFTMAX.report(logits, trained.data.test.labels)["accuracy"])
    assert results["accuracy"]["value"] > 0.7
    assert results["accuracy"]["examples"] == 20
    assert ROCKET in results["accuracy"]["compared_with"]


def test_the_export_gives_the_answers_of_the_model(folder: Path) -> None:
    manifest = read_manifest(folder / "exports" / "waves" / "1")
    assert isinstance(manifest, SeriesClassifierManifest)
    assert manifest.length == 40
    model = artifact.load(folder / "exports" / "waves")
    assert {file.format for file in manifest.files} == {"onnx", "torchscript"}
    trained: Any = load_trained(folder / "runs" / RUN, DataFiles(folder))
    rows = trained.task.rows(trained.data.test.values)
    logits = rows.mean(computed(module_functions(trained.finished.graphs, torch.device("cpu"))[0], rows))
    expected = SOFTMAX.probabilities(logits)
    task: Any = model.task
    recordings = [task.recording(list(values.T), None) for values in trained.data.test.values]
    answers = model._run(task.classify(recordings))
    assert np.array([answer.scores for answer in answers]) == pytest.approx(expected, abs=1e-5)


def test_the_report_explains_recordings_as_the_service_does(folder: Path) -> None:
    trained: Any = load_trained(folder / "runs" / RUN, DataFiles(folder))
    function = module_functions(trained.finished.graphs, torch.device("cpu"))[0]
    model = artifact.load(folder / "exports" / "waves")
    for values in (trained.data.test.values[0], np.tile(trained.data.test.values[1], (3, 1))):  # one, and windows
        stretches = trained.task.stretches(lambda inputs: [function(inputs)], values)
        expected = model.classify(values.T, detail=True)["stretches"]
        assert [part[:2] for part in stretches] == [(part["start"], part["end"]) for part in expected]
        for found, part in zip(stretches, expected, strict=True):
            by_label = dict(zip(trained.task.facts["labels"], found.contributions, strict=True))
            assert by_label == pytest.approx(part["contributions"], abs=1e-4)


def test_the_manifest_names_the_columns_of_training(folder: Path) -> None:
    task: Any = load_trained(folder / "runs" / RUN, DataFiles(folder)).task
    data = task.config.data.model_copy(update={"id_column": "trial", "time_column": "when", "day_first": True})
    found = replace(task, config=task.config.model_copy(update={"data": data})).manifest({})
    assert (found["id_column"], found["time_column"], found["day_first"]) == ("trial", "when", True)


def test_a_resumed_run_is_the_same(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped after the first fold."""
    for name in ("waves.ts", "test.ts"):
        (tmp_path / name).write_text((folder / name).read_text())
    whole = series_classification.train_encoder
    calls = list[str]()

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments[3])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(series_classification, "train_encoder", interrupted)
    assert _train(tmp_path) == 130
    assert _train(tmp_path, "--resume") == 0
    assert calls == ["fold 1", "fold 2", "fold 2", "fold 3", "all recordings"]
    runs = [load(path / "runs" / RUN / BEST) for path in (folder, tmp_path)]
    assert all((runs[0].state["model"][name] == value).all() for name, value in runs[1].state["model"].items())
    assert runs[0].progress.best == runs[1].progress.best


def test_a_held_out_file_is_measured_whole(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held_out = write_ts(tmp_path / "new.ts", 4, first=500)
    assert call("evaluate", folder / "runs" / RUN, "--data", held_out, "--device", "cpu") == 0
    assert "all 8 labelled recordings" in capsys.readouterr().out
    assert call("evaluate", folder / "exports" / "waves", "--data", held_out, "--device", "cpu") == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("@dimensions 2", "@dimensions 1"), "channels"),
        (lambda text: text.replace(":slow", ":medium").replace("true slow fast", "true medium fast"), "medium"),
    ],
)
def test_a_held_out_file_of_something_else_is_an_error(
    folder: Path, tmp_path: Path, change: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_ts(tmp_path / "new.ts", 4, first=500).read_text()
    if message == "channels":
        lines = [
            line if line[0] == "@" else line.partition(":")[0] + line[line.rindex(":") :] for line in text.splitlines()
        ]
        text = "\n".join(lines) + "\n"
    (tmp_path / "new.ts").write_text(change(text))
    assert call("evaluate", folder / "runs" / RUN, "--data", tmp_path / "new.ts", "--device", "cpu") == 2
    assert message in capsys.readouterr().err


def test_a_class_with_one_recording_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ts(tmp_path / "test.ts", 4, first=100)
    lines = write_ts(tmp_path / "waves.ts", 6).read_text().splitlines()
    kept = [line for line in lines if not line.endswith(":fast")]
    (tmp_path / "waves.ts").write_text(
        "\n".join([*kept, next(line for line in lines if line.endswith(":fast"))]) + "\n"
    )
    assert _train(tmp_path) == 2
    assert "fast" in capsys.readouterr().err


def test_unequal_lengths_and_missing_values_are_read(tmp_path: Path) -> None:
    write_ts(tmp_path / "test.ts", 4, first=100, steps=60)
    text = write_ts(tmp_path / "waves.ts", 6).read_text().splitlines()
    text[7] = text[7].replace(text[7].split(",")[3], "?", 1)
    (tmp_path / "waves.ts").write_text("\n".join(text) + "\n")
    assert _train(tmp_path) == 0
    assert call("evaluate", tmp_path / "runs" / RUN, "--device", "cpu") == 0  # longer ones are read in windows


def test_more_rows_than_ridge_regression_can_hold_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_ts(tmp_path / "test.ts", 4, first=100)
    write_ts(tmp_path / "waves.ts", 6)
    monkeypatch.setattr(series_classification, "MOST_ROWS", 11)
    assert _train(tmp_path) == 2
    assert "training has 12 recordings and windows of recordings, more than 11" in capsys.readouterr().err


def test_values_too_large_to_be_scaled_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ts(tmp_path / "test.ts", 4, first=100)
    lines = write_ts(tmp_path / "waves.ts", 6).read_text().splitlines()
    first, colon, rest = lines[-1].partition(":")
    lines[-1] = f"1e300,{first.partition(',')[2]}{colon}{rest}"
    (tmp_path / "waves.ts").write_text("\n".join(lines) + "\n")
    assert _train(tmp_path) == 2
    assert "the values of the channel c1 are too large to be scaled" in capsys.readouterr().err
