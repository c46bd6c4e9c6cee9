"""Open Inference Protocol v2: every model, for the clients of Triton, KServe and MLServer.

How much of the documents was read, and how many values of the series were filled in, stands in the `parameters` of an
answer, summed over the request. The wire format is in `service.compat.oip.tensors`.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.manifest import ClassifierManifest, Manifest, MatcherManifest
from service import __version__
from service.compat.kserve import MOST_NUMBERS
from service.compat.oip.errors import ERRORS
from service.compat.oip.tensors import (
    BINARY,
    HEAD_LENGTH,
    Array,
    Datatype,
    InferOutput,
    InferRequest,
    Tensor,
    parse,
    respond,
    wrong,
)
from service.engine.engine import Engine, ServedClassifier, ServedForecaster, ServedMatcher, ServedModel
from service.errors import NotReady, PayloadTooLarge, UnsupportedMedia
from service.settings import Settings
from service.tasks.classification import classify
from service.tasks.forecasting import Forecast, forecast
from service.tasks.matching import Text, score
from service.tasks.timing import Timing
from service.wire.requests import HEADERS, JSON, check_count, check_size, deadline, named, read_body, while_connected
from service.wire.responses import Stopwatch
from service.wire.schemas import self_contained

EXTENSIONS = ["binary_tensor_data", "classification", "parameters"]
PLATFORMS = {"onnx": "onnx_onnxv1", "torchscript": "pytorch_torchscript"}
"""The specification's names of our formats."""
OUTPUTS = {
    "text-classification": [InferOutput(name="scores"), InferOutput(name="label")],
    "text-matching": [InferOutput(name="score")],
    "forecasting": [InferOutput(name="forecast")],
}
"""Of the models of each task."""


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=())


class TensorMetadata(_Shown):
    """Name, datatype and shape (-1 = any) of an input or output."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(_Shown):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ResponseTensor(TensorMetadata):
    """An output; with `parameters.binary_data_size` if its data stand behind the JSON."""

    data: list[Any] | None = None
    parameters: dict[str, int] | None = None


class InferResponse(_Shown):
    """The JSON of an answer."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, int]
    """Of documents bytes_total, bytes_used, documents_cut; of series observations_total, observations_used, imputed."""
    outputs: list[ResponseTensor]


BODY = {JSON: {"schema": self_contained(InferRequest)}, BINARY: {"schema": {"type": "string", "format": "binary"}}}
LENGTH = {"name": HEAD_LENGTH, "in": "header", "schema": {"type": "integer", "minimum": 0}}
REQUEST = {"requestBody": {"required": True, "content": BODY}}
NAME, VERSION = named("name"), named("name", "version")
INFER = {"parameters": [*NAME["parameters"], LENGTH, *HEADERS], **REQUEST}
INFER_VERSION = {"parameters": [*VERSION["parameters"], LENGTH, *HEADERS], **REQUEST}
ANSWERS = {**ERRORS, 200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}}

router = APIRouter(prefix="/v2", responses={401: ERRORS[401]})


@router.get("")
async def get_server() -> dict[str, str | list[str]]:
    """Name, version and extensions of the server."""
    return {"name": "longdoc-serve", "version": __version__, "extensions": EXTENSIONS}


@router.get("/models/{name}", responses={404: ERRORS[404]}, openapi_extra=NAME)
@router.get("/models/{name}/versions/{version}", responses={404: ERRORS[404]}, openapi_extra=VERSION)
async def get_model(request: Request) -> ModelMetadata:
    """Inputs and outputs of a model."""
    settings: Settings = request.app.state.settings
    manifest = _asked(request).manifest
    inputs, outputs = _signature(manifest)
    return ModelMetadata(
        name=manifest.name,
        versions=[str(manifest.version)],
        platform=PLATFORMS[settings.backend],
        inputs=inputs,
        outputs=outputs,
    )


@router.get("/models/{name}/ready", responses={404: ERRORS[404], 503: ERRORS[503]}, openapi_extra=NAME)
@router.get(
    "/models/{name}/versions/{version}/ready", responses={404: ERRORS[404], 503: ERRORS[503]}, openapi_extra=VERSION
)
async def model_ready(request: Request) -> dict[str, str | bool]:
    """200 when one model takes requests."""
    engine: Engine = request.app.state.engine
    model = _asked(request)
    if engine.is_draining or not model.batcher.is_ready:
        raise NotReady("the model takes no requests")
    return {"name": model.manifest.name, "ready": True}


