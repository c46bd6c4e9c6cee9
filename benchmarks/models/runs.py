"""Training runs whose results are recorded: each in processes of its own, what is done is not done again.

Used by the benchmarks that train, here and in `benchmarks.papers`.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
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

Overrides = tuple[str, ...]
"""Each as in `--set KEY=VALUE`."""
Figures = dict[tuple[str, str], float]
"""Metric and condition -> value, of one run."""


@dataclass(frozen=True)
class Case:
    """Runs that differ in their seed alone."""

    name: str
    recipe: str
    seeds: int = 1
    overrides: Overrides = ()

    @property
    def folder(self) -> str:
        """Of its runs."""
        return "".join(character if character.isalnum() else "-" for character in self.name)

    @property
    def fingerprint(self) -> str:
        """Of the recipe with its overrides."""
        return fingerprint(self.recipe, self.overrides)


def fingerprint(recipe: str, overrides: Sequence[str]) -> str:
    """Hash of a recipe with all options, seed apart: what another recipe gave is not taken for done."""
    table = load_recipe(find_recipe(recipe), [*overrides, "seed=0"]).to_dict()
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:12]


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Options of a benchmark that trains."""
    add_data_dir(parser)
    parser.add_argument("--runs", default=f"runs/{name}", type=Path, help="folder of the runs (default: %(default)s)")


def trained(
    name: str, cases: Sequence[Case], args: argparse.Namespace, read: Callable[[Path, Path], Any]
) -> Iterator[Data]:
    """Train and measure each seed of each case that the record does not hold; yield the data after each one.

    An interrupted run goes on from its last checkpoint in `args.runs`.

    Args:
        name: of the record.
        cases: what is trained.
        args: `data_dir`, `runs`, `out`.
        read: folder of a trained run, data folder -> its results as JSON.

    """
    current = {case.name: case.fingerprint for case in cases}
    runs = [run for run in record.earlier(name, args.out).get("runs", []) if run["recipe"] == current.get(run["case"])]
    done = {(run["case"], run["seed"]) for run in runs}
    missing = [(case, seed) for seed in range(max(case.seeds for case in cases)) for case in cases if seed < case.seeds]
    missing = [(case, seed) for case, seed in missing if (case.name, seed) not in done]
    for case, seed in tqdm(missing, unit="run"):
        folder = train(case.recipe, (*case.overrides, f"seed={seed}"), args.runs / case.folder, args.data_dir)
        found = {"case": case.name, "seed": seed, "recipe": case.fingerprint, "revision": git_revision()}
        runs.append({**found, "results": read(folder, args.data_dir)})
        yield {"runs": runs}


def train(recipe: str, overrides: Sequence[str], runs: Path, data_dir: Path, *, threads: int | None = None) -> Path:
    """Train in a process of its own, or go on with what is there; the run's folder.

    Raises: RuntimeError with what the command said.
    """
    config = load_recipe(find_recipe(recipe), list(overrides))
    folder = runs / f"{config.name}-seed{config.seed}"
    sets = [word for override in overrides for word in ("--set", override)]
    resume = ["--resume"] if (folder / "last.pt").is_file() else []
    if folder.exists() and not resume:  # interrupted before its first checkpoint
        shutil.rmtree(folder)
    _command("train", recipe, "--runs", str(runs), *sets, *resume, data_dir=data_dir, threads=threads)
    return folder


def evaluate(folder: Path, data_dir: Path) -> list[Data]:
    """Results of a run on the test split. Raises: RuntimeError with what the command said."""
    _command("evaluate", str(folder), data_dir=data_dir)
    results: list[Data] = json.loads((folder / "evaluation.json").read_text())
    return [{key: result[key] for key in ("metric", "condition", "examples", "value")} for result in results]


def figures(runs: Sequence[Data]) -> dict[str, list[Figures]]:
    """Case -> figures of each of its seeds, of results as `evaluate` returns them."""
    found: dict[str, list[Figures]] = {}
    for run in sorted(runs, key=lambda run: int(run["seed"])):
        values = {(result["metric"], result["condition"]): float(result["value"]) for result in run["results"]}
        found.setdefault(run["case"], []).append(values)
    return found


def revisions(runs: Sequence[Data]) -> str:
    """Line of a report: the revisions of all runs."""
    return f"Revisions of the runs: {', '.join(sorted({run['revision'] for run in runs}))}."


def _command(*words: str, data_dir: Path, threads: int | None = None) -> None:
    """Run a command of `model`."""
    environment = {**os.environ, "LONGDOC_DATA": str(data_dir.resolve())}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-m", "model", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
