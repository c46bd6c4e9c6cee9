"""Training runs of benchmarks: each in its own processes; recorded results are reused.

Used by the benchmarks that train, here and in `benchmarks.papers`.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib import record
from benchmarks.lib.benchmark import add_data_dir
from benchmarks.lib.record import Data
from benchmarks.lib.servers import ROOT
from model.config.recipes import find_recipe, load_recipe
from model.training import checkpoint

Overrides = tuple[str, ...]
"""Overrides, each as in `--set KEY=VALUE`."""
Values = dict[tuple[str, str], float]
"""(Metric, condition) -> value of one run."""


@dataclass(frozen=True)
class Case:
    """Runs that differ only in their seed."""

    name: str
    recipe: str
    seeds: int = 1
    overrides: Overrides = ()

    @property
    def folder(self) -> str:
        """Name of the folder of the case's runs."""
        return "".join(character if character.isalnum() else "-" for character in self.name)

    @property
    def fingerprint(self) -> str:
        """Hash of the recipe with its overrides."""
        return fingerprint(self.recipe, self.overrides)


def fingerprint(recipe: str, overrides: Sequence[str]) -> str:
    """Hash of a recipe without its seed; recorded results of other recipes are not reused.

    Keys that have their default are left out, so that results stay valid when recipes get a new key. If a default
    changes, the old value has to be written into the recipes of recorded runs.
    """
    table = load_recipe(find_recipe(recipe), [*overrides, "seed=0"]).model_dump(exclude_defaults=True)
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:12]


def folders_of(name: str) -> Callable[[argparse.ArgumentParser], None]:
    """The options of every benchmark that trains: the folders of its data and of its runs."""

    def add(parser: argparse.ArgumentParser) -> None:
        add_data_dir(parser)
        parser.add_argument("--runs", default=f"runs/{name}", type=Path, help="default: %(default)s")

    return add


def options_of(name: str, sets: Iterable[str] = (), *default: str) -> Callable[[argparse.ArgumentParser], None]:
    """The options of a benchmark that trains: its data sets, by default all, or else its cases."""

    def add(parser: argparse.ArgumentParser) -> None:
        folders_of(name)(parser)
        if known := list(sets):
            parser.add_argument("--sets", nargs="+", choices=known, default=list(default) or known, help="data sets")
        else:
            parser.add_argument("--cases", nargs="+", metavar="CASE", help="train only these cases (default: all)")

    return add


def recorded_and_missing(
    name: str, cases: Sequence[Case], args: argparse.Namespace
) -> tuple[list[Data], list[tuple[Case, int]]]:
    """Recorded runs of a benchmark's present cases, and the cases and seeds that the record lacks.

    Raises: ValueError for an unknown case in `args.cases`.
    """
    current = {case.name: case.fingerprint for case in cases}
    runs = [run for run in record.earlier(name, args.out).get("runs", []) if run["recipe"] == current.get(run["case"])]
    done = {(run["case"], run["seed"]) for run in runs}
    if unknown := set(args.cases or ()) - current.keys():
        raise ValueError(f"--cases must be among {', '.join(current)}, not {', '.join(sorted(unknown))}")
    wanted = [case for case in cases if not args.cases or case.name in args.cases]
    seeds = range(max(case.seeds for case in wanted))
    every = [(case, seed) for seed in seeds for case in wanted if seed < case.seeds]
    return runs, [(case, seed) for case, seed in every if (case.name, seed) not in done]


def trained(
    name: str, cases: Sequence[Case], args: argparse.Namespace, results_of: Callable[[Path, Path], Any]
) -> Iterator[Data]:
    """Train and evaluate every seed that the record lacks; yields the data after each one.

    An interrupted run resumes from its last checkpoint in `args.runs`.

    Args:
        name: name of the record.
        cases: runs to train.
        args: `data_dir`, `runs`, `out`, `cases`.
        results_of: (folder of a trained run, data folder) -> its results as JSON.

    """
    runs, missing = recorded_and_missing(name, cases, args)
    for case, seed in tqdm(missing, unit="run"):
        folder = train(case.recipe, (*case.overrides, f"seed={seed}"), args.runs / case.folder, args.data_dir)
        found = {"case": case.name, "seed": seed, "recipe": case.fingerprint, "revision": git_revision()}
        runs.append({**found, "results": results_of(folder, args.data_dir)})
        yield {"runs": runs}


def train(
    recipe: str, overrides: Sequence[str], runs: Path, data_dir: Path, *, threads: int | None = None, label: str = ""
) -> Path:
    """Train in a separate process, or resume; returns the run folder. A run that has ended is left as it is.

    With a label, the output of the process is printed, each line after the label.

    Raises: RuntimeError with the output of the command.
    """
    config = load_recipe(find_recipe(recipe), list(overrides))
    folder = runs / f"{config.name}-seed{config.seed}"
    sets = [word for override in overrides for word in ("--set", override)]
    last = folder / "last.pt"
    if last.is_file() and checkpoint.load(last)[1].epoch >= config.training.epochs:
        return folder
    resume = ["--resume"] if last.is_file() else []
    if folder.exists() and not resume:  # interrupted before the first checkpoint
        shutil.rmtree(folder)
    run_command("train", recipe, "--runs", str(runs), *sets, *resume, data_dir=data_dir, threads=threads, label=label)
    return folder


def evaluate(folder: Path, data_dir: Path) -> list[Data]:
    """Evaluate a run on the test split. Raises: RuntimeError with the output of the command."""
    run_command("evaluate", str(folder), data_dir=data_dir)
    results: list[Data] = json.loads((folder / "evaluation.json").read_text())
    return [{key: result[key] for key in ("metric", "condition", "examples", "value")} for result in results]


def values_by_case(runs: Sequence[Data]) -> dict[str, list[Values]]:
    """Case -> results of each seed, from results as returned by `evaluate`."""
    found: dict[str, list[Values]] = {}
    for run in sorted(runs, key=lambda run: int(run["seed"])):
        values = {(result["metric"], result["condition"]): float(result["value"]) for result in run["results"]}
        found.setdefault(run["case"], []).append(values)
    return found


def revisions(runs: Sequence[Data]) -> str:
    """Line of a report with the revisions of all runs."""
    return f"Revisions of the runs: {', '.join(sorted({run['revision'] for run in runs}))}."


def run_command(*words: str, data_dir: Path, threads: int | None = None, label: str = "") -> None:
    """Run a command of `model`; with a label, print its output. Raises: RuntimeError with the end of its output."""
    environment = {**os.environ, "LONGDOC_DATA": str(data_dir.resolve())}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    if label:
        environment["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, "-m", "model", *words]
    last = deque[str](maxlen=30)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            if label:
                print(f"{label}: {line}", end="", flush=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{''.join(last)[-2000:]}")
