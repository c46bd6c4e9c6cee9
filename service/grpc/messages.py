"""Messages of the Open Inference Protocol as requests and responses of its HTTP form, with binary data."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from open_inference.grpc.protocol import (
    InferParameter,
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
    ModelMetadataResponse,
)

from artifact.errors import InvalidInput
from service.compat.oip.tensors import DTYPES

CONTENTS = {
    "BYTES": "bytes_contents",
    "UINT8": "uint_contents",
    "INT32": "int_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""Field of InferTensorContents by datatype, for those that models accept."""


def infer_body(request: ModelInferRequest) -> tuple[bytes, int]:
    """The body of `POST .../infer`, and the length of the JSON before its binary data.

    All inputs and outputs are binary data.

    Raises: InvalidInput if an input has no data, or both kinds of data.
    """
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise InvalidInput.at("raw_input_contents", f"{len(raw)} elements; {len(request.inputs)}, one for each input")
    inputs, parts = list[dict[str, Any]](), list[bytes]()
    for number, given in enumerate(request.inputs):
        place = f"inputs.{number}"
        if raw and given.HasField("contents") and given.contents.ListFields():
            raise InvalidInput.at(place, "give either contents or raw_input_contents")
        parts.append(raw[number] if raw else _packed(place, given.datatype, given.contents))
        inputs.append(
            {
                "name": given.name,
                "datatype": given.datatype,
                "shape": list(given.shape),
                "parameters": {**_values(given.parameters), "binary_data_size": len(parts[-1])},
            }
        )
    outputs = []
    for asked in request.outputs:
        parameters = _values(asked.parameters)
        parameters.pop("binary_data", None)
        outputs.append({"name": asked.name, "parameters": parameters})
    content = {
        "parameters": {**_values(request.parameters), "binary_data_output": True},
        "inputs": inputs,
        "outputs": outputs,
    }
    if request.id:
        content["id"] = request.id
    head = orjson.dumps(content)
    return b"".join((head, *parts)), len(head)


def infer_response(body: bytes, head_length: int) -> ModelInferResponse:
    """The message of a response whose outputs are binary data."""
    content, end = orjson.loads(body[:head_length]), head_length
    message = ModelInferResponse(
        model_name=content["model_name"], model_version=content["model_version"], id=content.get("id", "")
    )
    for name, value in content["parameters"].items():
        message.parameters[name].CopyFrom(_parameter(value))
    for output in content["outputs"]:
        message.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
        begin, end = end, end + output["parameters"]["binary_data_size"]
        message.raw_output_contents.append(body[begin:end])
    return message


def metadata_response(content: Mapping[str, Any]) -> ModelMetadataResponse:
    """The message of a model's metadata; lists of `properties` are JSON."""
    message = ModelMetadataResponse(name=content["name"], versions=content["versions"], platform=content["platform"])
    for tensors, described in ((message.inputs, content["inputs"]), (message.outputs, content["outputs"])):
        for one in described:
            tensors.add(name=one["name"], datatype=one["datatype"], shape=one["shape"])
    for name, value in content["parameters"].items():
        message.properties[name] = value if isinstance(value, str) else orjson.dumps(value).decode()
    return message


def _packed(place: str, datatype: str, contents: InferTensorContents) -> bytes:
    """Elements as binary data; empty for a datatype that no model accepts, which the route reports.

    Raises: InvalidInput.
    """
    field = CONTENTS.get(datatype)
    if field is None:
        return b""
    elements: Sequence[Any] = getattr(contents, field)
    if not elements and contents.ListFields():
        given = ", ".join(descriptor.name for descriptor, _ in contents.ListFields())
        raise InvalidInput.at(place, f"{given}; {datatype} needs {field}, or raw_input_contents")
    if datatype == "BYTES":
        return b"".join(len(text).to_bytes(4, "little") + text for text in elements)
    dtype = next(dtype for name, dtype in DTYPES.items() if name == datatype)
    try:
        return np.array(list(elements), dtype).tobytes()  # the container itself would be cast without a check
    except OverflowError:
        limits = np.iinfo(dtype)
        raise InvalidInput.at(place, f"an element is out of range; {limits.min} to {limits.max} is allowed") from None


def _values(parameters: Mapping[str, InferParameter]) -> dict[str, Any]:
    """Parameters by name; None for one without a value."""
    found = dict[str, Any]()
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        found[name] = None if choice is None else getattr(parameter, choice)
    return found


def _parameter(value: float) -> InferParameter:
    return InferParameter(int64_param=value) if isinstance(value, int) else InferParameter(double_param=value)
