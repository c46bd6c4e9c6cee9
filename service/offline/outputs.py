"""The output folder of a batch. Needs pyarrow.

    _job.json                       model, options and inputs, which must be the same to continue
    results/NAME/part-000000.jsonl  one line or row for each row of the input NAME, in order
    errors.jsonl                    bad rows of all inputs, written at the end
    _SUCCESS.json                   the counts, written last

A part is written in one step: it is complete as soon as it exists. The errors of a part are written before its results,
below `_errors`.
"""

import csv
import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow
from pyarrow import parquet
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from artifact.errors import InputError
from artifact.local import Json
from service.offline.compute import OPERATIONS, Predict, results
from service.offline.inputs import InputFile, Part, filesystem

OutputFormat = Literal["jsonl", "csv", "parquet"]
JOB, SUCCESS, ERRORS, RESULTS, ERROR_PARTS = "_job.json", "_SUCCESS.json", "errors.jsonl", "results", "_errors"
PARTIAL = ".partial"
"""End of the name of a file that is being written."""
KINDS = {str: pyarrow.string(), float: pyarrow.float64(), bool: pyarrow.bool_()}
"""Types of columns, between `row` and `error`."""


@dataclass(frozen=True)
class Counts:
    """Rows of an input, or of all of them."""

    rows: int = 0
    bad_rows: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.rows + other.rows, self.bad_rows + other.bad_rows)


@dataclass(frozen=True)
class Output:
    """An output folder; can be pickled."""

    uri: str
    """Path or URI."""
    task: str
    format: OutputFormat

    def start(self, job: Mapping[str, Any]) -> Counts | None:
        """Create the folder, or continue with it. Returns the counts if everything is complete.

        Args:
            job: what the results depend on, as JSON.

        Raises: InputError if the folder contains something else, or if the job has changed; OSError.

        """
        given = json.loads(json.dumps(job))
        found = self._read(JOB)
        if found is None:
            system, root = filesystem(self.uri)
            if system.get_file_info(FileSelector(root, allow_not_found=True)):
                raise InputError(f"{self.uri}: the folder has other files; give --output a new one")
            self._write(JOB, json.dumps(given, ensure_ascii=False, indent=1).encode())
            return None
        for what in _changes(json.loads(found), given):
            raise InputError(f"{self.uri}: {what}; give --output a new folder")
        done = self._read(SUCCESS)
        if done is None:
            return None
        counts = json.loads(done)
        return Counts(counts["rows"], counts["bad_rows"])

    def bad_rows(self, name: str, number: int) -> int | None:
        """Number of bad rows of a complete part of an input; None if the part is not complete."""
        system, root = filesystem(self.uri)
        if system.get_file_info(f"{root}/{self._part(name, number)}").type != FileType.File:
            return None
        return (self._read(_error_part(name, number)) or b"").count(b"\n")

    def write(self, name: str, part: Part, computed: Sequence[Json]) -> int:
        """Write the results of a part of an input; returns the number of bad rows. Raises: OSError."""
        rows = [{"row": number, **result} for number, result in enumerate(computed, part.first)]
        errors = [{"source": place, **row} for (place, _), row in zip(part.rows, rows, strict=True) if "error" in row]
        if errors:
            self._write(_error_part(name, part.number), _lines(errors))
        self._write(self._part(name, part.number), self._encode(rows))
        return len(errors)

    def finish(self, counts: Mapping[InputFile, Counts]) -> None:
        """Write the errors and the counts of all inputs. Raises: OSError."""
        system, root = filesystem(self.uri)
        with _created(system, f"{root}/{ERRORS}") as stream:
            for file in counts:
                selector = FileSelector(f"{root}/{ERROR_PARTS}/{file.name}", allow_not_found=True)
                for info in sorted(system.get_file_info(selector), key=lambda info: info.path):
                    with system.open_input_stream(info.path) as part:
                        shutil.copyfileobj(part, stream)
        total = sum(counts.values(), Counts())
        inputs = [
            {"path": file.path, "results": f"{RESULTS}/{file.name}", "rows": found.rows, "bad_rows": found.bad_rows}
            for file, found in counts.items()
        ]
        if isinstance(system, LocalFileSystem):
            for left in Path(root).rglob(f".*{PARTIAL}"):  # of processes that were killed
                left.unlink(missing_ok=True)
        summary = {"rows": total.rows, "bad_rows": total.bad_rows, "inputs": inputs}
        self._write(SUCCESS, json.dumps(summary, ensure_ascii=False, indent=1).encode())
        if total.bad_rows:
            system.delete_dir(f"{root}/{ERROR_PARTS}")

    def _part(self, name: str, number: int) -> str:
        return f"{RESULTS}/{name}/part-{number:06d}.{self.format}"

    def _read(self, path: str) -> bytes | None:
        """Content of a file; None if there is none."""
        system, root = filesystem(self.uri)
        try:
            with system.open_input_stream(f"{root}/{path}") as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            return None
        return content

    def _write(self, path: str, content: bytes) -> None:
        system, root = filesystem(self.uri)
        with _created(system, f"{root}/{path}") as stream:
            stream.write(content)

    def _encode(self, rows: Sequence[Json]) -> bytes:
        """Rows in the format of the output."""
        if self.format == "jsonl":
            return _lines(rows)
        columns = {name: KINDS[kind] for name, kind in OPERATIONS[self.task].columns.items()}
        kinds = {"row": pyarrow.int64(), **columns, "error": KINDS[str]}
        table = [{name: _cell(row.get(name), kind) for name, kind in kinds.items()} for row in rows]
        if self.format == "csv":
            text = io.StringIO()
            writer = csv.DictWriter(text, list(kinds), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
            return text.getvalue().encode()
        packed = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(table, pyarrow.schema(list(kinds.items()))), packed)
        return packed.getvalue()


def compute_part(compute: Predict, output: Output, name: str, part: Part) -> int:
    """Compute and write a part unless it is complete; returns the number of its bad rows. Raises: OSError."""
    found = output.bad_rows(name, part.number)
    return output.write(name, part, [result for _, result in results(part.rows, compute)]) if found is None else found


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two jobs, for an error."""
    for key in new.keys() - {"inputs"}:
        if old.get(key) != new[key]:
            yield f"it was started with {key} = {json.dumps(old.get(key))}, not {json.dumps(new[key])}"
    before, now = ({file["path"]: file for file in job["inputs"]} for job in (old, new))
    for path in before.keys() | now.keys():
        if before.get(path) != now.get(path):
            change = "is missing" if path not in now else "is new" if path not in before else "has changed"
            yield f"the input {path} {change} since the start"


def _error_part(name: str, number: int) -> str:
    return f"{ERROR_PARTS}/{name}/part-{number:06d}.jsonl"


def _lines(rows: Sequence[Json]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _cell(value: Any, kind: Any) -> Any:
    """A value as a cell of a column."""
    if value is None or kind != KINDS[str] or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def _created(system: FileSystem, path: str) -> Iterator[Any]:
    """Open a new file that replaces an old one in one step, when it is complete."""
    if not isinstance(system, LocalFileSystem):
        stream = system.open_output_stream(path)
        yield stream
        stream.close()  # the object exists from here on
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
