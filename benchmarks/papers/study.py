"""Studies: tables of training runs, each in its own processes. Used by `lra` and `ablation`.

Rows differ by overrides of a recipe, columns are recipes. Each result is recorded when its run ends, so that a study
can be interrupted and continued on another machine.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import Overrides, fingerprint, train
from model.data.documents import Documents, load_test
from model.tasks import task_of
from model.tasks.base import module_runs
from model.tasks.classification import Classification
from model.training import checkpoint
from model.training.device import choose_device

MAX_TEXTS = 5000
"""Maximum number of test documents, always the same ones."""


@dataclass(frozen=True)
class Study:
    """A table of runs and its report.

    A run is recorded as an object with `scale`, `column`, `row`, `seed`; `accuracy` on the test split, `validation`
    (best value of the task's metric over the epochs), `examples_per_second` in training, `steps`, `device`, `revision`,
    and `recipe`, the fingerprint of the recipe.
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

    def benchmark(self) -> Benchmark:
        """The study as a benchmark."""
        return Benchmark(
            program=f"benchmarks.papers.{self.name}",
            title=self.title,
            description=f"{self.title}. Each result is recorded when its run ends; a restarted benchmark continues.",
            options=self.options,
            measure=self.measure,
            report=self.report,
            chart=self.draw,
            packages=("torch", "numpy"),
        )

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add the command-line options."""
        scales, columns, rows = list(self.scales), list(self.columns), list(self.rows)
        parser.add_argument("--scale", choices=scales, default=scales[0], help="default: %(default)s")
        parser.add_argument("--columns", nargs="+", choices=columns, default=columns, metavar="COLUMN")
        parser.add_argument("--rows", nargs="+", choices=rows, default=rows, metavar="ROW")
        parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
        cores = len(os.sched_getaffinity(0))
        parser.add_argument("--jobs", type=int, default=cores, help="runs at once (default: %(default)s)")
        add_data_dir(parser)

    def measure(self, args: argparse.Namespace) -> Iterator[Data]:
        """Run what is missing, seed by seed.

        After a failure no further run starts. The running ones end and are recorded before the failure is raised.
        """
        runs = [run for run in earlier(self.name, args.out).get("runs", []) if self.is_current(run)]
        done = {(run["scale"], run["column"], run["row"], run["seed"]) for run in runs}
        cases = [
            case
            for seed in range(args.seeds)
            for column in args.columns
            for row in args.rows
            if (case := (args.scale, column, row, seed)) not in done
        ]
        with ThreadPoolExecutor(args.jobs) as pool:
            pending = [pool.submit(self.train, *case, args.data_dir, args.jobs) for case in cases]
            failures: list[BaseException] = []
            try:
                for run in tqdm(as_completed(pending), total=len(pending), unit="run"):
                    if run.cancelled():
                        continue
                    if failure := run.exception():
                        failures.append(failure)
                        cancel(pending)
                        continue
                    runs.append(run.result())
                    yield {"runs": runs}
            finally:
                cancel(pending)
        if failures:
            raise failures[0]

    def train(self, scale: str, column: str, row: str, seed: int, data_dir: Path, jobs: int) -> Data:
        """Train and evaluate one run. Raises: RuntimeError with the output of the commands."""
        overrides = (*self.overrides(scale, column, row), f"seed={seed}")
        with tempfile.TemporaryDirectory(prefix="study-") as runs:
            threads = 1 if jobs > 1 else None
            folder = train(self.columns[column], overrides, Path(runs), data_dir, threads=threads)
            history = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            config, progress, _, _ = checkpoint.load(folder / "best.pt")
            accuracy = accuracy_of(folder, data_dir)
        training = config.training
        return {
            "scale": scale,
            "column": column,
            "row": row,
            "seed": seed,
            "accuracy": accuracy,
            "validation": progress.best or 0.0,
            "examples_per_second": round(history[-1]["examples_per_second"], 1),
            "steps": training.epochs * training.examples_per_epoch // training.batch_size,
            "device": progress.device,
            "revision": git_revision(),
            "recipe": self.fingerprint(scale, column, row),
        }

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
            f"documents: at most {MAX_TEXTS:,} test documents, always the same ones, cut to the length of the model.\n"
        ]
        for scale in sorted({run["scale"] for run in runs}):
            chosen = [run for run in runs if run["scale"] == scale]
            steps = {name: run["steps"] for name in self.columns for run in chosen if run["column"] == name}
            parts += [
                f"## Scale: {scale}\n",
                self.table(chosen, accuracy_cell),
                "Training examples a second, median:\n",
                self.table(chosen, rate_cell),
                f"- steps of a run: {', '.join(f'{name} {count:,}' for name, count in steps.items())}",
                f"- devices: {'; '.join(sorted({run['device'] for run in chosen}))}",
                f"- revisions: {', '.join(sorted({run['revision'] for run in chosen}))}\n",
            ]
        return "\n".join([*parts, self.appendix(self, runs)])

    def table(self, runs: Sequence[Data], cell: Callable[[Sequence[Data]], str]) -> str:
        """Table with the study's rows, and the columns that have runs."""
        columns = [name for name in self.columns if any(run["column"] == name for run in runs)]
        found = {
            (row, column): [run for run in runs if (run["row"], run["column"]) == (row, column)]
            for row in self.rows
            for column in columns
        }
        lines = [[row, *(cell(found[row, column]) for column in columns)] for row in self.rows]
        return table(["", *columns], lines)

    def draw(self, record: Record, path: Path) -> None:
        """Chart with one panel per scale and column, one point per run."""
        runs = record.data["runs"]
        panels = sorted({(run["scale"], run["column"]) for run in runs})
        names = list(self.rows)[::-1]
        figure, axes = chart.figure((2 + 2.8 * len(panels), 1 + 0.3 * len(names)), max(1, len(panels)), share_y=True)
        for axis, panel in zip(axes, panels, strict=True):
            for run in runs:
                if (run["scale"], run["column"]) == panel and run["row"] in names:
                    axis.plot(100 * run["accuracy"], names.index(run["row"]), "o", color="#4477aa", alpha=0.6)
            axis.set(title=f"{panel[1]}, {panel[0]}", xlabel="accuracy, %", yticks=range(len(names)))
            axis.set_yticklabels(names)
            axis.grid(alpha=0.3)
        chart.save(figure, path)


def cancel(pending: Sequence[Future[Data]]) -> None:
    """Cancel every run that has not started."""
    for run in pending:
        run.cancel()


def accuracy_cell(runs: Sequence[Data]) -> str:
    """Mean ± standard deviation in %, and the number of seeds."""
    return f"{mean_and_deviation([100 * run['accuracy'] for run in runs], '.1f')} ({len(runs)})" if runs else ""


def rate_cell(runs: Sequence[Data]) -> str:
    """Training examples per second."""
    return f"{statistics.median(run['examples_per_second'] for run in runs):.0f}" if runs else ""


def accuracy_of(folder: Path, data_dir: Path, change: Callable[[bytes], bytes] = bytes) -> float:
    """Test accuracy of a run; a classifier is evaluated on a sample of the test documents, transformed by `change`."""
    config, _, facts, state = checkpoint.load(folder / "best.pt")
    task = task_of(config)
    task.restore(facts)
    model = task.build()
    checkpoint.load_weights(model, state, folder / "best.pt")
    if not isinstance(task, Classification):  # dividing logits by a temperature does not change the largest
        task.finish(model, data_dir)
    runs = module_runs(task.graphs(model), choose_device("auto"))
    if not isinstance(task, Classification):
        (result,) = (result for result in task.measure(runs, data_dir) if result.metric == "accuracy")
        return float(result.value)
    sample = sample_of(load_test(task.config.data, data_dir, facts["labels"]), task.length)
    sample = Documents([change(text) for text in sample.texts], sample.labels)
    answers = [int(rows[0].argmax()) for rows in task.logits(runs[0], sample)]
    return float(np.mean(np.array(answers) == sample.labels))


def sample_of(documents: Documents, length: int) -> Documents:
    """The first `length` bytes of at most MAX_TEXTS test documents, always the same ones."""
    chosen = random.Random(0).sample(range(len(documents)), min(MAX_TEXTS, len(documents)))
    return Documents([documents.texts[i][:length] for i in chosen], [documents.labels[i] for i in chosen])
