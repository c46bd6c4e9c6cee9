"""`python -m service predict`: files -> JSON lines, by the same engine as the server. Called by `__main__`."""

import argparse
import asyncio
import csv
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from service.engine import Engine
from service.errors import ServiceError
from service.exports import load_export
from service.manifest import newest_version
from service.metrics import Metrics
from service.routes.classify import describe
from service.schemas import ClassifyOptions
from service.settings import Settings
from service.tasks.classification import classify

csv.field_size_limit(2**31 - 1)

CHUNK = 64
"""Documents of one request to the engine."""
NO_DEADLINE_S = 1e6


class InputError(Exception):
    """A file or row that cannot be read; one line that names its place."""


Document = tuple[str, bytes]
"""Where it stands, and its bytes."""


def predict(args: argparse.Namespace) -> int:
    """Classify every document; a bad one becomes a line with its error, and the exit code is 1.

    Raises: BadExport; InputError for a file that cannot be read.
    """
    model = load_export(newest_version(args.export))
    documents = _documents(args)
    options = ClassifyOptions(on_overflow=args.on_overflow, detail=args.detail)
    # A chunk of the longest documents must find room; the variables of the server have no say here.
    settings = Settings.model_construct(max_queue_rows=sys.maxsize, max_queue_bytes=sys.maxsize)
    failed = asyncio.run(_predict(Engine([model], settings, Metrics()), documents, options))
    return 1 if failed else 0


async def _predict(engine: Engine, documents: Iterator[Document], options: ClassifyOptions) -> int:
    """Classify in chunks; returns the number of documents that failed."""
    (model,) = engine.models.values()
    failed = 0
    with tqdm(unit="doc", file=sys.stderr) as bar:
        while chunk := list(islice(documents, CHUNK)):
            results = await asyncio.gather(
                *(
                    classify(
                        model,
                        [document],
                        on_overflow=options.on_overflow,
                        deadline=asyncio.get_running_loop().time() + NO_DEADLINE_S,
                    )
                    for _, document in chunk
                ),
                return_exceptions=True,
            )
            for (place, _), result in zip(chunk, results, strict=True):
                line: dict[str, object] = {"source": place}
                if isinstance(result, ServiceError):
                    failed += 1
                    line["error"] = {"code": result.code, "detail": str(result)}
                elif isinstance(result, BaseException):
                    raise result
                else:
                    line |= describe(result[0][0], model.manifest.labels, options)
                print(json.dumps(line, ensure_ascii=False))
            bar.update(len(chunk))
    engine.close()
    return failed


def _documents(args: argparse.Namespace) -> Iterator[Document]:
    """Documents of the source that was named."""
    if args.jsonl is not None:
        return _jsonl(args.jsonl)
    if args.csv is not None:
        return _csv(args.csv)
    return ((str(path), _read(path)) for path in args.files)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _jsonl(path: Path) -> Iterator[Document]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}:{number}", _text(line, f"{path}:{number}")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _text(line: bytes, place: str) -> bytes:
    try:
        text: bytes = json.loads(line)["text"].encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(f"{place}: expected a JSON object with a string `text`") from None
    return text


def _csv(path: Path) -> Iterator[Document]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            if "text" not in (reader.fieldnames or []):
                raise InputError(f"{path}:1: no column `text`")
            for row in reader:
                yield f"{path}:{reader.line_num}", (row["text"] or "").encode()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from None
