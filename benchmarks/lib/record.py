"""Records: the results of a benchmark as JSON. Tables and charts are made from records only.

A record is one file, `results/<name>/data.json`:

    name       name of the benchmark
    program    module, as in `python -m <program>`
    command    command line
    date       date of the measurement, or of the last one if a benchmark continues a record
    revision   revision of the code
    hardware   processor, cores, load average before the run, as far as known
    versions   versions of Python and of the relevant packages
    settings   options of the program, including defaults
    data       results; each benchmark has its own format

Numbers have DIGITS significant digits.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
FILE = "data.json"
DIGITS = 8
WIDTH = 120
"""Maximum line length of a list or object that contains others; a flat one is always written on one line."""

Data = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True)
class Record:
    """Results of a benchmark and their provenance."""

    name: str
    program: str
    command: str
    date: str
    revision: str
    hardware: Data
    versions: dict[str, str]
    settings: Data
    data: Data


def read(name: str, results: Path = RESULTS) -> Record:
    """Read the record of a benchmark. Raises: FileNotFoundError if there is none."""
    return Record(**json.loads((results / name / FILE).read_text()))


def earlier(name: str, results: Path = RESULTS) -> Data:
    """Data of the record that a benchmark continues; empty if there is none."""
    return read(name, results).data if (results / name / FILE).is_file() else {}


def write(record: Record, results: Path = RESULTS) -> Path:
    """Write `<name>/data.json`; returns the folder. Raises: ValueError if a number is NaN or infinite."""
    folder = results / record.name
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / FILE) as partial:
        partial.write_text(_layout(_rounded(asdict(record))) + "\n")
    return folder


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which replaces `path` at the end of the block; an interruption keeps the old file."""
    partial = path.with_name(f".{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def names(results: Path = RESULTS) -> list[str]:
    """Names of all benchmarks with a record."""
    return sorted(path.parent.name for path in results.glob(f"*/{FILE}"))


def _rounded(value: Any) -> Any:
    """The same JSON with rounded numbers."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _layout(value: Any, indent: int = 0) -> str:
    """Format JSON with one line per short or flat value, which keeps diffs small."""
    line = json.dumps(value, allow_nan=False, ensure_ascii=False)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if indent + len(line) <= WIDTH or not any(isinstance(part, list | dict) for part in parts):
        return line
    space = " " * (indent + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(space + _layout(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    lines = (f"{space}{json.dumps(key)}: {_layout(item, indent + 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
