"""`python -m service predict`: files -> JSON lines, with the server's answers."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from tqdm import tqdm

import artifact
from artifact.errors import InvalidInput, LongdocError
from artifact.local import Model, Result
from artifact.manifest import ClassifierManifest, MatcherManifest
from service.offline.files import InputError, Source, columns, read, rows

CHUNK = 64
"""Inputs that are answered together."""

PAIR = {"pairs.0.0": "a", "pairs.0.1": "b"}
"""Place of a document in a pair that is asked alone -> name of its field."""
Answer = Callable[[Sequence[Any]], list[Result]]
"""Inputs -> their answers; raises LongdocError if one of them has none."""


def predict(args: argparse.Namespace) -> int:
    """Answer every input; a bad one becomes a line with its error, and the exit code is 1.

    Raises: BadExport; InputError for a file that cannot be read, or that the model's task has no use for.
    """
    model = artifact.load(args.export)
    inputs, answer = _task(model, args)
    failed = 0
    with tqdm(unit="doc", file=sys.stderr) as bar:
        while chunk := list(islice(inputs, CHUNK)):
            answers = _answer_each(answer, [given for _, given in chunk])
            for (place, _), result in zip(chunk, answers, strict=True):
                print(json.dumps({"source": place, **result}, ensure_ascii=False))
                failed += "error" in result
            bar.update(len(chunk))
    return 1 if failed else 0


def _answer_each(answer: Answer, inputs: list[Any]) -> list[Result]:
    """Answers of all inputs; where one of them is bad, each is asked alone."""
    try:
        return answer(inputs)
    except LongdocError as error:
        if len(inputs) > 1:
            return [result for given in inputs for result in _answer_each(answer, [given])]
        return [{"error": {"code": error.code, "detail": str(error)}}]


def _task(model: Model, args: argparse.Namespace) -> tuple[Iterator[Source[Any]], Answer]:
    """Inputs of the source that was named, and what answers them."""
    name, on_overflow = model.manifest.name, args.on_overflow
    if isinstance(model.manifest, ClassifierManifest):
        documents: Iterator[Source[Any]] = (
            ((str(path), read(path)) for path in args.files)
            if args.files
            else ((place, text) for place, (text,) in rows(args.jsonl, args.csv, ("text",)))
        )
        return documents, lambda chunk: model.classify(chunk, on_overflow=on_overflow, detail=args.detail)
    if isinstance(model.manifest, MatcherManifest):
        if args.files:
            raise InputError(f"{name} scores pairs: give --jsonl or --csv with the fields a and b")

        def score(chunk: Sequence[Any]) -> list[Result]:
            try:
                return model.score(chunk, on_overflow=on_overflow)
            except InvalidInput as error:  # where it is one pair, its documents have the names of their fields
                raise error.renamed(lambda place: PAIR.get(place, place)) from None

        return rows(args.jsonl, args.csv, ("a", "b")), score
    if args.jsonl is not None:
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
