"""Inference by the Open Inference Protocol v2, with every model, for clients of Triton, KServe and MLServer.

The `parameters` of a response report how much of the documents was read and how many values of the series were imputed,
summed over the request. The wire format is in `service.compat.oip.tensors`.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact.arrays import Array
from artifact.errors import InvalidInput
from artifact.tasks.base import Task, TensorAnswer
from artifact.tasks.forecaster import Forecaster
from artifact.tasks.series_classification import SeriesClassification
from service.batching.admission import limited
from service.compat.oip.errors import DIALECT, TAG, VERSION
from service.compat.oip.metadata import MODEL, MODEL_VERSION, TensorMetadata
from service.compat.oip.tensors import (
    HEAD_LENGTH,
    InferOutput,
    InferRequest,
    InputTensor,
    parse_head,
    raw_request,
    split,
    tensor_response,
    tensors_of,
)
from service.engine.served import AnyModel
from service.errors import rename_places
from service.offload import ITEM_NUMBERS, count_items, offload
from service.settings import Settings
from service.wire.context import RequestContext
from service.wire.dependencies import Context, NamedModel
from service.wire.inference import record, run
from service.wire.media import BINARY, JSON
from service.wire.openapi import BINARY_SCHEMA, contents, request_body
from service.wire.parsing import check_count
from service.wire.recordings import check_values
from service.wire.requests import check_content_encoding, parse_body, read_body, read_document, reserve_numbers

router = DIALECT.router(TAG)

LENGTH_PARAMETER = {
    "name": HEAD_LENGTH,
    "in": "header",
    "schema": {"type": "integer", "minimum": 0},
    "description": "Length of the JSON before binary data; 0 if the body is one item of the only input.",
}
PADDED = {"bytes", "lengths"}
"""Inputs that a model of one text accepts instead of it: the rows of a padded matrix, and their lengths."""


class ResponseTensor(TensorMetadata):
    """An output; with `parameters.binary_data_size` if its data is binary, after the JSON."""

    data: list[Any] | None = None
    parameters: dict[str, int] | None = None


class InferResponse(BaseModel):
    """The JSON part of a response."""

    model_config = ConfigDict(protected_namespaces=())

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, int | float]
    """Documents: bytes_total, bytes_used, documents_cut, and of a model that counts words the share `known` of them.
    Series: observations_total, observations_used, imputed."""
    outputs: list[ResponseTensor]


BODIES = {JSON: InferRequest, BINARY: BINARY_SCHEMA}
EXAMPLES = {
    JSON: {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["A film to see twice."]}],
        "outputs": [{"name": "label"}],
    }
}
RESPONSES = {200: {"content": contents({BINARY: BINARY_SCHEMA})}, **DIALECT.responses()}


@router.post(
    f"{MODEL}/infer",
    name="oip_infer",
    response_model=InferResponse,
    responses=RESPONSES,
    openapi_extra=request_body(BODIES, EXAMPLES, [LENGTH_PARAMETER]),
)
@router.post(
    f"{MODEL_VERSION}/infer",
    name="oip_version_infer",
    response_model=InferResponse,
    responses=RESPONSES,
    openapi_extra=request_body(BODIES, EXAMPLES, [*VERSION["parameters"], LENGTH_PARAMETER]),
)
async def post_infer(context: Context, model: NamedModel) -> Response:
    """Run a model. Inputs: classifiers `text`, or `bytes` and `lengths`; matchers `a` and `b`; others `series`."""
    arrived = asyncio.get_running_loop().time()
    check_content_encoding(context)  # no check of the media type: clients send none or any
    body, length = await read_body(context), context.headers.get(HEAD_LENGTH.lower())
    if length == "0":
        head, binary = raw_request(model.task.tensors[0], body)
    else:
        json_part, binary = split(body, length)
        head = await parse_body(context, parse_head, json_part)
    asked, tensors = head.request, tensors_of(head, binary)
    requested = _requested(asked, model.task)
    if asked.parameters.timeout:
        context.deadline = limited(context.deadline, arrived + asked.parameters.timeout / 1e6)
    inputs = _inputs(context, model.task, tensors)
    first, count = next((name, len(values)) for name, values in inputs.items())
    is_padded = first not in tensors
    numbers = count * sum(math.prod(output.shape[1:]) for output in model.task.tensors[1])
    reserve_numbers(context, numbers, "send fewer inputs")
    texts = [text for values in inputs.values() if isinstance(values, list) for text in values]
    items = max(count_items(texts), count, numbers // ITEM_NUMBERS)
    if isinstance(model.task, Forecaster):
        items = max(items, model.task.count_items(np.size(inputs[first])))
    elif isinstance(model.task, SeriesClassification):
        values = model.task.count_tensor_values(inputs)
        check_values(values, np.size(inputs[first]))
        items = max(items, model.task.count_items(count, values))
    computation = model.task.infer(inputs, asked.parameters.on_overflow, model.cache)
    with rename_places(lambda place: place.replace(first, "bytes", 1) if is_padded else place):
        answer, timing = await run(context, model, computation, items)
    response = await offload(items, _respond, model, asked, requested, answer)
    record(context, model, timing)
    return response


def _requested(asked: InferRequest, task: Task) -> list[InferOutput]:
    """The requested outputs; by default all. Raises: InvalidInput."""
    names = [output.name for output in task.tensors[1]]
    requested = asked.outputs or [InferOutput(name=name) for name in names]
    for number, output in enumerate(asked.outputs):
        if output.name not in names:
            raise InvalidInput.at(
                f"outputs.{number}", f"no output of that name; {task.manifest.name} has {', '.join(names)}"
            )
        if output.parameters.classification and output.name != "scores":
            raise InvalidInput.at(
                f"outputs.{number}", f"classification of {output.name}; only scores can be classified"
            )
    if len({output.name for output in requested}) < len(requested):
        raise InvalidInput.at("outputs", "an output is requested twice")
    return requested


def _inputs(context: RequestContext, task: Task, tensors: Mapping[str, InputTensor]) -> dict[str, list[bytes] | Array]:
    """Inputs of a task, from the tensors of a request. Raises: InvalidInput, PayloadTooLarge."""
    specs, settings = task.tensors[0], context.runtime.settings
    expected = {spec.name for spec in specs if not spec.is_optional}
    optional = {spec.name for spec in specs} - expected
    is_one_text = [spec.datatype for spec in specs] == ["BYTES"]
    if is_one_text and set(tensors) == PADDED:
        return {specs[0].name: _padded_documents(settings, tensors)}
    if set(tensors) - optional != expected:
        choices = [expected, PADDED] if is_one_text else [expected]
        known = optional.union(*choices)
        received = ", ".join(name if name in known else "an unknown one" for name in tensors) or "none"
        allowed = ", or ".join(" and ".join(sorted(choice)) for choice in choices)
        allowed += "".join(f", and may have {name}" for name in sorted(optional))
        raise InvalidInput.at("inputs", f"received {received}; {task.manifest.name} needs {allowed}")
    inputs = dict[str, list[bytes] | Array]()
    for spec in specs:
        if spec.name not in tensors:
            continue
        if spec.datatype == "BYTES":
            texts = tensors[spec.name].strings(settings.max_documents)
            inputs[spec.name] = [read_document(settings, f"{spec.name}.{i}", text) for i, text in enumerate(texts)]
        else:
            inputs[spec.name] = tensors[spec.name].numbers("FP32", spec.shape)
            check_count(spec.name, len(inputs[spec.name]), settings.max_documents)
    return inputs


def _padded_documents(settings: Settings, tensors: Mapping[str, InputTensor]) -> list[bytes]:
    """Documents from `bytes` and `lengths`. Raises: InvalidInput, PayloadTooLarge."""
    rows = tensors["bytes"].numbers("UINT8", (-1, -1))
    count, width = rows.shape
    check_count("bytes", count, settings.max_documents)
    lengths = tensors["lengths"].numbers("INT32", (-1,)).tolist()
    if len(lengths) != count:
        raise InvalidInput.at("lengths", f"{len(lengths)} elements; {count} are needed, one for each row of bytes")
    documents = []
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if not 0 <= length <= width:
            raise InvalidInput.at(f"lengths.{number}", f"{length}; 0 to {width}, the width of bytes, is allowed")
        documents.append(read_document(settings, f"bytes.{number}", row[:length].tobytes()))
    return documents


def _respond(model: AnyModel, asked: InferRequest, requested: Sequence[InferOutput], answer: TensorAnswer) -> Response:
    """The response with the requested outputs."""
    manifest, labels = model.manifest, model.task.parameters.get("labels", ())
    content: dict[str, Any] = {"model_name": manifest.name, "model_version": str(manifest.version)}
    if asked.id is not None:
        content["id"] = asked.id
    content["parameters"] = answer.parameters
    outputs = []
    for output in requested:
        values, options = answer.outputs[output.name], output.parameters
        if options.classification:
            values = _classes(values, labels, options.classification)
        is_binary = asked.parameters.binary_data_output if options.binary_data is None else options.binary_data
        outputs.append((output.name, values, is_binary))
    return tensor_response(content, outputs)


def _classes(scores: Array, labels: Sequence[str], count: int) -> Array:
    """The best `count` classes of each row of scores, in Triton's format."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    classes = [[f"{row[i]:.9g}:{i}:{labels[i]}" for i in chosen] for row, chosen in zip(scores, best, strict=True)]
    return np.array(classes, object)
