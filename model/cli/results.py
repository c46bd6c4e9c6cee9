"""Table of results, with those of the manifest and of the baseline beside them. Used by `evaluate` and `export`."""

import math
from collections.abc import Sequence

from artifact.manifest import Result
from model.tasks.tfidf import value_of

FEW = 50
"""Number of examples below which a line says how few there are."""


def print_results(results: Sequence[Result], notes: Sequence[str] = (), stated: Sequence[Result] | None = None) -> None:
    """Print one aligned row per result, the notes, and a warning if a baseline is clearly better.

    Args:
        results: measured values, the first one of all examples.
        notes: notes about the measurement.
        stated: results in the manifest; None leaves their column out.

    """
    known = {(r.metric, r.condition): f"{r.value:.4f}" for r in stated or ()}
    heads = ["metric", "condition", "split", "n", "value"]
    rows = [[r.metric, r.condition, r.split, str(r.examples), f"{r.value:.4f}"] for r in results]
    if stated is not None:
        heads.append("manifest")
        rows = [[*row, known.get((r.metric, r.condition), "")] for row, r in zip(rows, results, strict=True)]
    others = [value_of(r.compared_with) for r in results]
    if any(value is not None for value in others):
        heads.append("TF-IDF")
        rows = [[*row, "" if value is None else f"{value:.4f}"] for row, value in zip(rows, others, strict=True)]
    elif any(r.compared_with != "nothing" for r in results):
        heads.append("compared with")
        rows = [[*row, r.compared_with] for row, r in zip(rows, results, strict=True)]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        names = [cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True)]
        is_text = heads[-1] == "compared with"
        numbers = [cell.rjust(width) for cell, width in zip(row[3 : len(row) - is_text], widths[3:], strict=False)]
        print("  ".join((*names, *numbers, *row[len(row) - is_text :])).rstrip())
    if (count := results[0].examples) < FEW:
        print(f"only {count} examples were measured: each is {100 / count:.1f} % of them")
    for note in notes:
        print(note)
    if behind := behind_baseline(results):
        print(behind)


def behind_baseline(results: Sequence[Result]) -> str:
    """Warning that names the metrics in which the baseline is clearly better; empty if there are none."""
    found = [
        f"{r.metric} ({r.condition}) {r.value:.4f}, baseline {value:.4f}"
        for r in results
        if (value := value_of(r.compared_with)) is not None and value - r.value > 2 * _error(r.value, value, r.examples)
    ]
    if not found:
        return ""
    name = next(r.compared_with.rpartition(":")[0] for r in results if value_of(r.compared_with) is not None)
    return f"warning: this model is behind {name}: {'; '.join(found)}"


def _error(first: float, second: float, examples: int) -> float:
    """Standard error of the difference of two shares of different examples; that of the same examples is smaller."""
    return math.sqrt((first * (1 - first) + second * (1 - second)) / examples)
