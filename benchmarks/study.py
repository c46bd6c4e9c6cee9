"""Training runs side by side: each in processes of its own, what is done is not done again. Used by `lra`, `ablation`.

A study is a table: rows differ by overrides of a recipe, columns are recipes. Its records stand in
`benchmarks/results/<name>.json`, so that it can be interrupted and go on elsewhere; tables and chart are beside it.
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
import numpy as np
from tqdm import tqdm

from benchmarks.inference_paths import cpu_name
from benchmarks.served import RESULTS, ROOT, table
from model.config.recipes import RECIPES, load_recipe
from model.data.documents import Documents, load_test
from model.tasks import task_of
from model.tasks.base import module_runs
from model.tasks.classification import Classification
from model.training import checkpoint
from model.training.device import choose_device
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

Overrides = tuple[str, ...]

MOST_TEXTS = 5000
"""Of the test split, always the same."""


@dataclass(frozen=True)
class Record:
    """What came of one run."""

    scale: str
    column: str
    row: str
    seed: int
    accuracy: float
    """On the test split."""
    validation: float
    """Best of the epochs, of the metric of the task."""
    examples_per_second: float
    """In training."""
    steps: int
    device: str
    revision: str
    recipe: str
    """Hash of the recipe with all options, seed apart: what another gave is not taken for done, nor shown beside it."""


@dataclass(frozen=True)
class Study:
    """What is compared, and how it is told."""

    name: str
    title: str
    text: str
    """What a reader must know to judge the figures."""
    columns: Mapping[str, str]
    """Name -> recipe."""
    rows: Mapping[str, Overrides]
    scales: Mapping[str, Mapping[str, Overrides]]
    """Name -> column or row -> overrides; the first one is the default."""
    appendix: str = ""

    def run(self, arguments: Sequence[str] | None = None) -> None:
        """Do what is missing, in the order of seeds; write the tables after each run."""
        args = self._parse(arguments)
        records = [record for record in self.records() if self._is_current(record)]
        done = {(record.scale, record.column, record.row, record.seed) for record in records}
        cases = [
            case
            for seed in range(args.seeds)
            for column in args.columns
            for row in args.rows
            if (case := (args.scale, column, row, seed)) not in done
        ]
        with ThreadPoolExecutor(args.jobs) as pool:
            runs = [pool.submit(self._train, *case, args.data_dir, args.jobs) for case in cases]
            try:
                for run in tqdm(as_completed(runs), total=len(runs), unit="run"):
                    records.append(run.result())
                    self.write(records)
            finally:
                for run in runs:
                    run.cancel()
        self.write(records)

    def _parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}", description=self.title)
        scales, columns, rows = list(self.scales), list(self.columns), list(self.rows)
        parser.add_argument("--scale", choices=scales, default=scales[0], help="default: %(default)s")
        parser.add_argument("--columns", nargs="+", choices=columns, default=columns, metavar="COLUMN")
        parser.add_argument("--rows", nargs="+", choices=rows, default=rows, metavar="ROW")
        parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
        cores = len(os.sched_getaffinity(0))
        parser.add_argument("--jobs", type=int, default=cores, help="runs at once (default: %(default)s)")
        parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
        return parser.parse_args(arguments)

    def _train(self, scale: str, column: str, row: str, seed: int, data_dir: Path, jobs: int) -> Record:
        """Train and measure. Raises: RuntimeError with what the commands said."""
        overrides = (*self.overrides(scale, column, row), f"seed={seed}")
        with tempfile.TemporaryDirectory(prefix="study-") as runs:
            folder = train(self.columns[column], overrides, Path(runs), data_dir, 1 if jobs > 1 else None)
            history = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            config, progress, _, _ = checkpoint.load(folder / "best.pt")
            accuracy = measure(folder, data_dir)
        training = config.training
        return Record(
            scale=scale,
            column=column,
            row=row,
            seed=seed,
            accuracy=accuracy,
            validation=progress.best or 0.0,
            examples_per_second=round(history[-1]["examples_per_second"], 1),
            steps=training.epochs * training.examples_per_epoch // training.batch_size,
            device=progress.device,
            revision=git_revision(),
            recipe=self.recipe(scale, column, row),
        )

    def overrides(self, scale: str, column: str, row: str) -> Overrides:
        """What is set of the column's recipe."""
        return (*self.scales[scale].get(column, ()), *self.rows[row], *self.scales[scale].get(row, ()))

    def recipe(self, scale: str, column: str, row: str) -> str:
        """Hash of what is trained."""
        overrides = [*self.overrides(scale, column, row), "seed=0"]
        recipe = load_recipe(RECIPES / f"{self.columns[column]}.toml", overrides)
        return hashlib.sha256(json.dumps(recipe.to_dict(), sort_keys=True).encode()).hexdigest()[:12]

    def _is_current(self, record: Record) -> bool:
        is_known = record.column in self.columns and record.row in self.rows and record.scale in self.scales
        return is_known and record.recipe == self.recipe(record.scale, record.column, record.row)

    def records(self) -> list[Record]:
        """What is done."""
        path = RESULTS / f"{self.name}.json"
        return [Record(**record) for record in json.loads(path.read_text())] if path.exists() else []

    def write(self, records: Sequence[Record]) -> None:
        """Write records, tables and chart."""
        RESULTS.mkdir(exist_ok=True)
        lines = ",\n".join(json.dumps(asdict(record)) for record in records)
        (RESULTS / f"{self.name}.json").write_text(f"[\n{lines}\n]\n")
        (RESULTS / f"{self.name}.md").write_text("\n".join(self._report(records)))
        self._draw(records)

    def _report(self, records: Sequence[Record]) -> Iterator[str]:
        yield f"# {self.title}\n"
        yield f"{self.text}\n"
        yield f"Accuracy on the test split (of texts, the heads of {MOST_TEXTS:,} at most, drawn once) in %, mean ±"
        yield "standard deviation over seeds (n).\n"
        for scale in sorted({record.scale for record in records}):
            chosen = [record for record in records if record.scale == scale]
            columns = [name for name in self.columns if any(record.column == name for record in chosen)]
            steps = {name: next(r.steps for r in chosen if r.column == name) for name in columns}
            yield f"## Scale: {scale}\n"
            yield self._table(chosen, columns, _accuracy)
            yield "Training examples a second, median:\n"
            yield self._table(chosen, columns, _rate)
            yield f"- steps of a run: {', '.join(f'{name} {count:,}' for name, count in steps.items())}"
            yield f"- device: {', '.join(sorted({record.device for record in chosen}))}; {cpu_name()}"
            yield f"- revisions: {', '.join(sorted({record.revision for record in chosen}))}"
            yield f"- command: `python -m benchmarks.{self.name} --scale {scale}`\n"
        if self.appendix:
            yield self.appendix

    def _table(self, records: Sequence[Record], columns: Sequence[str], show: "Show") -> str:
        def cell(column: str, row: str) -> str:
            found = [record for record in records if (record.column, record.row) == (column, row)]
            return show(found) if found else ""

        return table(["", *columns], [[row, *(cell(column, row) for column in columns)] for row in self.rows])

    def _draw(self, records: Sequence[Record]) -> None:
        """A panel for each scale and column, a point for each run."""
        panels = sorted({(record.scale, record.column) for record in records})
        if not panels:
            return
        names = list(self.rows)[::-1]
        size = (2 + 2.8 * len(panels), 1 + 0.3 * len(names))
        figure, axes = pyplot.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False)
        for axis, panel in zip(axes[0], panels, strict=True):
            for record in records:
                if (record.scale, record.column) == panel and record.row in names:
                    axis.plot(100 * record.accuracy, names.index(record.row), "o", color="#4477aa", alpha=0.6)
            axis.set(title=f"{panel[1]}, {panel[0]}", xlabel="accuracy, %", yticks=range(len(names)))
            axis.set_yticklabels(names)
            axis.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(RESULTS / f"{self.name}.png", dpi=110)
        pyplot.close(figure)


