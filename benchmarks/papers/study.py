"""Studies: tables of training runs, each in its own processes. Used by `lra` and `ablation`.

Rows differ by overrides of a recipe, columns are recipes. Each result is recorded when its run ends, so that a study
can be interrupted and continued on another machine; the folders of unfinished runs continue there, too.
"""

import argparse
import json
import os
import random
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import Overrides, fingerprint, train
from model.data.documents import LabelledDocuments
from model.data.own import DataFiles
from model.runs.load import load_trained
from model.tasks.classification import ClassificationTask
from model.tasks.graphs import module_functions
from model.training import checkpoint
from model.training.device import choose_device

MAX_TEXTS = 5000
"""Maximum number of test documents at the default scale, always the same ones."""
FIGURE_3_STEPS = 5000
"""Length of the learning curves in Figure 3 of the S3Attention paper."""
LEAST_GAIN = 0.1
"""An accuracy is near chance below this share of the way from chance to 100 %."""


class Case(NamedTuple):
    """One run of a study."""

    scale: str
    column: str
    row: str
    seed: int


@dataclass(frozen=True)
class Study:
    """A table of runs and its report.

    A run is recorded as an object with `scale`, `column`, `row`, `seed`; `accuracy` on the test split, `validation`
    (best value of the task's metric over the epochs), `examples_per_second` in training, `steps`, `device`, `revision`,
    `recipe`, the fingerprint of the recipe, and `curve`: steps, training loss and validation value after each epoch.
    """

    name: str
    title: str
    text: str
    """Introduction of the report: conditions of the measurements."""
    columns: Mapping[str, str]
    """Name -> recipe."""
    rows: Mapping[str, Overrides]
    scales: Mapping[str, Mapping[str, Overrides]]
    """Sizes of the runs, such as `cpu` and `gpu`: name -> column or row -> overrides. The first size is the default."""
    appendix: Callable[["Study", Sequence[Data]], str]
    """Function that returns an additional section of the report, given all runs."""
    chance: Mapping[str, float] = field(default_factory=dict)
    """Column -> accuracy of the most frequent label; accuracies near it are left out of the table."""

    def benchmark(self) -> Benchmark:
        """The study as a benchmark."""
        about = f"{self.title}. Each result is recorded when its run ends; a restarted benchmark continues."
        return Benchmark(
            f"benchmarks.papers.{self.name}", self.title, about, self.measure, self.report, self.draw, self.options,
            ("torch", "numpy"), lambda args: [" ".join(map(str, case)) for case in self.missing(args)],
        )  # fmt: skip

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add the command-line options."""
        scales, columns, rows = list(self.scales), list(self.columns), list(self.rows)
        parser.add_argument("--scale", choices=scales, default=scales[0], help="default: %(default)s")
        parser.add_argument("--columns", nargs="+", choices=columns, default=columns, metavar="COLUMN")
        parser.add_argument("--rows", nargs="+", choices=rows, default=rows, metavar="ROW")
        parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
        cores = len(os.sched_getaffinity(0))
        parser.add_argument("--jobs", type=int, default=cores, help="runs at once (default: %(default)s)")
        folder = f"runs/{self.name}"
        parser.add_argument(
            "--runs", default=folder, type=Path, help="folder of unfinished runs (default: %(default)s)"
        )
        add_data_dir(parser)

    def recorded(self, args: argparse.Namespace) -> list[Data]:
        """Recorded runs of the present recipes."""
        return [run for run in earlier(self.name, args.out).get("runs", []) if self.is_current(run)]

    def missing(self, args: argparse.Namespace) -> list[Case]:
        """Runs that the record lacks, seed by seed."""
        done = {(run["scale"], run["column"], run["row"], run["seed"]) for run in self.recorded(args)}
        return [
            case
            for seed in range(args.seeds)
            for column in args.columns
            for row in args.rows
            if (case := Case(args.scale, column, row, seed)) not in done
        ]

    def measure(self, args: argparse.Namespace) -> Iterator[Data]:
        """Run what is missing, seed by seed; the folder of a run is removed when its result is recorded.

        After a failure no further run starts. The running ones end and are recorded before the failure is raised.
        """
        runs, cases = self.recorded(args), self.missing(args)
        with ThreadPoolExecutor(args.jobs) as pool:
            pending = {pool.submit(self.train, case, args): case for case in cases}
            failures: list[BaseException] = []
            try:
                for run in tqdm(as_completed(pending), total=len(pending), unit="run"):
                    if run.cancelled():
                        continue
                    if failure := run.exception():
                        failures.append(failure)
                        for other in pending:
                            other.cancel()
                        continue
                    runs.append(run.result())
                    yield {"runs": runs}
                    shutil.rmtree(args.runs / self.folder(pending[run]), ignore_errors=True)
            finally:
                for other in pending:
                    other.cancel()
        if failures:
            raise failures[0]

    def train(self, case: Case, args: argparse.Namespace) -> Data:
        """Train, or continue, and evaluate one run. Raises: RuntimeError with the output of the command."""
        scale, column, row, seed = case
        overrides = (*self.overrides(scale, column, row), f"seed={seed}")
        threads = 1 if args.jobs > 1 else None
        label = f"{column}, {row}, seed {seed}"
        runs = args.runs / self.folder(case)
        folder = train(self.columns[column], overrides, runs, args.data_dir, threads=threads, label=label)
        history = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        config, progress, _, state = checkpoint.load(folder / "last.pt")
        steps = state["schedule"]["last_epoch"]  # PyTorch counts the steps of a schedule as epochs
        metric = next(key for key in history[-1] if key.startswith("validation_"))
        is_sampled = scale == next(iter(self.scales))
        return {
            **case._asdict(),
            "accuracy": accuracy_of(folder, args.data_dir, most=MAX_TEXTS if is_sampled else None),
            "validation": progress.best or 0.0,
            "examples_per_second": round(history[-1]["examples_per_second"], 1),
            "steps": steps,
            "device": progress.device,
            "revision": git_revision(),
            "recipe": self.fingerprint(scale, column, row),
            "curve": [
                [
                    steps * record["epoch"] // config.training.epochs,
                    round(record["training_loss"], 5),
                    round(record[metric], 5),
                ]
                for record in history
            ],
        }

    def folder(self, case: Case) -> str:
        """Name of the parent folder of a run's folder; another one if the recipe changes."""
        name = f"{case.scale}-{case.column}-{case.row}-{case.seed}-{self.fingerprint(*case[:3])}"
        return "".join(character if character.isalnum() else "-" for character in name)

    def overrides(self, scale: str, column: str, row: str) -> Overrides:
        """Overrides of the column's recipe."""
        return (*self.scales[scale].get(column, ()), *self.rows[row], *self.scales[scale].get(row, ()))

    def fingerprint(self, scale: str, column: str, row: str) -> str:
        """Hash of the run's recipe."""
        return fingerprint(self.columns[column], self.overrides(scale, column, row))

    def is_current(self, run: Data) -> bool:
        """Whether a recorded run has the recipe that would be trained now."""
        scale, column, row = run["scale"], run["column"], run["row"]
        is_known = scale in self.scales and column in self.columns and row in self.rows
        return is_known and bool(run["recipe"] == self.fingerprint(scale, column, row))

    def report(self, record: Record) -> str:
        """Report of accuracy and speed by scale."""
        runs: list[Data] = record.data["runs"]
        parts = [
            f"{self.text}\n\nTest accuracy in %, mean ± standard deviation over seeds (n). Tasks on single "
            f"documents: at scale {next(iter(self.scales))} at most {MAX_TEXTS:,} test documents, always the same "
            "ones, cut to the length of the model.\n"
        ]
        for scale in sorted({run["scale"] for run in runs}):
            chosen = [run for run in runs if run["scale"] == scale]
            steps = {name: run["steps"] for name in self.columns for run in chosen if run["column"] == name}
            shown = [run for run in chosen if (run["row"], run["column"]) not in self.near_chance(chosen)]
            left_out = ", ".join(f"{row} on {column}" for row, column in self.near_chance(chosen))
            parts += [
                f"## Scale: {scale}\n",
                self.table(shown, accuracy_cell),
                *([f"Left out, because near the most frequent label: {left_out}.\n"] if left_out else []),
                "Training examples a second, median:\n",
                self.table(chosen, rate_cell),
                f"- steps of a run: {', '.join(f'{name} {count:,}' for name, count in steps.items())}",
                f"- devices: {'; '.join(sorted({run['device'] for run in chosen}))}",
                f"- revisions: {', '.join(sorted({run['revision'] for run in chosen}))}\n",
            ]
        return "\n".join([*parts, self.appendix(self, runs)])

    def near_chance(self, runs: Sequence[Data]) -> list[tuple[str, str]]:
        """Row and column of each mean accuracy below LEAST_GAIN of the way from chance to 100 %."""
        found: dict[tuple[str, str], list[float]] = {}
        for run in runs:
            found.setdefault((run["row"], run["column"]), []).append(run["accuracy"])
        return [
            (row, column)
            for row in self.rows
            for column in self.columns
            if column in self.chance
            and (row, column) in found
            and statistics.mean(found[row, column]) < self.chance[column] + LEAST_GAIN * (1 - self.chance[column])
        ]

    def table(self, runs: Sequence[Data], cell: Callable[[Sequence[Data]], str]) -> str:
        """Table of the study's rows and columns that have runs."""
        columns = [name for name in self.columns if any(run["column"] == name for run in runs)]
        rows = [name for name in self.rows if any(run["row"] == name for run in runs)]
        found = {
            (row, column): [run for run in runs if (run["row"], run["column"]) == (row, column)]
            for row in rows
            for column in columns
        }
        return table(["", *columns], [[row, *(cell(found[row, column]) for column in columns)] for row in rows])

    def draw(self, record: Record, path: Path) -> None:
        """Chart with one panel per scale and column, one point per run; below, the curves of runs that have them."""
        runs = record.data["runs"]
        panels = sorted({(run["scale"], run["column"]) for run in runs})
        has_curves = any("curve" in run for run in runs)
        names = list(self.rows)[::-1]
        height, columns = 1 + 0.3 * len(names), max(1, len(panels))
        size = (2 + 2.8 * columns, height + 3 * has_curves)
        figure, axes = chart.figure(size, columns, rows=1 + has_curves, share_y="row")
        for number, panel in enumerate(panels):
            axis = axes[number]
            of_panel = [run for run in runs if (run["scale"], run["column"]) == panel and run["row"] in names]
            for run in of_panel:
                axis.plot(100 * run["accuracy"], names.index(run["row"]), "o", color="#4477aa", alpha=0.6)
            axis.set(title=f"{panel[1]}, {panel[0]}", xlabel="accuracy, %", yticks=range(len(names)))
            axis.set_yticklabels(names)
            axis.grid(alpha=0.3)
            if has_curves:
                draw_curves(axes[columns + number], [run for run in of_panel if "curve" in run], list(self.rows))
        chart.save(figure, path)


