"""Benchmarks that train: what is recorded, in which order, and what is repeated after an interruption."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.lib import record
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data
from benchmarks.models import bytes as of_bytes
from benchmarks.models import classification, forecasting, matching, runs
from benchmarks.models.runs import Case, fingerprint
from model.config.recipes import find_recipe, load_recipe
from model.training import checkpoint
from model.training.checkpoint import Progress

HORIZONS = sorted({horizon for _, horizon in forecasting.ROWS})
METRICS = [
    *itertools.product(
        ("accuracy", "ece", "macro_f1"), ("windows", "head", "windows, over 4,096 bytes", "head, over 4,096 bytes")
    ),
    *itertools.product(matching.METRICS, (f"{pairs} pairs, first 4000 bytes" for pairs in ("all", "paper-disjoint"))),
    *itertools.product(("mse", "mae", "coverage_80"), (f"horizon {horizon}" for horizon in HORIZONS)),
    *itertools.product(("mse", "mae"), (f"horizon {horizon}, whole batches" for horizon in HORIZONS)),
]


class Trainer:
    """Replaces the commands of `model`: records what is trained, and fails at one run on request."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, tuple[str, ...]]] = []
        self.fails_at = -1

    def train(self, recipe: str, overrides: Sequence[str], folder: Path, data_dir: Path) -> Path:
        assert str(data_dir) == "data"
        if len(self.trained) == self.fails_at:
            raise KeyboardInterrupt
        self.trained.append((recipe, tuple(overrides)))
        folder = folder / str(len(self.trained))
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(
            "".join(json.dumps({"validation_accuracy": value}) + "\n" for value in (0.5, 0.625, 0.6))
        )
        return folder

    def evaluate(self, folder: Path, data_dir: Path) -> list[Data]:
        assert str(data_dir) == "data"
        value = 0.5 + int(folder.name) / 128
        return [{"metric": m, "condition": c, "examples": 100, "value": value} for m, c in METRICS]


def constant_errors(name: str, data: object) -> Iterator[Data]:
    """Errors of the baselines of forecasting."""
    del data
    for horizon, whole in itertools.product(forecasting.HORIZONS[name], (False, True)):
        for label, mse in (("repeat-last", 0.75), ("seasonal naive", 0.625), ("linear map", 0.5)):
            yield {"set": name, "horizon": horizon, "whole": whole, "forecaster": label, "mse": mse, "mae": mse}


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    trainer = Trainer()
    monkeypatch.setattr(runs, "train", trainer.train)
    for module in (of_bytes, classification, matching):
        monkeypatch.setattr(module, "evaluate", trainer.evaluate)
    monkeypatch.setattr(forecasting, "evaluate_protocols", trainer.evaluate)
    monkeypatch.setattr(forecasting, "loaded", lambda *_: None)
    monkeypatch.setattr(forecasting, "baseline_errors", constant_errors)
    pairs = {"examples": 772, "accuracy": 0.75, "auc": 0.875}
    monkeypatch.setattr(classification, "tfidf", lambda: dict.fromkeys(classification.COMPARED, 87.5))
    monkeypatch.setattr(of_bytes, "tfidf_of_bytes", lambda _: {"strength": 3.0, "accuracy": 0.875})
    monkeypatch.setattr(matching, "tfidf", lambda: {"all": pairs, "paper-disjoint": pairs})
    return trainer


def run_benchmark(benchmark: Benchmark, out: Path) -> Data:
    """Run a benchmark and return the data of its record."""
    benchmark.main(["--data-dir", "data", "--runs", str(out / "runs"), "--out", str(out)])
    return record.read(benchmark.name, out).data