Show = Callable[[Sequence[Record]], str]


def _accuracy(found: Sequence[Record]) -> str:
    values = [100 * record.accuracy for record in found]
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation} ({len(values)})"


def _rate(found: Sequence[Record]) -> str:
    return f"{statistics.median(record.examples_per_second for record in found):.0f}"


def measure(folder: Path, data_dir: Path, change: Callable[[bytes], bytes] = bytes) -> float:
    """Accuracy of a run on the test split; of texts, MOST_TEXTS of them, each by its head alone, changed first."""
    config, _, facts, state = checkpoint.load(folder / "best.pt")
    task = task_of(config)
    task.restore(facts)
    model = task.build()
    checkpoint.load_weights(model, state, folder / "best.pt")
    if not isinstance(task, Classification):  # of several classes, the answer does not depend on the calibration
        task.finish(model, data_dir)
    runs = module_runs(task.graphs(model), choose_device("auto"))
    if not isinstance(task, Classification):
        (result,) = (result for result in task.measure(runs, data_dir) if result.metric == "accuracy")
        return float(result.value)
    heads = heads_of(load_test(task.config.data, data_dir, facts["labels"]), task.length)
    heads = Documents([change(text) for text in heads.texts], heads.labels)
    answers = [int(rows[0].argmax()) for rows in task.logits(runs[0], heads)]
    return float(np.mean(np.array(answers) == heads.labels))


def heads_of(documents: Documents, length: int) -> Documents:
    """Beginnings of MOST_TEXTS test documents, always the same ones."""
    chosen = random.Random(0).sample(range(len(documents)), min(MOST_TEXTS, len(documents)))
    return Documents([documents.texts[i][:length] for i in chosen], [documents.labels[i] for i in chosen])


def train(recipe: str, overrides: Sequence[str], runs: Path, data_dir: Path, threads: int | None = None) -> Path:
    """Train in a process of its own; the run's folder. Raises: RuntimeError with what the command said."""
    environment = {**os.environ, "LONGDOC_DATA": str(data_dir.resolve())}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    sets = [word for override in overrides for word in ("--set", override)]
    command = [sys.executable, "-m", "model", "train", recipe, "--runs", str(runs), *sets]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    (folder,) = runs.iterdir()
    return folder
