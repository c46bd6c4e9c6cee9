"""`python -m service predict`: files -> JSON lines, in the format of the server's responses."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

import artifact
from artifact.local import Model, Result
from artifact.manifest import ForecasterManifest
from service.offline.compute import Options, choose_fields, choose_task, prepare, results
from service.offline.files import InputError, Source, Values, columns, rows, texts


@dataclass(frozen=True)
class Inputs:
    """The files that a command names: one of the three."""

    files: Sequence[Path] = ()
    jsonl: Path | None = None
    csv: Path | None = None


def predict(export: Path, inputs: Inputs, options: Options) -> int:
    """Print a line of JSON for every input; return the exit code, 1 if any input was invalid.

    For an invalid input, the line has the error. If the reader of the output closes it, as `head` does, the rest of the
    inputs is not read.

    Raises: BadExport; InputError for a file that cannot be read, or an option that does not suit the model's task.
    """
    found = _results(artifact.load(export), inputs, options)
    try:
        failed = _print(found)
    except BrokenPipeError:
        # Python flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 1 if failed else 0


def _print(found: Iterator[Source[Result]]) -> int:
    """Print every result; returns the number of invalid inputs."""
    failed = 0
    for place, result in tqdm(found, unit="doc", file=sys.stderr, disable=None):
        print(json.dumps({"source": place, **result}, ensure_ascii=False))
        failed += "error" in result
    sys.stdout.flush()
    return failed


def _results(model: Model, inputs: Inputs, options: Options) -> Iterator[Source[Result]]:
    """Results of the inputs that the options select."""
    manifest = model.manifest
    task = choose_task(manifest)
    if isinstance(manifest, ForecasterManifest) and (inputs.jsonl is not None or options.text_column):
        raise InputError(f"{manifest.name} forecasts series: give CSV files with its channels as columns")
    fields = choose_fields(task, options, manifest.name)
    compute = prepare(model, task, fields, options)
    if isinstance(manifest, ForecasterManifest):
        paths = inputs.files or [path for path in (inputs.csv,) if path is not None]
        series: Iterator[Source[Values]] = ((str(path), (columns(path, manifest.channels),)) for path in paths)
        return results(series, compute)
    found = texts(inputs.files, fields) if inputs.files else rows(inputs.jsonl, inputs.csv, fields)
    return results(found, compute)
