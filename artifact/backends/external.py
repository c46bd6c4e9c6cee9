"""Whether an ONNX file keeps tensors outside itself, where no hash covers them. Used by `artifact.backends.onnx`.

Only the few messages of the format that lead to tensors are read (onnx.proto3); what they hold is skipped.
"""

from collections.abc import Iterator
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
"""Numbers of the fields that may lead to a tensor, and what they hold."""
EXTERNAL_FIELDS = frozenset({13, 14})
"""Of a tensor: where its data lies, and that it lies elsewhere."""
FIXED_BYTES = {1: 8, 5: 4}
"""Length of the values of these wire types."""


def refuse_external_data(path: Path) -> None:
    """Look through every tensor of a file. Raises: BadExport if one lies elsewhere, or the file is not ONNX."""
    try:
        is_external = _is_external(memoryview(path.read_bytes()), "model")
    except (ValueError, RecursionError):
        raise BadExport(f"{path.name} cannot be loaded: it is not an ONNX file", "backend") from None
    if is_external:
        raise BadExport(f"{path.name} keeps weights in another file; export it with the weights inside", "backend")


def _is_external(content: memoryview, message: Message) -> bool:
    """Whether a message holds a tensor that lies elsewhere. Raises: ValueError."""
    parts = PARTS[message]
    for number, value in _fields(content):
        if message == "tensor" and number in EXTERNAL_FIELDS and value != 0:
            return True
        if isinstance(value, memoryview) and number in parts and _is_external(value, parts[number]):
            return True
    return False


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field; of one with a fixed length, 0. Raises: ValueError."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        if key >= 2**32:  # others would read it as a smaller one
            raise ValueError("no such field")
        value: int | memoryview = 0
        if (wire := key & 7) == 0:
            value, place = _varint(content, place)
        elif wire == 2:
            size, place = _varint(content, place)
            value = content[place : place + size]
            place += size
        elif wire in FIXED_BYTES:
            place += FIXED_BYTES[wire]
        else:
            raise ValueError("no such wire type")
        if place > len(content):
            raise ValueError("cut off")
        yield key >> 3, value


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    """An integer, and the place behind it. Raises: ValueError."""
    value = 0
    for index, byte in enumerate(content[place : place + 10]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, place + index + 1
    raise ValueError("an integer without end")
