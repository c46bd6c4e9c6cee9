"""Tensors of the Open Inference Protocol on the wire: in JSON, or as binary data behind it (Triton's extension).

`Inference-Header-Content-Length` says where the JSON ends. A BYTES element stands behind its length, 4 bytes; all is
little-endian. Unknown fields are ignored. Used by `service.compat.oip.infer`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.responses import Response

from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from service.errors import MalformedInput, let_go
from service.wire.media import BINARY, JSON
from service.wire.requests import bound_tokens, check_count
from service.wire.schemas import MOST_TEXTS

HEAD_LENGTH = "Inference-Header-Content-Length"
MOST_TENSORS = 16
NUMBERS_AT_ONCE = 10_000
"""Written in less than a millisecond."""

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
]  # fmt: skip
DTYPES: Mapping[Datatype, np.dtype[Any]] = {"UINT8": np.dtype("u1"), "INT32": np.dtype("<i4"), "FP32": np.dtype("<f4")}
"""Of those that a model takes."""
Array = NDArray[Any]


def _instead_of_null(value: Any) -> BeforeValidator:
    """Some clients send null where others send nothing."""
    return BeforeValidator(lambda given: value if given is None else given)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, protected_namespaces=())


class InputParameters(_Part):
    """How a tensor comes."""

    binary_data_size: int | None = Field(default=None, ge=0)
    """Its bytes behind the JSON, after those of the inputs before it; instead of `data`."""


class InferInput(_Part):
    """A tensor of the request."""

    name: str
    datatype: Datatype
    shape: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=8, fail_fast=True)]
    parameters: Annotated[InputParameters, _instead_of_null(InputParameters())] = InputParameters()
    data: Any = None
    """Elements in row-major order, flat or nested."""


class OutputParameters(_Part):
    """How a tensor is wanted."""

    binary_data: bool | None = None
    """Behind the JSON, instead of in it; by default as `binary_data_output` says."""
    classification: int = Field(default=0, ge=0)
    """Of `scores`: so many of the best classes instead, as "value:index:label"."""


class InferOutput(_Part):
    """A tensor that is wanted."""

    name: str
    parameters: Annotated[OutputParameters, _instead_of_null(OutputParameters())] = OutputParameters()


class RequestParameters(_Part):
    """What is wanted of the request."""

    timeout: int = Field(default=0, ge=0, lt=2**63)
    """Its deadline in microseconds; 0 is that of the server."""
    binary_data_output: bool = False
    """Whether outputs come behind the JSON."""
    on_overflow: OnOverflow = "windows"
    """What happens beyond the model's length."""


class InferRequest(_Part):
    """The JSON of a request."""

    id: str | None = None
    """Comes back in the answer."""
    parameters: Annotated[RequestParameters, _instead_of_null(RequestParameters())] = RequestParameters()
    inputs: Annotated[list[InferInput], Field(max_length=MOST_TENSORS, fail_fast=True)]
    outputs: Annotated[list[InferOutput], Field(max_length=MOST_TENSORS, fail_fast=True), _instead_of_null([])] = []
    """All by default."""


Elements = Array | list[str] | InvalidInput
"""Of a tensor in the JSON: numbers in row-major order, null as NaN; strings; or what is wrong with them."""


