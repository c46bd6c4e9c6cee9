"""Tensors of the Open Inference Protocol, in JSON or as binary data after the JSON (Triton's extension).

The header `Inference-Header-Content-Length` is the length of the JSON; 0 if the body is one item of the only input
(Triton's raw binary request). Binary data is little-endian; each BYTES element is preceded by its length in 4 bytes.
Unknown fields are ignored. Used by `service.compat.oip.infer`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.responses import Response

from artifact.arrays import Array
from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.tasks.base import Tensor
from service.errors import MalformedInput, clear_tracebacks
from service.wire.media import BINARY, JSON
from service.wire.parsing import check_count, check_tokens, invalid, malformed
from service.wire.schemas import MAX_TEXTS

HEAD_LENGTH = "Inference-Header-Content-Length"
MAX_TENSORS = 16
MAX_LEVELS = 1024
"""Maximum depth of JSON that orjson parses."""
NUMBERS_AT_ONCE = 10_000
"""Numbers serialized in one call, which takes less than 1 ms."""

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
]  # fmt: skip
DTYPES: Mapping[Datatype, np.dtype[Any]] = {
    "UINT8": np.dtype("u1"),
    "INT32": np.dtype("<i4"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""NumPy types of the numeric inputs that models accept."""
ALLOWED: Mapping[Datatype, tuple[Datatype, ...]] = {"FP32": ("FP32", "FP64")}
"""Datatypes that are accepted for an input of a datatype; by default only itself. FP64 is NumPy's default."""


def _instead_of_null(value: Any) -> BeforeValidator:
    """Treat null as a missing value: some clients send null for optional fields."""
    return BeforeValidator(lambda given: value if given is None else given)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, protected_namespaces=())


class InputParameters(_Part):
    """Parameters of an input."""

    binary_data_size: int | None = Field(default=None, ge=0)
    """Number of bytes of this input in the binary data, instead of `data`; inputs are in order."""


class InferInput(_Part):
    """An input tensor."""

    name: str
    datatype: Datatype
    shape: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=8, fail_fast=True)]
    parameters: Annotated[InputParameters, _instead_of_null(InputParameters())] = InputParameters()
    data: Any = None
    """Elements in row-major order, flat or nested."""


class OutputParameters(_Part):
    """Parameters of an output."""

    binary_data: bool | None = None
    """Whether to return binary data instead of JSON; by default as in `binary_data_output`."""
    classification: int = Field(default=0, ge=0)
    """For `scores`: return this number of best classes instead, as "value:index:label"."""


class InferOutput(_Part):
    """A requested output tensor."""

    name: str
    parameters: Annotated[OutputParameters, _instead_of_null(OutputParameters())] = OutputParameters()


class RequestParameters(_Part):
    """Parameters of the request."""

    timeout: int = Field(default=0, ge=0, lt=2**63)
    """Deadline in microseconds; 0 means the server's."""
    binary_data_output: bool = False
    """Whether to return all outputs as binary data."""
    on_overflow: OnOverflow = "windows"
    """How to read documents longer than the model reads."""


class InferRequest(_Part):
    """The JSON part of a request."""

    id: str | None = None
    """Returned in the response."""
    parameters: Annotated[RequestParameters, _instead_of_null(RequestParameters())] = RequestParameters()
    inputs: Annotated[list[InferInput], Field(max_length=MAX_TENSORS, fail_fast=True)]
    outputs: Annotated[list[InferOutput], Field(max_length=MAX_TENSORS, fail_fast=True), _instead_of_null([])] = []
    """By default all."""


Elements = Array | list[str] | InvalidInput
"""Elements of a JSON tensor: numbers in row-major order with null as NaN, or strings, or an error in them."""


