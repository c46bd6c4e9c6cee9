"""Markdown tables, and how cells spell series of figures."""

import statistics
from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """An aligned Markdown table that ends with a line break.

    Args:
        columns: heads.
        rows: cells, as many in each row as there are columns.
        left: how many columns, from the first one on, are aligned to the left; the others are to the right.

    """
    widths = [max(3, *(len(row[i]) for row in (columns, *rows))) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(aligned)} |\n"

    rule = ["-" * width if i < left else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "".join(map(line, (columns, rule, *rows)))


def mean_and_deviation(values: Sequence[float], form: str = ".3f") -> str:
    """Mean ± standard deviation of a sample; the mean alone of one value."""
    mean = format(statistics.mean(values), form)
    return f"{mean} ± {statistics.stdev(values):{form}}" if len(values) > 1 else mean


def median_and_range(values: Sequence[float], form: str = ".0f") -> str:
    """Median (lowest to highest)."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def ratio(values: Sequence[float], others: Sequence[float], form: str = ".2f") -> str:
    """Median of the ratios of two series that were measured in turns."""
    return format(statistics.median(a / b for a, b in zip(values, others, strict=True)), form)