@dataclass(frozen=True)
class Tensor:
    """An input as it came."""

    head: InferInput
    """Without its data."""
    elements: Elements | None
    """Its data in the JSON; None if they are binary."""
    raw: memoryview
    """Its binary data."""

    def numbers(self, datatype: Datatype, shape: Sequence[int]) -> Array:
        """Its numbers in their shape, null as NaN; binary data stay where they are.

        Args:
            datatype: that it has to be of.
            shape: that it has to have; -1 is any size.

        Raises: InvalidInput.

        """
        self._check(datatype, shape)
        dtype, given = DTYPES[datatype], self.head.shape
        if self.elements is None:
            if len(self.raw) != (size := math.prod(given) * dtype.itemsize):
                raise InvalidInput.at(
                    self.head.name, f"binary_data_size {len(self.raw)}; {size} is that of shape {given}"
                )
            return np.frombuffer(self.raw, dtype).reshape(given)
        if isinstance(self.elements, InvalidInput):
            raise self.elements
        assert isinstance(self.elements, np.ndarray)
        return self.elements.reshape(given)

    def strings(self, most: int) -> list[bytes]:
        """Its elements, of shape [n] or [n, 1]. Raises: InvalidInput; PayloadTooLarge if there are more than `most`."""
        self._check("BYTES", (-1, 1) if len(self.head.shape) == 2 else (-1,))
        name, count = self.head.name, self.head.shape[0]
        check_count(name, count, most)
        if isinstance(self.elements, InvalidInput):
            raise self.elements
        if self.elements is not None:
            return [text.encode() for text in self.elements]
        strings, at = [], 0
        for _ in range(count):
            first = at + 4
            at = first + int.from_bytes(self.raw[at:first], "little")
            strings.append(self.raw[first:at].tobytes())
        if at != len(self.raw):
            raise InvalidInput.at(
                name, f"its {len(self.raw)} bytes are not {count} elements, each behind its length (4 bytes)"
            )
        return strings

    def _check(self, datatype: Datatype, shape: Sequence[int]) -> None:
        """Compare datatype and shape with what is allowed."""
        given = self.head.shape
        if self.head.datatype != datatype:
            raise InvalidInput.at(self.head.name, f"datatype {self.head.datatype}; {datatype} is allowed")
        if len(given) != len(shape) or any(size not in (-1, has) for has, size in zip(given, shape, strict=True)):
            raise InvalidInput.at(self.head.name, f"shape {given}; {list(shape)} is allowed")


@dataclass(frozen=True)
class Head:
    """The JSON of a request, its data as arrays."""

    request: InferRequest
    """The inputs have no data."""
    elements: list[Elements | None]
    """Of each input; None if it has no data in the JSON."""


def split(body: bytes, head_length: str | None) -> tuple[bytes, memoryview]:
    """The JSON of a body, and the binary data behind it.

    Args:
        body: JSON, and the binary data of the inputs in their order.
        head_length: how long the JSON is; None if it is all.

    Raises: MalformedInput.

    """
    end = len(body)
    if head_length is not None:
        if not re.fullmatch("[0-9]{1,15}", head_length) or int(head_length) > end:
            raise MalformedInput(f"{HEAD_LENGTH} must be a number up to {end}, the length of the body")
        end = int(head_length)
    return (body if end == len(body) else body[:end]), memoryview(body)[end:]


def parse_head(head: bytes) -> Head:
    """Check the JSON of a request. Raises: MalformedInput, InvalidInput, PayloadTooLarge."""
    bound_tokens(head)
    try:
        asked = InferRequest.model_validate(orjson.loads(head))
    except orjson.JSONDecodeError:
        raise MalformedInput("the body is not valid JSON in UTF-8") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise InvalidInput.at(".".join(map(str, first["loc"])) or "body", first["msg"]) from None
    elements = [_elements(given) for given in asked.inputs]
    inputs = [given.model_copy(update={"data": None}) for given in asked.inputs]
    return Head(asked.model_copy(update={"inputs": inputs}), elements)


def tensors_of(head: Head, binary: memoryview) -> dict[str, Tensor]:
    """Inputs by name, those behind the JSON with their part of the binary data. Raises: InvalidInput."""
    tensors, begin = dict[str, Tensor](), 0
    for number, (given, elements) in enumerate(zip(head.request.inputs, head.elements, strict=True)):
        place, size = f"inputs.{number}", given.parameters.binary_data_size
        if given.name in tensors:
            raise InvalidInput.at(place, "an input of this name stands before it")
        if size is not None:
            if elements is not None:
                raise InvalidInput.at(place, "data and binary_data_size exclude each other")
            if size > len(binary) - begin:
                raise InvalidInput.at(
                    place, f"binary_data_size {size}; behind the JSON {len(binary) - begin} bytes are left for it"
                )
        elif elements is None:
            elements = InvalidInput.at(given.name, "neither a list as data nor a binary_data_size")
        end = begin + (size or 0)
        tensors[given.name] = Tensor(given, elements, binary[begin:end])
        begin = end
    if begin < len(binary):
        raise InvalidInput.at("inputs", f"the last {len(binary) - begin} bytes of the body belong to none")
    return tensors