@dataclass(frozen=True)
class InputTensor:
    """An input of the request."""

    spec: InferInput
    """Name, datatype and shape; the input without its data."""
    elements: Elements | None
    """Elements from JSON; None for binary data."""
    raw: memoryview
    """Binary data; empty for JSON."""

    def numbers(self, datatype: Datatype, shape: Sequence[int]) -> Array:
        """The elements as numbers in their shape, null as NaN. Binary data is not copied.

        Args:
            datatype: datatype of the model's input.
            shape: required shape; -1 is any size.

        Raises: InvalidInput.

        """
        self._check(datatype, shape)
        dtype, given = DTYPES[self.spec.datatype], self.spec.shape
        if self.elements is None:
            if len(self.raw) != (size := math.prod(given) * dtype.itemsize):
                raise InvalidInput.at(self.spec.name, f"binary_data_size {len(self.raw)}; shape {given} needs {size}")
            return np.frombuffer(self.raw, dtype).reshape(given)
        if isinstance(self.elements, InvalidInput):
            raise self.elements
        assert isinstance(self.elements, np.ndarray)
        return self.elements.reshape(given)

    def strings(self, most: int) -> list[bytes]:
        """Elements of a BYTES tensor [n] or [n, 1]. Raises: InvalidInput; PayloadTooLarge for more than `most`."""
        self._check("BYTES", (-1, 1) if len(self.spec.shape) == 2 else (-1,))
        name, count = self.spec.name, self.spec.shape[0]
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
                name, f"its {len(self.raw)} bytes are not {count} elements, each preceded by its length in 4 bytes"
            )
        return strings

    def _check(self, datatype: Datatype, shape: Sequence[int]) -> None:
        """Check datatype and shape. Raises: InvalidInput."""
        given, allowed = self.spec.shape, ALLOWED.get(datatype, (datatype,))
        if self.spec.datatype not in allowed:
            raise InvalidInput.at(self.spec.name, f"datatype {self.spec.datatype}; {' or '.join(allowed)} is allowed")
        if len(given) != len(shape) or any(size not in (-1, has) for has, size in zip(given, shape, strict=True)):
            raise InvalidInput.at(self.spec.name, f"shape {given}; {list(shape)} is allowed")


@dataclass(frozen=True)
class Head:
    """The JSON part of a request, with the data of its inputs as arrays."""

    request: InferRequest
    """The request; its inputs have no data."""
    elements: list[Elements | None]
    """Elements of each input; None if the input has no data in JSON."""


def split(body: bytes, head_length: str | None) -> tuple[bytes, memoryview]:
    """Split a body into JSON and binary data.

    Args:
        body: JSON, followed by the binary data of the inputs in their order.
        head_length: length of the JSON; None if the whole body is JSON.

    Raises: MalformedInput.

    """
    end = len(body)
    if head_length is not None:
        if not re.fullmatch("[0-9]{1,15}", head_length) or int(head_length) > end:
            raise MalformedInput(f"{HEAD_LENGTH} must be an integer from 0 to {end}, the length of the body")
        end = int(head_length)
    return (body if end == len(body) else body[:end]), memoryview(body)[end:]


