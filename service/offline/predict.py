"""`python -m service predict`: files -> JSON lines, in the format of the server's responses."""

import csv
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tqdm import tqdm

import artifact
from artifact.encodings import RAW, is_utf8, not_utf8
from artifact.errors import InputError
from artifact.local import Json, Model
from artifact.series import PLAIN, Layout
from artifact.tables.rates import SAME_RATE
from artifact.tables.reading import Source, Values
from artifact.tables.recordings import RecordingLayout, read_recordings
from artifact.tables.streams import name_of
from artifact.tables.table import BadRow
from artifact.tables.timeline import read_timeline
from artifact.tasks.any_series import AnySeries
from artifact.tasks.forecasting import ForecasterManifest, Forecasting
from artifact.tasks.series_classification import SeriesClassification
from service.offline.compute import (
    RECORDING,
    PredictOptions,
    choose_encoding,
    choose_fields,
    choose_operation,
    prepare,
    results,
)
from service.offline.files import read_inputs, read_rows, table_kind
from service.offline.forecasts import forecast_table


@dataclass(frozen=True)
class PredictFiles:
    """The files that a command names, in one of three ways."""

    files: Sequence[Path] = ()
    jsonl: Path | None = None
    csv: Path | None = None
    layout: Layout = PLAIN
    """How tables hold series, where it differs from the training data."""


def predict(export: Path, inputs: PredictFiles, options: PredictOptions) -> int:
    """Print a line of JSON for every input; return the exit code, 1 if any input was invalid.

    A forecaster of any series prints its forecast as a table of the same layout as that of the one file.
    For an invalid input, the line has the error. If the reader of the output closes it, as `head` does, the rest of the
    inputs is not read.

    Raises: BadExport; InputError for a file that cannot be read, or an option that does not suit the model's task.
    """
    model = artifact.load(export)
    try:
        if isinstance(model.task, AnySeries):
            _print_table(model, inputs, options)
            return 0
        failed = _print(_results(model, inputs, options))
    except BrokenPipeError:
        # Python flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 1 if failed else 0


def _print_table(model: Model, inputs: PredictFiles, options: PredictOptions) -> None:
    """Print the forecast of the series of one file as CSV. Raises: InputError."""
    paths = inputs.files or [path for path in (inputs.csv,) if path is not None]
    if len(paths) != 1 or options.text_column:
        message = "forecasts series: give one CSV file with a column for each series, or with their names in a column"
        raise InputError(f"{model.manifest.name} {message}")
    layout = replace(inputs.layout, encoding=choose_encoding(model.task, options))
    table = forecast_table(model, paths[0], layout, options)
    for note in table.notes:
        print(f"{paths[0]}: {note}", file=sys.stderr)
    csv.writer(sys.stdout, lineterminator="\n").writerows(table.rows)
    sys.stdout.flush()


def _print(found: Iterator[Source[Json]]) -> int:
    """Print every result; returns the number of invalid inputs."""
    failed = 0
    for place, result in tqdm(found, unit="doc", file=sys.stderr, disable=None):
        print(json.dumps({"source": place, **result}, ensure_ascii=False))
        failed += "error" in result
    sys.stdout.flush()
    return failed


