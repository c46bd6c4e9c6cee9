"""`python -m benchmarks.models.labelled_series`: classifiers of labelled series.

Trains on the training split of 36 sets of the UCR and UEA archives as `python -m model train --task
series-classification` does, and measures MiniRocket, both views and their sum on the test split; on ten of them also
other encoders. The options of a set follow from its training split. Each result is recorded when its run ends; a
restarted benchmark continues. `benchmarks.models.labelled_series.aeon` adds MiniRocket as the package aeon has it.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, earlier
from benchmarks.models.labelled_series.report import BOTH, DTW, ENCODERS, PARTS, ROCKET, S3, draw, report
from benchmarks.models.labelled_series.sets import packed, read_split, sets_of
from model.config.recipes import find_recipe, load_recipe, parse_override
from model.config.run import SeriesClassificationRun
from model.data.own_recordings import OwnRecordings, RecordingSet, model_keys
from model.tasks.dtw import nearest_neighbours
from model.tasks.series_classification import Prepared, SeriesClassificationTask, features_of, train_encoder
from model.tasks.series_views import Ridge, encoder_logits
from model.training.checkpoint import RunFolder, load_best
from model.training.stages import run_stages

NAME = "labelled_series"
SEEDS = 3
SPLITS = ("TRAIN", "TEST")


@dataclass(frozen=True)
class Run:
    """A training run that is measured."""

    set: str
    kind: str
    """VIEWS, DTW or a key of ENCODERS."""
    seed: int


VIEWS = "views"
"""Kind of a run of both views."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and measure the runs that the record lacks."""
    data = earlier(NAME, args.out)
    runs: list[Data] = data.get("runs", [])
    done = {(run["set"], run["kind"], run["seed"]) for run in runs}
    sets = args.sets or sets_of(args.data_dir)
    wanted = [Run(name, DTW, 0) for name in sets]
    for seed in range(args.seeds):
        wanted += [Run(name, VIEWS, seed) for name in sets]
        wanted += [Run(name, kind, seed) for name in sets if name in PARTS for kind in args.encoders]
    missing = [run for run in wanted if (run.set, run.kind, run.seed) not in done]
    for run in tqdm(missing, unit="run"):
        set_ = OwnRecordings(*(read_split(run.set, split, args.data_dir) for split in SPLITS)).split(seed=0)
        found = _nearest(set_) if run.kind == DTW else _trained(set_, run, args.device)
        fields = {"set": run.set, "kind": run.kind, "seed": run.seed, "revision": git_revision()}
        runs.append({**fields, "examples": len(set_.test), "classes": len(set_.labels), **found})
        yield {**data, "runs": runs}


def _task(data: RecordingSet, run: Run) -> SeriesClassificationTask:
    """The task of a run, as the command derives it from the files."""
    overrides = ENCODERS.get(run.kind, ())
    keys = model_keys([len(values) for values in data.train.values], dict(map(parse_override, overrides)))
    config = load_recipe(find_recipe("recordings"), (*overrides, f"seed={run.seed}"), keys)
    assert isinstance(config, SeriesClassificationRun)
    return SeriesClassificationTask(config).with_facts_of(data)


def _trained(data: RecordingSet, run: Run, device: str) -> Data:
    """Train and measure a run."""
    task, started = _task(data, run), time.process_time()
    rows, labels = task.rows(data.test.values), data.test.labels
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / "run", task.config, torch.device(device), task.facts, {})
        if run.kind != VIEWS:
            chosen = np.arange(len(data.train))
            encoder, _ = train_encoder(Prepared.of(task, data), chosen, folder, "all recordings")
            logits = rows.mean(encoder_logits(encoder, rows, folder.device))
            return {
                "cpu_seconds": time.process_time() - started,
                "correct": {run.kind: packed(logits.argmax(1) == labels)},
            }
        run_stages(task.stages(data), folder, task.metric)
        seconds = time.process_time() - started
        model = task.build()
        load_best(model, folder.path)
    weights = model.weights.tolist()
    encoder_found = rows.mean(encoder_logits(model.encoder, rows, torch.device("cpu")))
    ridge = Ridge(model.linear.weight.detach().numpy().T, model.linear.bias.detach().numpy())
    rocket = rows.mean(ridge(features_of(model.rocket, rows)))
    views = {ROCKET: rocket, S3: encoder_found, BOTH: weights[0] * rocket + weights[1] * encoder_found}
    return {
        "cpu_seconds": seconds,
        "weights": weights,
        "correct": {name: packed(logits.argmax(1) == labels) for name, logits in views.items()},
    }


def _nearest(data: RecordingSet) -> Data:
    """Measure 1-NN DTW."""
    task, started = _task(data, Run("", DTW, 0)), time.process_time()
    found, note = nearest_neighbours(task.standardised(data.train.values), task.standardised(data.test.values))
    if found is None:
        return {"correct": {}, "note": note}
    answers = data.train.labels[found]
    return {"cpu_seconds": time.process_time() - started, "correct": {DTW: packed(answers == data.test.labels)}}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    add_data_dir(parser)
    parser.add_argument("--sets", nargs="+", metavar="SET", help="default: all")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument("--encoders", nargs="*", choices=list(ENCODERS), default=list(ENCODERS), help="default: all")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])


BENCHMARK = Benchmark.of("Labelled series", measure, report, draw, options, ("torch", "numpy", "dtaidistance"))

if __name__ == "__main__":
    BENCHMARK.main()