def raw_request(specs: Sequence[Tensor], body: bytes) -> tuple[Head, memoryview]:
    """A request whose body is one item of the only required input, as binary data; all outputs are to be binary.

    Args:
        specs: inputs of the model.
        body: the numbers, or the bytes of a text, not preceded by their length.

    Returns: what the JSON of the request would be, and its binary data.

    Raises: InvalidInput if the model has several inputs, or the shape does not follow from the size of the body.

    """
    needed = [spec for spec in specs if not spec.is_optional]
    if len(needed) > 1 or needed[0].shape[1:].count(-1) > 1:
        described = " and ".join(f"{spec.name} {list(spec.shape)}" for spec in needed)
        message = "0; the shapes of the inputs must follow from the length of the body, and do not of"
        raise InvalidInput.at(HEAD_LENGTH, f"{message} {described}")
    (spec,) = needed
    if spec.datatype == "BYTES":
        body = len(body).to_bytes(4, "little") + body
    fixed = math.prod(size for size in spec.shape[1:] if size != -1) * 4
    shape = [1, *(len(body) // fixed if size == -1 else size for size in spec.shape[1:])]
    parameters = InputParameters(binary_data_size=len(body))
    given = InferInput(name=spec.name, datatype=spec.datatype, shape=shape, parameters=parameters)
    asked = InferRequest(parameters=RequestParameters(binary_data_output=True), inputs=[given])
    return Head(asked, [None]), memoryview(body)


def parse_head(head: bytes) -> Head:
    """Validate the JSON part of a request. Raises: MalformedInput, InvalidInput, PayloadTooLarge."""
    check_tokens(head)
    try:
        asked = InferRequest.model_validate(orjson.loads(head))
    except orjson.JSONDecodeError:
        raise malformed(head, MAX_LEVELS) from None
    except ValidationError as error:
        raise invalid(error, InferRequest) from None
    elements = [_elements(given) for given in asked.inputs]
    inputs = [given.model_copy(update={"data": None}) for given in asked.inputs]
    return Head(asked.model_copy(update={"inputs": inputs}), elements)


def tensors_of(head: Head, binary: memoryview) -> dict[str, InputTensor]:
    """Inputs by name, each with its part of the binary data. Raises: InvalidInput."""
    tensors, begin = dict[str, InputTensor](), 0
    for number, (given, elements) in enumerate(zip(head.request.inputs, head.elements, strict=True)):
        place, size = f"inputs.{number}", given.parameters.binary_data_size
        if given.name in tensors:
            raise InvalidInput.at(place, "another input has the same name")
        if size is not None:
            if elements is not None:
                raise InvalidInput.at(place, "give either data or binary_data_size")
            if size > len(binary) - begin:
                raise InvalidInput.at(
                    place, f"binary_data_size {size}; only {len(binary) - begin} bytes of binary data are left"
                )
        elif elements is None:
            elements = InvalidInput.at(given.name, "neither a list as data nor a binary_data_size")
        end = begin + (size or 0)
        tensors[given.name] = InputTensor(given, elements, binary[begin:end])
        begin = end
    if begin < len(binary):
        raise InvalidInput.at("inputs", f"the last {len(binary) - begin} bytes of the body belong to no input")
    return tensors


def _elements(given: InferInput) -> Elements | None:
    """Elements of an input in JSON; None if it has no data there."""
    if given.data is None:
        return None
    is_float = given.datatype in ALLOWED["FP32"]
    types = (str,) if given.datatype == "BYTES" else (int, float, type(None)) if is_float else (int,)
    try:
        flat = _flatten(given, *types)
    except InvalidInput as error:
        clear_tracebacks(error)
        return error
    if given.datatype == "BYTES":
        if len(flat) > MAX_TEXTS:
            return InvalidInput.at(given.name, f"{len(flat)} elements; at most {MAX_TEXTS} in one request")
        return flat
    if given.datatype not in DTYPES:
        return np.empty(0)  # no model has such an input; `InputTensor` reports it
    if is_float:  # not float32: the task reports values that are too large
        return np.array(flat, float)
    try:
        return np.array(flat, DTYPES[given.datatype])
    except OverflowError:
        limits = np.iinfo(DTYPES[given.datatype])
        return InvalidInput.at(given.name, f"an element is out of range; {limits.min} to {limits.max} is allowed")


def _flatten(given: InferInput, *types: type) -> list[Any]:
    """Elements in JSON, which may be flat or nested like the shape. Raises: InvalidInput."""
    name, shape, level = given.name, given.shape, given.data
    if not isinstance(level, list):
        raise InvalidInput.at(name, "neither a list as data nor a binary_data_size")
    is_nested = bool(level) and isinstance(level[0], list)
    for size in shape[1:] if is_nested else ():
        if any(not isinstance(part, list) or len(part) != size for part in level):
            raise InvalidInput.at(name, f"the data is not nested like shape {shape}")
        level = list(chain.from_iterable(level))
    if len(level) != (count := math.prod(shape)):
        raise InvalidInput.at(name, f"{len(level)} elements; shape {shape} needs {count}")
    if others := set(map(type, level)).difference(types):
        received = ", ".join(sorted(other.__name__ for other in others))
        raise InvalidInput.at(name, f"elements of type {received}; {given.datatype} is allowed")
    return level


def tensor_response(content: dict[str, Any], outputs: Sequence[tuple[str, Array, bool]]) -> Response:
    """A response with tensors.

    Args:
        content: other fields of the JSON.
        outputs: (name, float32 array or object array of strings, whether to send binary data) of each tensor.

    """
    described, parts = list[dict[str, Any]](), list[bytes]()
    for name, values, is_binary in outputs:
        is_text = values.dtype == object
        tensor: dict[str, Any] = {"name": name, "datatype": "BYTES" if is_text else "FP32", "shape": list(values.shape)}
        if is_binary:
            parts.append(_pack(values) if is_text else values.tobytes())
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = values.ravel().tolist() if is_text else _to_json(values.ravel())
        described.append(tensor)
    head = orjson.dumps({**content, "outputs": described})
    if not parts:
        return Response(head, media_type=JSON)
    return Response(b"".join((head, *parts)), media_type=BINARY, headers={HEAD_LENGTH: str(len(head))})


def _to_json(values: Array) -> orjson.Fragment:
    """Numbers as JSON, serialized in parts: one call for all would hold the GIL too long."""
    parts = (values[first : first + NUMBERS_AT_ONCE] for first in range(0, len(values), NUMBERS_AT_ONCE))
    written = (orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for part in parts)
    return orjson.Fragment(b"[" + b",".join(written) + b"]")


def _pack(values: Array) -> bytes:
    """Strings as binary data, each preceded by its length in 4 bytes."""
    encoded = [text.encode() for text in values.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)