def _results(model: Model, inputs: PredictFiles, options: PredictOptions) -> Iterator[Source[Json]]:
    """Results of the inputs that the options select."""
    task, manifest = model.task, model.manifest
    operation = choose_operation(task)
    if isinstance(task, Forecasting) and (inputs.jsonl is not None or options.text_column):
        raise InputError(f"{manifest.name} forecasts series: give CSV files with its channels as columns")
    fields, encoding = choose_fields(operation, options, task), choose_encoding(task, options)
    compute = prepare(model, operation, fields, options)
    paths = inputs.files or [path for path in (inputs.csv,) if path is not None]
    if isinstance(task, Forecasting):
        if inputs.layout.frequency:
            raise InputError(f"{manifest.name} expects one value every {task.manifest.frequency}; omit --frequency")
        series = layout_of(task.manifest, inputs.layout, encoding)
        return results(((name_of(path), (read_channels(path, series),)) for path in paths), compute)
    if isinstance(task, SeriesClassification) and inputs.jsonl is None:
        if options.text_column:
            raise InputError(f"{manifest.name} classifies series: --text-column is for --jsonl")
        layout = _recordings_layout(task, inputs.layout, options, encoding)
        return _classified(model, paths, layout, options)
    if inputs.layout != PLAIN:
        raise InputError(f"{manifest.name} reads no tables of series: --time-column and the like are for these")
    if inputs.jsonl is not None:
        return results(read_rows(inputs.jsonl, fields, encoding, ".jsonl"), compute)
    if inputs.csv is not None:
        return results(read_rows(inputs.csv, fields, encoding, table_kind(inputs.csv)), compute)
    found = read_inputs(inputs.files, fields, encoding)
    return results(found if encoding == RAW else _telling(found), compute)


def _recordings_layout(
    task: SeriesClassification, given: Layout, options: PredictOptions, encoding: str
) -> RecordingLayout:
    """How files hold the recordings of a model. Raises: InputError for an option that they do not have."""
    for option, value in (("--target-column", given.target_column), ("--frequency", given.frequency)):
        if value:
            raise InputError(f"{task.manifest.name} classifies series: {option} is for forecasts")
    return RecordingLayout(
        id_column=given.id_column,
        time_column=given.time_column,
        usual_id=task.manifest.id_column,
        usual_time=task.manifest.time_column,
        channels=task.manifest.channels,
        rate=options.rate,
        encoding=encoding,
        day_first=given.day_first or task.manifest.day_first,
        needs_labels=False,
    )


def _classified(
    model: Model, paths: Iterable[Path], layout: RecordingLayout, options: PredictOptions
) -> Iterator[Source[Json]]:
    """Results of the recordings in files and folders, with their names. Raises: InputError."""
    assert isinstance(model.task, SeriesClassification)
    for path in paths:
        file = read_recordings(path, layout)
        for note in file.notes:
            print(f"{path}: {note}", file=sys.stderr)
        rate, own = file.rate, model.task.manifest.rate
        if own is None or (rate is not None and abs(rate / own - 1) <= SAME_RATE):  # as in training
            rate = own
        compute = prepare(model, "classify", RECORDING, replace(options, rate=rate))
        rows = (
            (recording.place, (dict(zip(file.channels, recording.values.T, strict=True)),))
            for recording in file.recordings
        )
        for recording, (place, result) in zip(file.recordings, results(rows, compute), strict=True):
            yield place, {"recording": recording.name, **result}


def _telling(rows: Iterable[Source[Values | BadRow]]) -> Iterator[Source[Values | BadRow]]:
    """Yield the rows; at the end, tell on standard error how many texts are not UTF-8."""
    count, first = 0, ""
    for place, row in rows:
        if not isinstance(row, BadRow) and not all(is_utf8(text) for text in row if isinstance(text, bytes)):
            count, first = count + 1, first or place
        yield place, row
    if count:
        print(not_utf8(count, first), file=sys.stderr)


def layout_of(manifest: ForecasterManifest, given: Layout, encoding: str) -> Layout:
    """How tables hold the series of a model: as in training, except where options differ."""
    changes = {name: value for name, value in asdict(given).items() if value}
    layout = replace(manifest.layout, **changes)
    return replace(layout, channels=manifest.channels, frequency=manifest.frequency, encoding=encoding)


def read_channels(path: Path, layout: Layout) -> dict[str, list[float | None]]:
    """The channels of a model, from a table; prints what the user should know about it. Raises: InputError."""
    timeline = read_timeline(path, layout, fill=True)
    for note in timeline.notes:
        print(f"{path}: {note}", file=sys.stderr)
    return {
        name: [None if math.isnan(value) else value for value in column]
        for name, column in zip(timeline.channels, timeline.values.T.tolist(), strict=True)
    }