def _elements(given: InferInput) -> Elements | None:
    """The data of an input in the JSON, of a datatype that a model takes."""
    if given.data is None:
        return None
    types: Mapping[str, tuple[type, ...]] = {"BYTES": (str,), "FP32": (int, float, type(None))}
    try:
        flat = _flatten(given, *types.get(given.datatype, (int,)))
    except InvalidInput as error:
        let_go(error)
        return error
    if given.datatype == "BYTES":
        if len(flat) > MOST_TEXTS:
            return InvalidInput.at(given.name, f"{len(flat)} elements; at most {MOST_TEXTS} in one request")
        return flat
    if given.datatype not in DTYPES:
        return np.empty(0)  # no model takes it, which is told when the model is known
    if given.datatype == "FP32":  # JSON holds more than float32 can; the task says what is too large
        return np.array(flat, float)
    try:
        return np.array(flat, DTYPES[given.datatype])
    except OverflowError:
        limits = np.iinfo(DTYPES[given.datatype])
        return InvalidInput.at(given.name, f"an element is out of range; {limits.min} to {limits.max} is allowed")


def _flatten(given: InferInput, *types: type) -> list[Any]:
    """Elements in the JSON, which are flat or nested as the shape is. Raises: InvalidInput."""
    name, shape, level = given.name, given.shape, given.data
    if not isinstance(level, list):
        raise InvalidInput.at(name, "neither a list as data nor a binary_data_size")
    is_nested = bool(level) and isinstance(level[0], list)
    for size in shape[1:] if is_nested else ():
        if any(not isinstance(part, list) or len(part) != size for part in level):
            raise InvalidInput.at(name, f"data are not nested as shape {shape} is")
        level = list(chain.from_iterable(level))
    if len(level) != (count := math.prod(shape)):
        raise InvalidInput.at(name, f"{len(level)} elements; {count} is the number of shape {shape}")
    if others := set(map(type, level)).difference(types):
        received = ", ".join(sorted(other.__name__ for other in others))
        raise InvalidInput.at(name, f"elements of type {received}; {given.datatype} is allowed")
    return level


def respond(content: dict[str, Any], outputs: Sequence[tuple[str, Array, bool]]) -> Response:
    """An answer with its tensors.

    Args:
        content: what stands before them.
        outputs: name, float32 numbers or strings as objects, whether as binary data.

    """
    described, parts = list[dict[str, Any]](), list[bytes]()
    for name, values, is_binary in outputs:
        is_text = values.dtype == object
        tensor: dict[str, Any] = {"name": name, "datatype": "BYTES" if is_text else "FP32", "shape": list(values.shape)}
        if is_binary:
            parts.append(_pack(values) if is_text else values.tobytes())
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = values.ravel().tolist() if is_text else _written(values.ravel())
        described.append(tensor)
    head = orjson.dumps({**content, "outputs": described})
    if not parts:
        return Response(head, media_type=JSON)
    return Response(b"".join((head, *parts)), media_type=BINARY, headers={HEAD_LENGTH: str(len(head))})


def _written(values: Array) -> orjson.Fragment:
    """Numbers as JSON, part by part: to write all in one call would keep the interpreter for long."""
    parts = (values[first : first + NUMBERS_AT_ONCE] for first in range(0, len(values), NUMBERS_AT_ONCE))
    written = (orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for part in parts)
    return orjson.Fragment(b"[" + b",".join(written) + b"]")


def _pack(values: Array) -> bytes:
    """Strings as binary data."""
    encoded = [text.encode() for text in values.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)
