"""Progress of long loops: a bar in a terminal; elsewhere, such as in a log file, a line now and then."""

import io
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

INTERVAL_S = 30.0
"""Minimum time before the first line, and between two lines."""
LINE = "{desc}: {percentage:.0f}% after {elapsed}, about {remaining} left"


def progress(iterable: Iterable[Any] | None = None, **options: Any) -> "tqdm[Any]":
    """A progress bar of tqdm with its options; if standard error is no terminal, lines on standard output."""
    return tqdm(iterable, **options) if sys.stderr.isatty() else _Lines(iterable, **options)


class _Lines(tqdm):  # type: ignore[misc]  # tqdm has no types
    """Prints `LINE` in the place of a bar."""

    monitor_interval = 0  # no thread

    def __init__(self, iterable: Iterable[Any] | None, **options: Any) -> None:
        # What tqdm writes besides the bar, such as the end of its line, goes nowhere.
        plain = {"file": io.StringIO(), "bar_format": LINE, "miniters": 1, "leave": False}
        super().__init__(iterable, **options | plain, mininterval=INTERVAL_S, delay=INTERVAL_S)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Print the line; tqdm calls it at the intervals, and with an empty message at the end."""
        del pos
        if msg is None:
            print(self, flush=True)
        return True
