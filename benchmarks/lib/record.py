"""Records: what a benchmark measured, as JSON. Tables and charts are made from them, never the other way round.

A record is one file, `results/<name>/data.json`:

    name       of the benchmark
    program    module that measured, as in `python -m <program>`
    command    how it was started
    date       of the measurement, or of the last one where a program goes on with a record
    revision   of the code
    hardware   processor, cores, load before the run; what is known of it
    versions   of Python and of the packages that matter
    settings   options of the program, defaults among them
    data       what was measured; its form is the program's own
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
FILE = "data.json"
WIDTH = 120
"""Characters up to which a nested list or object stays on one line."""

Data = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True)
class Record:
    """What was measured, and all that a reader needs to judge or repeat it."""

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
    """The record of a benchmark. Raises: FileNotFoundError if there is none."""
    return Record(**json.loads((results / name / FILE).read_text()))


def earlier(name: str, results: Path = RESULTS) -> Data:
    """Data of the record of a benchmark that goes on where it stopped; empty if there is none."""
    return read(name, results).data if (results / name / FILE).is_file() else {}


def write(record: Record, results: Path = RESULTS) -> Path:
    """Write `<name>/data.json`; returns the folder. Raises: ValueError if a number is not finite."""
    folder = results / record.name
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{FILE}"
    partial.write_text(_layout(asdict(record)) + "\n")
    partial.replace(folder / FILE)  # at once: an interruption leaves the old record
    return folder


def names(results: Path = RESULTS) -> list[str]:
    """Benchmarks that have a record."""
    return sorted(path.parent.name for path in results.glob(f"*/{FILE}"))


def _layout(value: Any, indent: int = 0) -> str:
    """JSON in which whatever is short or not nested has a line of its own, so that one change changes one line."""
    line = json.dumps(value, allow_nan=False, ensure_ascii=False)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if indent + len(line) <= WIDTH or not any(isinstance(part, list | dict) for part in parts):
        return line
    space = " " * (indent + 1)
    if isinstance(value, list):
        return "[\n" + ",\n".join(space + _layout(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    lines = (f"{space}{json.dumps(key)}: {_layout(item, indent + 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
