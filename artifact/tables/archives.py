"""Recordings in the forms of the UEA and UCR archives: `.ts`, and TSV without a header."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from artifact.errors import InputError
from artifact.tables import streams
from artifact.tables.labelled import MOST_VALUES, VALUE, Contents, LabelledRecording, RecordingLayout, parse_values
from artifact.tables.series import NUMBER
from artifact.tables.streams import TextStream, name_of, opened, text_of
from artifact.tables.values import is_missing

FEWEST_VALUES = 8
"""Minimum length of the first recording of a TSV file without a header."""
FLAGS = {"true": True, "false": False}
Line = tuple[str, str]
"""Location and text of a line, without the spaces around it."""


class Header(NamedTuple):
    """Header of a `.ts` file."""

    dimensions: int | None
    """Number of channels; None if it is not told."""
    labels: tuple[str, ...] | None
    """Labels of the recordings; empty if they are not told, None if the recordings have none."""


def read_ts(path: Path, layout: RecordingLayout) -> Contents:
    """Read a `.ts` file of aeon, sktime and the UEA archive.

    A line holds a recording: the values of each channel, separated by commas, then its label, with colons in between.
    `?` stands for a missing value. See https://www.aeon-toolkit.org/en/stable/api_reference/file_specifications/ts.html

    Raises: InputError naming the line of a header or recording that cannot be read.
    """
    name = name_of(path)
    with opened(path) as raw:
        lines = _lines(text_of(raw, name, layout.encoding), name)
        header = _header(lines, name)
        if header.labels is None and layout.needs_labels:
            raise InputError(
                f"{name}: its recordings have no labels; expected @classLabel true, followed by the labels"
            )
        recordings, total = list[LabelledRecording](), 0
        for place, line in lines:
            recording = _recording(place, line, header, str(len(recordings) + 1))
            recordings.append(recording)
            header = header._replace(dimensions=recording.values.shape[1])
            if (total := total + recording.values.size) > MOST_VALUES:
                raise InputError(f"{place}: more than {MOST_VALUES:,} values")
    count = header.dimensions or 0
    return Contents((VALUE,) if count == 1 else tuple(f"c{number}" for number in range(1, count + 1)), recordings)


def _lines(stream: TextStream, name: str) -> Iterator[Line]:
    """Lines that are neither blank nor comments. Raises: InputError."""
    number, longest = 0, streams.LONGEST_ROW
    while line := stream.readline(longest):
        number += 1
        place = f"{name}:{number}"
        if len(line) == longest and not line.endswith(b"\n"):
            raise InputError(f"{place}: the line is longer than {longest} bytes")
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            raise InputError(f"{place}: {stream.not_decoded(number, error.start)}") from None
        if text and not text.startswith("#"):
            yield place, text


def _header(lines: Iterator[Line], name: str) -> Header:
    """Read the lines up to `@data`. Raises: InputError."""
    header = Header(None, None)
    for place, line in lines:
        key, *words = line.split()
        match key.lower():
            case "@data":
                return header
            case "@timestamps" if _flag(place, key, words):
                raise InputError(f"{place}: {key} true: values with times cannot be read; write them as a long table")
            case "@targetlabel" if _flag(place, key, words):
                raise InputError(f"{place}: {key} true: expected labels of classes, not numbers")
            case "@classlabel" if _flag(place, key, words):
                header = header._replace(labels=tuple(words[1:]))
            case "@univariate" if _flag(place, key, words):
                header = header._replace(dimensions=1)
            case "@dimensions" | "@dimension":
                header = header._replace(dimensions=_count(place, key, words))
            case other if not other.startswith("@"):
                raise InputError(f"{place}: expected a line of the header, which begins with @ or #, not {line[:40]!r}")
    raise InputError(f"{name}: expected a line @data before the recordings")


def _flag(place: str, key: str, words: list[str]) -> bool:
    """The value of a key that is true or false. Raises: InputError."""
    word = words[0] if words else ""
    if word.lower() not in FLAGS:
        raise InputError(f"{place}: {key} must be true or false, not {word!r}")
    return FLAGS[word.lower()]


def _count(place: str, key: str, words: list[str]) -> int:
    """The value of a key that is a positive integer. Raises: InputError."""
    word = words[0] if words else ""
    if not (word.isascii() and word.isdecimal() and int(word)):
        raise InputError(f"{place}: {key} must be a positive integer, not {word!r}")
    return int(word)


def _recording(place: str, line: str, header: Header, name: str) -> LabelledRecording:
    """The recording of a line. Raises: InputError."""
    parts, label = line.split(":"), ""
    if header.labels is not None:
        label = parts.pop().strip()
        if header.labels and label not in header.labels:
            raise InputError(f"{place}: the label must be one of {', '.join(header.labels)[:200]}, not {label[:40]!r}")
    if len(parts) != (header.dimensions or len(parts)) or not parts:
        after = "" if header.labels is None else " and a label"
        raise InputError(
            f"{place}: expected {header.dimensions or 1} channels{after}, not {len(parts)} channels{after}"
        )
    channels = [part.split(",") for part in parts]
    for number, cells in enumerate(channels, 1):
        if len(cells) != len(channels[0]):
            raise InputError(
                f"{place}: channel {number} has {len(cells)} values, channel 1 has {len(channels[0])}; the channels of "
                "a recording must be equally long"
            )
    values = [parse_values(cells, f"{place}, channel {number}") for number, cells in enumerate(channels, 1)]
    return LabelledRecording(place, name, np.stack(values, axis=1), label)


def read_ucr(path: Path, layout: RecordingLayout) -> Contents | None:
    """Read a TSV file of the UCR archive: no header, a line a recording, the label first. None if it is not one.

    The file is one if its first line holds nothing but a label that is a number and at least `FEWEST_VALUES` numbers.

    Raises: InputError naming the line of a recording that cannot be read.
    """
    name = name_of(path)
    with opened(path) as raw:
        recordings, total = list[LabelledRecording](), 0
        for place, line in _lines(text_of(raw, name, layout.encoding), name):
            label, *cells = line.split("\t")
            if not recordings and (len(cells) < FEWEST_VALUES or not _are_values([label, *cells])):
                return None
            values = parse_values(cells, place)[:, None]
            recordings.append(LabelledRecording(place, str(len(recordings) + 1), values, label.strip()))
            if (total := total + len(values)) > MOST_VALUES:
                raise InputError(f"{place}: more than {MOST_VALUES:,} values")
    return Contents((VALUE,), recordings)


def _are_values(cells: Sequence[str]) -> bool:
    """Whether cells are numbers, and not a header that counts the columns from 0 or 1."""
    are_numbers = all(NUMBER.fullmatch(cell.strip()) or is_missing(cell) for cell in cells)
    return are_numbers and not any(cells == [str(first + i) for i in range(len(cells))] for first in (0, 1))