@router.post("/models/{name}/infer", response_model=InferResponse, responses=ANSWERS, openapi_extra=INFER)
@router.post(
    "/models/{name}/versions/{version}/infer",
    response_model=InferResponse,
    responses=ANSWERS,
    openapi_extra=INFER_VERSION,
)
async def post_infer(request: Request) -> Response:
    """Ask a model; classifiers take `text`, or `bytes` with `lengths`, matchers `a` and `b`, forecasters `series`."""
    watch = Stopwatch(request)
    arrived = asyncio.get_running_loop().time()
    settings: Settings = request.app.state.settings
    until = deadline(request, settings.deadline_s)
    if request.headers.get("content-encoding", "identity").lower() != "identity":  # of media types, clients name any
        raise UnsupportedMedia("send the body without Content-Encoding")
    model = _asked(request)
    asked, tensors = parse(await read_body(request, until), request.headers.get(HEAD_LENGTH))
    wanted = _wanted(asked, model.manifest)
    if asked.parameters.timeout:
        until = min(until, arrived + asked.parameters.timeout / 1e6)
    work = _compute(model, _Inputs(tensors, asked.parameters.on_overflow, until, settings))
    with model.metrics.in_flight.track_inprogress():
        answer = await while_connected(request, work)
    watch.computed()
    return watch.finish(model, answer.timing, _describe(model, asked, wanted, answer))


def _asked(request: Request) -> ServedModel:
    """The model, and its version, that the path names. Raises: ModelNotFound."""
    engine: Engine = request.app.state.engine
    return engine.model(request.path_params["name"], request.path_params.get("version"))


def _signature(manifest: Manifest) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
    """What a model takes and gives."""

    def tensor(name: str, datatype: Datatype, *shape: int) -> TensorMetadata:
        return TensorMetadata(name=name, datatype=datatype, shape=[-1, *shape])

    if isinstance(manifest, ClassifierManifest):
        scores = tensor("scores", "FP32", len(manifest.labels))
        return [tensor("text", "BYTES")], [scores, tensor("label", "BYTES")]
    if isinstance(manifest, MatcherManifest):
        return [tensor("a", "BYTES"), tensor("b", "BYTES")], [tensor("score", "FP32")]
    channels = len(manifest.channels)
    series = tensor("series", "FP32", manifest.context_length, channels)
    return [series], [tensor("forecast", "FP32", manifest.horizon, channels)]


def _wanted(asked: InferRequest, manifest: Manifest) -> list[InferOutput]:
    """The outputs to give; all, if none is named. Raises: InvalidInput."""
    all_outputs = OUTPUTS[manifest.task]
    wanted, names = asked.outputs or all_outputs, [output.name for output in all_outputs]
    for number, output in enumerate(asked.outputs):
        if output.name not in names:
            raise wrong(f"outputs.{number}", f"no output of that name; {manifest.name} gives {', '.join(names)}")
        if output.parameters.classification and output.name != "scores":
            raise wrong(f"outputs.{number}", f"classification of {output.name}; that of scores is allowed")
    if len({output.name for output in wanted}) < len(wanted):
        raise wrong("outputs", "one of them is named twice")
    return wanted


@dataclass(frozen=True)
class _Inputs:
    """What a model is asked."""

    tensors: Mapping[str, Tensor]
    on_overflow: OnOverflow
    until: float
    settings: Settings

    def check_names(self, model: ServedModel, *choices: set[str]) -> None:
        """Refuse inputs that are none of the choices. Raises: InvalidInput."""
        if set(self.tensors) not in choices:
            known = set[str]().union(*choices)
            received = ", ".join(name if name in known else "an unknown one" for name in self.tensors) or "none"
            allowed = ", or ".join(" and ".join(sorted(choice)) for choice in choices)
            raise wrong("inputs", f"received {received}; {model.manifest.name} takes {allowed}")

    def documents(self, name: str) -> list[bytes]:
        """Elements of a BYTES tensor. Raises: InvalidInput, PayloadTooLarge."""
        documents = self.tensors[name].strings(self.settings.max_documents)
        for number, document in enumerate(documents):
            check_size(f"{name}.{number}", document, self.settings)
        return documents

    def rows(self) -> list[bytes]:
        """Rows of `bytes`, each as long as `lengths` says. Raises: InvalidInput, PayloadTooLarge."""
        rows = self.tensors["bytes"].numbers("UINT8", (-1, -1))
        count, width = rows.shape
        check_count("bytes", count, self.settings.max_documents)
        lengths = self.tensors["lengths"].numbers("INT32", (-1,)).tolist()
        if len(lengths) != count:
            raise wrong("lengths", f"{len(lengths)} elements; {count}, one for each row of bytes, are allowed")
        documents = []
        for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if not 0 <= length <= width:
                raise wrong(f"lengths.{number}", f"{length}; 0 to {width}, the width of bytes, is allowed")
            documents.append(row[:length].tobytes())
            check_size(f"bytes.{number}", documents[-1], self.settings)
        return documents


@dataclass(frozen=True)
class _Answer:
    """What a model gave."""

    outputs: dict[str, Array]
    parameters: dict[str, int]
    timing: Timing


def _compute(model: ServedModel, inputs: _Inputs) -> Coroutine[Any, Any, _Answer]:
    """The operation of a model's task."""
    if isinstance(model, ServedClassifier):
        return _classify(model, inputs)
    if isinstance(model, ServedMatcher):
        return _score(model, inputs)
    assert isinstance(model, ServedForecaster)
    return _forecast(model, inputs)