def draw_curves(axis: Axes, runs: Sequence[Data], rows: Sequence[str]) -> None:
    """Validation accuracy against steps, the mean over the seeds of each row; the paper's Figure 3 ends at 5,000."""
    for number, row in enumerate(rows):
        curves = [run["curve"] for run in runs if run["row"] == row]
        if not curves:
            continue
        means = [
            [statistics.mean(values) for values in zip(*points, strict=True)] for points in zip(*curves, strict=False)
        ]
        steps, _, accuracy = zip(*means, strict=True)
        axis.plot(steps, [100 * value for value in accuracy], ".-", color=f"C{number}", label=row)
    if runs:
        axis.axvline(FIGURE_3_STEPS, color="#999999", lw=1)
        axis.legend(fontsize=7)
    axis.set(xlabel="steps", ylabel="validation accuracy, %")
    axis.grid(alpha=0.3)


def accuracy_cell(runs: Sequence[Data]) -> str:
    """Mean ± standard deviation in %, and the number of seeds."""
    return f"{mean_and_deviation([100 * run['accuracy'] for run in runs], '.1f')} ({len(runs)})" if runs else ""


def rate_cell(runs: Sequence[Data]) -> str:
    """Training examples per second."""
    return f"{statistics.median(run['examples_per_second'] for run in runs):.0f}" if runs else ""


def accuracy_of(
    folder: Path, data_dir: Path, change: Callable[[bytes], bytes] = bytes, most: int | None = MAX_TEXTS
) -> float:
    """Test accuracy of a run; a classifier is evaluated on at most `most` test documents, transformed by `change`."""
    best = load_trained(folder, DataFiles(data_dir))
    task, functions = best.task, module_functions(best.finished.graphs, choose_device("auto"))
    if not isinstance(task, ClassificationTask):
        results = task.measure(functions, best.data).results
        (result,) = (result for result in results if result.metric == "accuracy")
        return float(result.value)
    sample = sample_of(best.data.test, task.length, most)
    answers = [int(rows[0].argmax()) for rows in task.logits(functions[0], [change(text) for text in sample.texts])]
    return float(np.mean(np.array(answers) == sample.labels))


def sample_of(documents: LabelledDocuments, length: int, most: int | None = MAX_TEXTS) -> LabelledDocuments:
    """The first `length` bytes of the test documents, or of a sample of `most`, always the same ones."""
    count = len(documents)
    chosen = random.Random(0).sample(range(count), min(most or count, count))
    return LabelledDocuments([documents.texts[i][:length] for i in chosen], [documents.labels[i] for i in chosen])
