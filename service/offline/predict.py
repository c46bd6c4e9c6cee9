"""`python -m service predict`: files -> JSON lines, in the format of the server's responses."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from tqdm import tqdm

import artifact
from artifact.errors import InvalidInput, LongdocError
from artifact.local import Model, Result
from artifact.manifest import ClassifierManifest, MatcherManifest
from service.offline.files import InputError, Source, columns, rows, texts

CHUNK = 64
"""Inputs computed together."""
Compute = Callable[[Sequence[Any]], list[Result]]
"""Inputs -> results; raises LongdocError if an input is invalid."""


def predict(args: argparse.Namespace) -> int:
    """Print a line of JSON for every input; return the exit code, 1 if any input was invalid.

    For an invalid input, the line has the error. If the reader of the output closes it, as `head` does, the rest of the
    inputs is not read.

    Raises: BadExport; InputError for a file that cannot be read, or an option that does not suit the model's task.
    """
    model = artifact.load(args.export)
    inputs, compute = _prepare(model, args)
    try:
        failed = _print_results(inputs, compute)
    except BrokenPipeError:
        # Python flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 1 if failed else 0


def _print_results(inputs: Iterator[Source[Any]], compute: Compute) -> int:
    """Print the result of every input; returns the number of invalid inputs."""
    failed = 0
    with tqdm(unit="doc", file=sys.stderr, disable=None) as bar:
        while chunk := list(islice(inputs, CHUNK)):
            results = _compute_each(compute, [given for _, given in chunk])
            for (place, _), result in zip(chunk, results, strict=True):
                print(json.dumps({"source": place, **result}, ensure_ascii=False))
                failed += "error" in result
            bar.update(len(chunk))
    sys.stdout.flush()
    return failed


def _compute_each(compute: Compute, inputs: list[Any]) -> list[Result]:
    """Results of all inputs; if one of them is invalid, each is computed alone."""
    try:
        return compute(inputs)
    except LongdocError as error:
        if len(inputs) > 1:
            return [result for given in inputs for result in _compute_each(compute, [given])]
        return [{"error": {"code": error.code, "detail": str(error)}}]


def _prepare(model: Model, args: argparse.Namespace) -> tuple[Iterator[Source[Any]], Compute]:
    """The inputs that the options select, and the function that computes their results."""
    name, on_overflow = model.manifest.name, args.on_overflow
    if isinstance(model.manifest, ClassifierManifest):
        fields = _fields(args, ("text",), name)
        documents: Iterator[Source[Any]] = ((place, text) for place, (text,) in _sources(args, fields))
        return documents, lambda chunk: model.classify(chunk, on_overflow=on_overflow, detail=args.detail)
    if isinstance(model.manifest, MatcherManifest):
        fields = _fields(args, ("a", "b"), name)
        places = {f"pairs.0.{number}": field for number, field in enumerate(fields)}

        def score(chunk: Sequence[Any]) -> list[Result]:
            try:
                return model.score(chunk, on_overflow=on_overflow)
            except InvalidInput as error:  # of a single pair: name the documents by their fields
                raise error.renamed(lambda place: places.get(place, place)) from None

        return _sources(args, fields), score
    if args.jsonl is not None or args.text_column:
        raise InputError(f"{name} forecasts series: give CSV files with its channels as columns")
    try:
        model.check_forecast(args.horizon, args.quantiles)
    except InvalidInput as error:
        raise InputError(f"--{error}") from None
    channels = model.manifest.channels
    return (
        ((str(path), columns(path, channels)) for path in args.files or [args.csv]),
        lambda chunk: [model.forecast(series, horizon=args.horizon, quantiles=args.quantiles) for series in chunk],
    )


def _sources(args: argparse.Namespace, fields: tuple[str, ...]) -> Iterator[Source[tuple[bytes, ...]]]:
    """Location and texts of each input in the files that the options name."""
    return texts(args.files, fields) if args.files else rows(args.jsonl, args.csv, fields)


def _fields(args: argparse.Namespace, default: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Columns with the documents: --text-column, or `default`. Raises: InputError if their numbers differ."""
    fields = tuple(args.text_column or default)
    if len(fields) != len(default):
        raise InputError(f"--text-column: {name} needs {len(default)}, not {len(fields)}: {' '.join(fields)}")
    return fields