@pytest.mark.parametrize(
    ("benchmark", "count", "expected"),
    [
        (
            classification.BENCHMARK,
            25,
            [
                f"| imdb | 3 |{' 57.55 ± 6.64 |' * 4} 87.50 | 69.27 ± 0.83 |",
                "| S3Attention, as served | 3 | 57.55 ± 6.64 | |",
                "| 256 tokens: convolution | 3 | 60.68 ± 6.64 | -0.78 ± 0.00 |",
                "| n-gram view alone, without vectors | 1 | 57.03 | |",
            ],
        ),
        (
            forecasting.BENCHMARK,
            28,
            [
                f"| ettm2 | 96 |{' 0.591 ± 0.079 |' * 3} 0.539 | 0.192 | 0.203 | 0.750 | 0.625 | 0.500 |",
                "| ili | 24 | 0.615 ± 0.079 | 0.750 | 0.625 | 0.500 |",
                "| ettm2 | 96 | 0.591 ± 0.079 | 0.633 ± 0.062 | 0.500 | 0.042 ± 0.018 |",
                "at or below: S3Attention 5, FEDformer 5, repeat-last 16, seasonal naive 16, linear map 0.",
            ],
        ),
        (
            of_bytes.BENCHMARK,
            18,
            [
                "| S3Attention | 3 | 58.59 ± 6.81 | 58.59 ± 6.81 | |",
                "| no block | 3 | 59.38 ± 6.81 | 59.38 ± 6.81 | -0.78 ± 0.00 |",
                "| no block, single bytes | 1 | 60.16 | 60.16 | -0.78 |",
                "| TF-IDF + LR, labels alone | 1 | 87.50 | | |",
            ],
        ),
        (
            matching.BENCHMARK,
            20,
            ["| served | all | 3 | 0.5781 ± 0.0639 | 0.5781 ± 0.0639 |", "| TF-IDF cosine | all | | 0.7500 | 0.8750 |"],
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_seed_is_recorded_and_reported(
    benchmark: Benchmark, count: int, expected: list[str], trainer: Trainer, tmp_path: Path
) -> None:
    data = run_benchmark(benchmark, tmp_path)
    assert len(data["runs"]) == len(trainer.trained) == count
    assert len({(run["case"], run["seed"]) for run in data["runs"]}) == count
    report = re.sub(" +", " ", (tmp_path / benchmark.name / "report.md").read_text())
    for part in [*expected, "Revisions of the runs: "]:
        assert part in report
    assert (tmp_path / benchmark.name / "chart.webp").exists() == (benchmark.chart is not None)


def test_recorded_run_is_not_trained_again(
    trainer: Trainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer.fails_at = 2
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(matching.BENCHMARK, tmp_path)
    assert [run["seed"] for run in record.read("matching", tmp_path).data["runs"]] == [0, 0]
    trainer.fails_at = -1
    data = run_benchmark(matching.BENCHMARK, tmp_path)
    assert len(data["runs"]) == len(trainer.trained) == len(set(trainer.trained)) == 20
    before = (tmp_path / "matching" / "data.json").read_bytes()
    matching.BENCHMARK.main(["--data-dir", "data", "--runs", "elsewhere", "--out", str(tmp_path)])
    assert (tmp_path / "matching" / "data.json").read_bytes() == before
    assert len(trainer.trained) == 20
    assert capsys.readouterr().out.endswith("matching: the record is complete; nothing was measured\n")


def test_run_of_a_changed_recipe_is_trained_again(trainer: Trainer, tmp_path: Path) -> None:
    first = run_benchmark(matching.BENCHMARK, tmp_path)["runs"][0]["recipe"]
    path = tmp_path / "matching" / "data.json"
    path.write_text(path.read_text().replace(first, "another", 1))
    data = run_benchmark(matching.BENCHMARK, tmp_path)
    assert len(trainer.trained) == 20 + 1
    assert [run["recipe"] for run in data["runs"]].count(first) == 3


def test_fingerprint_depends_on_the_recipe_but_not_on_the_seed() -> None:
    case = Case("x", "imdb-s3", 2, ("model.ngram_view.longest=1",))
    assert case.fingerprint == fingerprint("imdb-s3", ["model.ngram_view.longest=1", "seed=5"])
    assert case.fingerprint != fingerprint("imdb-s3", [])
    assert case.fingerprint != fingerprint("imdb-s3", ["model.ngram_view.longest=2"])


@pytest.mark.parametrize("epoch", [None, 0, 1], ids=["no checkpoint", "interrupted", "ended"])
def test_interrupted_run_is_resumed_and_an_ended_one_is_not(
    epoch: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(runs, "run_command", lambda *words, **_: commands.append(words))
    config = load_recipe(find_recipe("imdb-s3"), ["seed=3"])
    assert config.training.epochs == 1
    folder = tmp_path / "imdb-s3-seed3"
    folder.mkdir()
    if epoch is not None:
        checkpoint.save(folder / "last.pt", config, Progress(epoch=epoch), {}, {})
    assert runs.train("imdb-s3", ["seed=3"], tmp_path, Path("data")) == folder
    command = ("train", "imdb-s3", "--runs", str(tmp_path), "--set", "seed=3")
    assert commands == {None: [command], 0: [(*command, "--resume")], 1: []}[epoch]
    assert folder.exists() == (epoch is not None)
