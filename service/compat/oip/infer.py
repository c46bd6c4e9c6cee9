"""Inference by the Open Inference Protocol v2, with every model, for clients of Triton, KServe and MLServer.

The `parameters` of a response report how much of the documents was read and how many values of the series were imputed,
summed over the request. The wire format is in `service.compat.oip.tensors`.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.manifest import ClassifierManifest, Manifest
from artifact.matching import Text
from artifact.series import Tails
from service.batching.admission import limited
from service.compat.oip.errors import DIALECT, TAG, VERSION
from service.compat.oip.metadata import MODEL, MODEL_VERSION, TensorMetadata
from service.compat.oip.tensors import (
    HEAD_LENGTH,
    Array,
    InferOutput,
    InferRequest,
    Tensor,
    parse_head,
    respond,
    split,
    tensors_of,
)
from service.engine.served import ServedClassifier, ServedForecaster, ServedMatcher, ServedModel
from service.errors import rename_places
from service.offload import ITEM_NUMBERS, offload
from service.tasks.classification import classify
from service.tasks.forecasting import forecast
from service.tasks.matching import score
from service.tasks.timing import Timing
from service.wire.context import RequestContext
from service.wire.dependencies import Context, NamedModel
from service.wire.inference import record, run
from service.wire.media import BINARY, JSON
from service.wire.openapi import BINARY_SCHEMA, contents, request_body
from service.wire.parsing import check_count
from service.wire.requests import check_content_encoding, parse_body, read_body, read_document, reserve_numbers

router = DIALECT.router(TAG)

LENGTH_PARAMETER = {"name": HEAD_LENGTH, "in": "header", "schema": {"type": "integer", "minimum": 0}}
OUTPUTS = {
    "text-classification": [InferOutput(name="scores"), InferOutput(name="label")],
    "text-matching": [InferOutput(name="score")],
    "forecasting": [InferOutput(name="forecast")],
}
"""Outputs of the models, by task."""


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
    parameters: dict[str, int]
    """Documents: bytes_total, bytes_used, documents_cut. Series: observations_total, observations_used, imputed."""
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
    """Run a model. Inputs: classifiers `text`, or `bytes` and `lengths`; matchers `a` and `b`; forecasters `series`."""
    arrived = asyncio.get_running_loop().time()
    check_content_encoding(context)  # no check of the media type: clients send none or any
    json_part, binary = split(await read_body(context), context.headers.get(HEAD_LENGTH.lower()))
    head = await parse_body(context, parse_head, json_part)
    asked, tensors = head.request, tensors_of(head, binary)
    requested = _requested(asked, model.manifest)
    if asked.parameters.timeout:
        context.deadline = limited(context.deadline, arrived + asked.parameters.timeout / 1e6)
    inputs = _Inputs(context, tensors, asked.parameters.on_overflow)
    result = await run(context, model, _compute(model, inputs))
    count = sum(values.size for values in result.outputs.values())
    response = await offload(count // ITEM_NUMBERS, _respond, model, asked, requested, result)
    record(context, model, result.timing)
    return response


def _requested(asked: InferRequest, manifest: Manifest) -> list[InferOutput]:
    """The requested outputs; by default all. Raises: InvalidInput."""
    all_outputs = OUTPUTS[manifest.task]
    requested, names = asked.outputs or all_outputs, [output.name for output in all_outputs]
    for number, output in enumerate(asked.outputs):
        if output.name not in names:
            raise InvalidInput.at(
                f"outputs.{number}", f"no output of that name; {manifest.name} has {', '.join(names)}"
            )
        if output.parameters.classification and output.name != "scores":
            raise InvalidInput.at(
                f"outputs.{number}", f"classification of {output.name}; only scores can be classified"
            )
    if len({output.name for output in requested}) < len(requested):
        raise InvalidInput.at("outputs", "an output is requested twice")
    return requested


@dataclass(frozen=True)
class _Inputs:
    """Inputs of a request."""

    context: RequestContext
    tensors: Mapping[str, Tensor]
    on_overflow: OnOverflow

    def check_names(self, model: ServedModel, *choices: set[str]) -> None:
        """Check that the inputs are one of the allowed sets of names. Raises: InvalidInput."""
        if set(self.tensors) not in choices:
            known = set[str]().union(*choices)
            received = ", ".join(name if name in known else "an unknown one" for name in self.tensors) or "none"
            allowed = ", or ".join(" and ".join(sorted(choice)) for choice in choices)
            raise InvalidInput.at("inputs", f"received {received}; {model.manifest.name} needs {allowed}")

    def documents(self, name: str) -> list[bytes]:
        """Elements of a BYTES tensor. Raises: InvalidInput, PayloadTooLarge."""
        documents = self.tensors[name].strings(self.context.runtime.settings.max_documents)
        return [
            read_document(self.context.runtime.settings, f"{name}.{number}", document)
            for number, document in enumerate(documents)
        ]

    def padded_documents(self) -> list[bytes]:
        """Documents from `bytes` and `lengths`. Raises: InvalidInput, PayloadTooLarge."""
        rows = self.tensors["bytes"].numbers("UINT8", (-1, -1))
        count, width = rows.shape
        check_count("bytes", count, self.context.runtime.settings.max_documents)
        lengths = self.tensors["lengths"].numbers("INT32", (-1,)).tolist()
        if len(lengths) != count:
            raise InvalidInput.at("lengths", f"{len(lengths)} elements; {count} are needed, one for each row of bytes")
        documents = []
        for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if not 0 <= length <= width:
                raise InvalidInput.at(f"lengths.{number}", f"{length}; 0 to {width}, the width of bytes, is allowed")
            documents.append(read_document(self.context.runtime.settings, f"bytes.{number}", row[:length].tobytes()))
        return documents


@dataclass(frozen=True)
class _Result:
    """Outputs of a model, with the `parameters` of the response."""

    outputs: dict[str, Array]
    parameters: dict[str, int]
    timing: Timing


def _compute(model: ServedModel, inputs: _Inputs) -> Coroutine[Any, Any, _Result]:
    """Run a model, by its task."""
    if isinstance(model, ServedClassifier):
        return _classify(model, inputs)
    if isinstance(model, ServedMatcher):
        return _score(model, inputs)
    assert isinstance(model, ServedForecaster)
    return _forecast(model, inputs)


async def _classify(model: ServedClassifier, inputs: _Inputs) -> _Result:
    """Classify documents."""
    inputs.check_names(model, {"text"}, {"bytes", "lengths"})
    name = "text" if "text" in inputs.tensors else "bytes"
    documents = inputs.documents(name) if name == "text" else inputs.padded_documents()
    with rename_places(lambda place: place.replace("inputs", name, 1)):
        answers, timing = await classify(
            model, documents, on_overflow=inputs.on_overflow, deadline=inputs.context.deadline
        )
    scores = np.array([answer.scores for answer in answers])
    labels = np.array(model.manifest.labels, object)[scores.argmax(axis=1)]
    coverage = _coverage([(answer.bytes_total, answer.bytes_used) for answer in answers])
    return _Result({"scores": scores.astype("<f4"), "label": labels}, coverage, timing)


async def _score(model: ServedMatcher, inputs: _Inputs) -> _Result:
    """Score pairs of documents."""
    inputs.check_names(model, {"a", "b"})
    a, b = inputs.documents("a"), inputs.documents("b")
    if len(a) != len(b):
        raise InvalidInput.at("b", f"{len(b)} elements; {len(a)} are needed, as many as in a")
    pairs = [(Text(f"a.{i}", one), Text(f"b.{i}", other)) for i, (one, other) in enumerate(zip(a, b, strict=True))]
    scored, timing = await score(model, pairs, on_overflow=inputs.on_overflow, deadline=inputs.context.deadline)
    coverage = _coverage([(text.bytes_total, text.bytes_used) for pair in scored for text in (pair.a, pair.b)])
    return _Result({"score": np.array([pair.score for pair in scored], "<f4")}, coverage, timing)


async def _forecast(model: ServedForecaster, inputs: _Inputs) -> _Result:
    """Forecast series; NaN is a missing value."""
    inputs.check_names(model, {"series"})
    manifest = model.manifest
    context, horizon, channels = manifest.context_length, manifest.horizon, len(manifest.channels)
    series = inputs.tensors["series"].numbers("FP32", (-1, context, channels))
    check_count("series", len(series), inputs.context.runtime.settings.max_documents)
    reserve_numbers(inputs.context, len(series) * horizon * channels, "send fewer series")
    tails = await offload(len(series), lambda: [Tails.of(list(window.T), context) for window in series])
    answers, timing = await forecast(
        model,
        tails,
        horizon=horizon,
        levels=(),
        deadline=inputs.context.deadline,
        rename=lambda number, place: place.replace("series", f"series.{number}", 1),
    )
    windows = [answer.window for answer in answers]
    coverage = {
        "observations_total": sum(window.observations_total for window in windows),
        "observations_used": sum(window.observations_used for window in windows),
        "imputed": sum(window.imputed for window in windows),
    }
    return _Result({"forecast": np.stack([answer.values for answer in answers]).astype("<f4")}, coverage, timing)


def _coverage(documents: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Parameters of a response about documents, from (bytes_total, bytes_used) of each."""
    return {
        "bytes_total": sum(total for total, _ in documents),
        "bytes_used": sum(used for _, used in documents),
        "documents_cut": sum(used < total for total, used in documents),
    }


def _respond(model: ServedModel, asked: InferRequest, requested: Sequence[InferOutput], result: _Result) -> Response:
    """The response with the requested outputs."""
    manifest = model.manifest
    content: dict[str, Any] = {"model_name": manifest.name, "model_version": str(manifest.version)}
    if asked.id is not None:
        content["id"] = asked.id
    content["parameters"] = result.parameters
    outputs = []
    for output in requested:
        values, options = result.outputs[output.name], output.parameters
        if options.classification and isinstance(manifest, ClassifierManifest):
            values = _classes(values, manifest.labels, options.classification)
        is_binary = asked.parameters.binary_data_output if options.binary_data is None else options.binary_data
        outputs.append((output.name, values, is_binary))
    return respond(content, outputs)


def _classes(scores: Array, labels: Sequence[str], count: int) -> Array:
    """The best `count` classes of each row of scores, in Triton's format."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    classes = [[f"{row[i]:.9g}:{i}:{labels[i]}" for i in chosen] for row, chosen in zip(scores, best, strict=True)]
    return np.array(classes, object)
