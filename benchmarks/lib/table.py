"""Markdown tables, and cells that summarise several measurements."""

import statistics
from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Format an aligned Markdown table, with a trailing newline.

    Args:
        columns: column headers.
        rows: cells; each row has as many as there are columns.
        left: number of left-aligned columns, from the first; the others are right-aligned.

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
    """Mean ± sample standard deviation; only the mean if there is one value."""
    mean = format(statistics.mean(values), form)
    return f"{mean} ± {statistics.stdev(values):{form}}" if len(values) > 1 else mean


def median_and_range(values: Sequence[float], form: str = ".0f") -> str:
    """Median (minimum to maximum)."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def ratio(values: Sequence[float], others: Sequence[float], form: str = ".2f") -> str:
    """Median of the pairwise ratios of two interleaved series."""
    return format(statistics.median(a / b for a, b in zip(values, others, strict=True)), form)


def three_digits(value: float | None) -> str:
    """A number with three digits or more; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