async def _classify(model: ServedClassifier, inputs: _Inputs) -> _Answer:
    """Documents -> scores and label of each."""
    inputs.check_names(model, {"text"}, {"bytes", "lengths"})
    name = "text" if "text" in inputs.tensors else "bytes"
    documents = inputs.documents(name) if name == "text" else inputs.rows()
    with _places("inputs", name):
        answers, timing = await classify(model, documents, on_overflow=inputs.on_overflow, deadline=inputs.until)
    scores = np.array([answer.scores for answer in answers])
    labels = np.array(model.manifest.labels, object)[scores.argmax(axis=1)]
    coverage = _coverage([(answer.bytes_total, answer.bytes_used) for answer in answers])
    return _Answer({"scores": scores.astype("<f4"), "label": labels}, coverage, timing)


async def _score(model: ServedMatcher, inputs: _Inputs) -> _Answer:
    """Pairs of documents -> score of each."""
    inputs.check_names(model, {"a", "b"})
    a, b = inputs.documents("a"), inputs.documents("b")
    if len(a) != len(b):
        raise wrong("b", f"{len(b)} elements; {len(a)}, as many as a has, are allowed")
    pairs = [(Text(f"a.{i}", one), Text(f"b.{i}", other)) for i, (one, other) in enumerate(zip(a, b, strict=True))]
    scores, encodings, timing = await score(model, pairs, on_overflow=inputs.on_overflow, deadline=inputs.until)
    coverage = _coverage([(text.bytes_total, text.bytes_used) for pair in encodings for text in pair])
    return _Answer({"score": np.array(scores, "<f4")}, coverage, timing)


async def _forecast(model: ServedForecaster, inputs: _Inputs) -> _Answer:
    """Series -> continuation of each, side by side so that they share batches; NaN is a value to fill in."""
    inputs.check_names(model, {"series"})
    manifest = model.manifest
    horizon, channels = manifest.horizon, len(manifest.channels)
    series = inputs.tensors["series"].numbers("FP32", (-1, manifest.context_length, channels))
    check_count("series", len(series), inputs.settings.max_documents)
    if (count := len(series) * horizon * channels) > MOST_NUMBERS:
        raise PayloadTooLarge(f"series: the answer would hold {count} numbers, at most {MOST_NUMBERS}: send fewer")

    async def one(number: int, window: Array) -> tuple[Forecast, Timing]:
        columns = [[None if value != value else value for value in column] for column in window.T.tolist()]
        with _places("series", f"series.{number}"):
            return await forecast(model, columns, horizon=horizon, levels=(), deadline=inputs.until)

    answers = await asyncio.gather(*(one(number, window) for number, window in enumerate(series)))
    windows = [answer.window for answer, _ in answers]
    filled = {
        "observations_total": sum(window.observations_total for window in windows),
        "observations_used": sum(window.observations_used for window in windows),
        "imputed": sum(window.imputed for window in windows),
    }
    slowest = max((timing for _, timing in answers), key=lambda timing: timing.queue + timing.compute)
    return _Answer({"forecast": np.stack([answer.values for answer, _ in answers]).astype("<f4")}, filled, slowest)


def _coverage(documents: Sequence[tuple[int, int]]) -> dict[str, int]:
    """What was read, from the bytes of each document and how many of them were used."""
    return {
        "bytes_total": sum(total for total, _ in documents),
        "bytes_used": sum(used for _, used in documents),
        "documents_cut": sum(used < total for total, used in documents),
    }


def _describe(model: ServedModel, asked: InferRequest, wanted: Sequence[InferOutput], answer: _Answer) -> Response:
    """The outputs that are wanted."""
    manifest = model.manifest
    content: dict[str, Any] = {"model_name": manifest.name, "model_version": str(manifest.version)}
    if asked.id is not None:
        content["id"] = asked.id
    content["parameters"] = answer.parameters
    outputs = []
    for output in wanted:
        values, options = answer.outputs[output.name], output.parameters
        if options.classification and isinstance(manifest, ClassifierManifest):
            values = _classes(values, manifest.labels, options.classification)
        is_binary = asked.parameters.binary_data_output if options.binary_data is None else options.binary_data
        outputs.append((output.name, values, is_binary))
    return respond(content, outputs)


def _classes(scores: Array, labels: Sequence[str], count: int) -> Array:
    """The best classes of each row of scores, as Triton writes them."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    named = [[f"{row[i]:.9g}:{i}:{labels[i]}" for i in places] for row, places in zip(scores, best, strict=True)]
    return np.array(named, object)


@contextlib.contextmanager
def _places(old: str, new: str) -> Iterator[None]:
    """Name the tensor in the places of a task's errors."""
    try:
        yield
    except InvalidInput as error:
        fields = [(place.replace(old, new, 1), why) for place, why in error.errors]
        raise InvalidInput("; ".join(f"{place}: {why}" for place, why in fields), fields) from None
