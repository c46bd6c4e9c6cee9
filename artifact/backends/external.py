"""Reject ONNX files with weights in files that the manifest's hashes do not cover. Used by `artifact.backends.onnx`.

A minimal protobuf reader visits the messages of onnx.proto3 that can contain tensors and skips all other fields.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from artifact.errors import BadExport

Message = Literal["model", "training", "graph", "function", "node", "attribute", "sparse", "tensor"]

PARTS: dict[Message, dict[int, Message]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""Message -> number of each field that can contain a tensor -> type of that field."""
EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of TensorProto."""
SHOWN = 100
"""Maximum number of characters of a name in an error."""
FIXED_BYTES = {1: 8, 5: 4}
"""Protobuf wire type -> size of its fixed-length values."""


def refuse_external_data(path: Path, covered: Collection[str] = ()) -> None:
    """Check that a file holds all its tensors, or that they are in the files named `covered`, in the same folder.

    Raises: BadExport if a tensor is in another file, or the file is not ONNX.
    """
    try:
        places = set(_external(memoryview(path.read_bytes()), "model"))
    except (ValueError, RecursionError):
        raise BadExport(f"{path.name} cannot be loaded: it is not an ONNX file", "backend") from None
    refuse_other_files(path, places, covered)


def refuse_other_files(path: Path, places: set[str], covered: Collection[str]) -> None:
    """Check that the files from which a model file takes weights are covered. Raises: BadExport."""
    if others := places - set(covered):
        allowed = " or ".join(("the file itself", *sorted(covered)))
        found = repr(min(others)[:SHOWN]) + (f" and {len(others) - 1} more" if len(others) > 1 else "")
        raise BadExport(f"{path.name} takes weights from {found}; allowed: {allowed}", "backend")


def _external(content: memoryview, message: Message) -> Iterator[str]:
    """Yield the file of each external tensor in a message, "" if it does not name one. Raises: ValueError.

    `data_location` and `external_data` must have the types that onnx.proto3 gives them; other fields of an unexpected
    type are skipped, as other parsers do.
    """
    parts, places, is_external = PARTS[message], list[str](), False
    for number, value in _fields(content):
        if message == "tensor" and number == EXTERNAL_DATA:
            is_external = True
            places += _locations(value)
        elif message == "tensor" and number == DATA_LOCATION:
            if isinstance(value, memoryview):
                raise ValueError("data_location is not a number")
            is_external |= value != 0
        elif isinstance(value, memoryview) and number in parts:
            yield from _external(value, parts[number])
    if is_external:
        yield places[0] if len(places) == 1 else ""


def _locations(entry: int | memoryview) -> list[str]:
    """The file that an entry (key, value) of a tensor's external data names, if it does. Raises: ValueError."""
    fields = list(_fields(entry)) if isinstance(entry, memoryview) else []
    texts = [bytes(value).decode() for _, value in fields if isinstance(value, memoryview)]
    if [number for number, _ in fields] != [1, 2] or len(texts) != 2:
        raise ValueError("an entry of external_data is not one key and one value")
    return texts[1:] if texts[0] == "location" else []


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field, 0 in place of a fixed-length value. Raises: ValueError."""
    offset = 0
    while offset < len(content):
        key, offset = _varint(content, offset)
        if not 8 <= key < 2**32:  # no field has the number 0; other parsers truncate a key to 32 bits
            raise ValueError("no such field")
        value: int | memoryview = 0
        if (wire := key & 7) == 0:
            value, offset = _varint(content, offset)
        elif wire == 2:
            size, offset = _varint(content, offset)
            value = content[offset : offset + size]
            offset += size
        elif wire in FIXED_BYTES:
            offset += FIXED_BYTES[wire]
        else:
            raise ValueError("no such wire type")
        if offset > len(content):
            raise ValueError("cut off")
        yield key >> 3, value


def _varint(content: memoryview, offset: int) -> tuple[int, int]:
    """Decode a varint; returns its value and the offset after it. Raises: ValueError."""
    value = 0
    for index, byte in enumerate(content[offset : offset + 10]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, offset + index + 1
    raise ValueError("varint too long")
