"""One report: what every model gets, then the sections of its task, as one HTML file that loads nothing."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from artifact.manifest import Result
from model.errors import writing
from model.report import figures, label_sets, labels, pairs, windows
from model.report.content import Cell, Note, Picture, Section, Table, decimal, named, whole
from model.tasks.predictions import (
    LabelPredictions,
    LabelSetPredictions,
    PairPredictions,
    Predictions,
    Stretch,
    WindowPredictions,
)
from model.training.plot import history_figure

MOST_RECORDS = 200
"""Epochs or stages in the table."""
MOST_CHARACTERS = 300
"""Of a setting."""
MOST_NOTES = 50
FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""First characters of cells that get an apostrophe before them."""


@dataclass(frozen=True)
class Report:
    """What a report is about."""

    name: str
    """Of the model."""
    task: str
    results: Sequence[Result]
    notes: Sequence[str]
    facts: Mapping[str, str]
    """Where the model is from: data with their fingerprint, device, revision and so on."""
    settings: Mapping[str, Any]
    """The recipe, as dotted keys."""
    predictions: Predictions | None
    explain: Callable[[Any], Sequence[Stretch]] = field(default=lambda _: ())
    """Stretches of a document or recording with their contributions."""
    metric: str = ""
    """Validation metric."""
    history: Sequence[Mapping[str, Any]] = ()
    """Records of epochs or stages; empty for an export."""
    source: str = ""
    """What was measured, for user data."""
    warning: str = ""

    def sections(self) -> Iterator[Section]:
        """All sections."""
        yield Section("Results", list(self._results()))
        match self.predictions:
            case LabelPredictions():
                yield from labels.sections(self.predictions, self.explain)
            case LabelSetPredictions():
                yield from label_sets.sections(self.predictions, self.explain)
            case PairPredictions():
                yield from pairs.sections(self.predictions)
            case WindowPredictions():
                yield from windows.sections(self.predictions)
            case _:
                pass
        if self.history:
            yield Section("Training", list(self._training()))
        yield Section("Data and settings", list(self._settings()))

    def _results(self) -> Iterator[Note | Table]:
        """Each result with the baselines of the same metric and condition."""
        if self.warning:
            yield Note(self.warning, is_warning=True)
        if self.source:
            yield Note(self.source)
        names = list(dict.fromkeys(one.name for result in self.results for one in result.baselines))
        rows = []
        for result in self.results:
            known = {one.name: one.value for one in result.baselines}
            cells = (whole(result.examples), decimal(result.value), *(decimal(known.get(name)) for name in names))
            rows.append(named(result.metric, Cell(f"{result.condition}, {result.split}", is_number=False), *cells))
        yield Table(["metric", "condition", "n", self.name, *names], rows)
        yield from map(Note, self.notes[:MOST_NOTES])

    def _training(self) -> Iterator[Picture | Table]:
        """Learning curve, and records of epochs or stages."""
        figure = history_figure(self.history, self.metric)
        yield Picture(figures.address_of(figure), "Measured in training, without the test split.")
        heads = list(dict.fromkeys(key for record in self.history for key in record))
        rows = [[_value(record.get(key, "")) for key in heads] for record in self.history[-MOST_RECORDS:]]
        yield Table([head.replace("_", " ") for head in heads], rows)

    def _settings(self) -> Iterator[Table]:
        """Where the model is from, and its recipe."""
        yield Table(["", ""], [named(key, Cell(value, is_number=False)) for key, value in self.facts.items() if value])
        settings = ((key, str(value)) for key, value in self.settings.items())
        yield Table(["setting", "value"], [named(key, Cell(_cut(value), is_number=False)) for key, value in settings])


def write_report(report: Report, page: Path, table: Path) -> None:
    """Write the report, and the predictions as CSV in UTF-8, without formulas. Raises: UserError, OSError."""
    environment = Environment(
        loader=PackageLoader("model.report", "."),
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("report.html.jinja").render(report=report, sections=report.sections())
    with writing(page):
        page.write_text(text, encoding="utf-8", errors="replace")
    if report.predictions is None:
        return
    with writing(table), table.open("w", encoding="utf-8", errors="replace", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(map(_inert, report.predictions.head))
        writer.writerows(map(_inert, row) for row in report.predictions.rows())


def _inert(cell: object) -> object:
    """A cell of a table that no spreadsheet program takes for a formula: `'` before a text that begins like one.

    Also before a text that begins with `'`, so that removing one restores the text. Numbers stay as they are.
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) and not _is_number(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _value(value: object) -> Cell:
    """A cell of a record."""
    if isinstance(value, float):
        return Cell(f"{value:.4g}")
    return whole(value) if isinstance(value, int) else Cell(str(value), is_number=False)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
