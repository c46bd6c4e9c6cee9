"""Models in memory whose answers can be computed by hand, and the application that serves them without a socket.

- `classifier`: each "+" in a document counts for `positive`, each "-" for `negative`; the scores of a row are
  (1 + pluses) / (2 + pluses + minuses) and 1 minus that. With thresholds, each of n signs scores its label
  (1 + n) / (2 + n).
- `matcher`: the vector of a row counts its "+" and "-"; a pair whose vectors have the dot product d scores
  (1 + d) / (2 + d).
- `series_classifier`: a row scores `wave` with the sigmoid of the mean of its first channel plus the last value of its
  last one, both standardised; `rest` gets the remainder.
- `forecaster`: repeats the last value; the errors behind its bands are -1, 0 and 2 deviations at every step.
- `any_series`: forecasts any series; `quantiles_of` computes its answers.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Literal, TypeVar

import httpx
import numpy as np
from typing_extensions import override

from artifact.arrays import Array, Doubles
from artifact.backends.base import Tensors
from artifact.loading import LoadedModel
from artifact.series import Calibration
from artifact.tasks.any_series import AnySeries, AnySeriesManifest, season_class
from artifact.tasks.base import Answer, Computation, RunHead, RunModel, advance
from artifact.tasks.classification import Classification, ClassifierManifest
from artifact.tasks.forecasting import ForecasterManifest, Forecasting
from artifact.tasks.matching import MatcherManifest, Matching
from artifact.tasks.series_classification import SeriesClassification, SeriesClassifierManifest
from artifact.univariate import features as univariate
from artifact.univariate.features import FUTURE, PATCH
from service.app import create_app
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings
from tests.support.waiting import PATIENCE_S

T = TypeVar("T")
BUCKETS = (8, 16)
MAX_LENGTH, OVERLAP = 16, 4
"""Lengths of the rows of a classifier, in bytes."""
LABELS = ("negative", "positive")
MIN_LENGTH = 2
"""Lengths of the rows of a matcher, in bytes."""
GESTURES, AXES = ("rest", "wave"), ("x", "y")
"""Labels and channels of a classifier of series."""
STEPS, STEP_OVERLAP, RATE = 8, 2, 10.0
"""Lengths of its rows in steps, and steps per second."""
CHANNELS = ("load", "heat")
CONTEXT, HORIZON = 4, 3
MEAN, SCALE = 10.0, 2.0
LEVELS, ERRORS = (0.1, 0.5, 0.9), (-1.0, 0.0, 2.0)
"""Levels of the stored quantiles of nine calibration errors."""
TOKENS = (29, 1 + FUTURE + univariate.CONTEXT // PATCH)
"""Lengths of the rows of a forecaster of any series, in tokens."""
QUANTILES = np.linspace(-1, 1, len(univariate.LEVELS))[:, None] * np.sqrt(np.arange(1, univariate.HORIZON + 1))
"""Outputs of a forecaster of any series (levels, horizon), before they are multiplied."""
SHARES = (0.0, 0.25, 0.5, 1.0)
"""Its shares of the Theta forecast."""
SHA256 = "0" * 64
TEXT_INPUTS = [
    {"name": "bytes", "datatype": "UINT8", "shape": [-1, -1]},
    {"name": "lengths", "datatype": "INT32", "shape": [-1]},
]


class Backend:
    """Computes a function of the inputs.

    Args:
        output: name of the only output.
        compute: inputs -> output.

    """

    def __init__(self, output: str, compute: Callable[[Tensors], Array]) -> None:
        self.device: Literal["cpu", "cuda"] = "cpu"
        self.error: BaseException | None = None
        """If set, the next batches raise it."""
        self.batches: list[int] = []
        """Number of rows of each computed batch."""
        self.gate = threading.Event()
        """Batches wait until it is set."""
        self.gate.set()
        self._output = output
        self._compute = compute

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        """Compute one batch."""
        del limit_s
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.batches.append(len(next(iter(inputs.values()))))
        return {self._output: self._compute(inputs).astype(np.float32)}


def backend_of(model: LoadedModel) -> Backend:
    """Return the backend of a model of this module."""
    assert isinstance(model.backend, Backend)
    return model.backend


def head_of(model: LoadedModel) -> Backend:
    """Return the head of a matcher of this module."""
    assert isinstance(model.head, Backend)
    return model.head


def classifier(
    name: str = "mood", version: int = 1, kind: str = "words", thresholds: Sequence[float] | None = None
) -> LoadedModel:
    """Return a classifier of documents, of words or of bytes; with thresholds, of any number of labels."""
    manifest = ClassifierManifest.model_validate(
        {
            **_common(name, version, {"model": {"kind": kind}}),
            "task": "text-classification",
            "files": [_file("model.onnx", bucket) for bucket in BUCKETS],
            "inputs": TEXT_INPUTS,
            "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, len(LABELS)]}],
            "max_length": MAX_LENGTH,
            "window_overlap": OVERLAP,
            "labels": LABELS,
            "thresholds": thresholds,
        }
    )
    backend = Backend("logits", lambda inputs: np.log1p(_counts(inputs)[:, ::-1]))
    return LoadedModel(Classification(manifest), backend, "onnx", 0.5)


def matcher(name: str = "twins", version: int = 1) -> LoadedModel:
    """Return a matcher of documents."""
    manifest = MatcherManifest.model_validate(
        {
            **_common(name, version),
            "task": "text-matching",
            "files": [_file("model.onnx", bucket) for bucket in BUCKETS],
            "inputs": TEXT_INPUTS,
            "outputs": [{"name": "vectors", "datatype": "FP32", "shape": [-1, 2]}],
            "max_length": MAX_LENGTH,
            "window_overlap": OVERLAP,
            "min_length": MIN_LENGTH,
            "head": {
                "files": [_file("head.onnx", 2)],
                "inputs": [{"name": side, "datatype": "FP32", "shape": [-1, 2]} for side in "ab"],
                "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 1]}],
            },
        }
    )
    head = Backend("logits", lambda inputs: np.log1p((inputs["a"] * inputs["b"]).sum(axis=1, keepdims=True)))
    return LoadedModel(Matching(manifest), Backend("vectors", _counts), "onnx", 0.5, head)


def series_classifier(
    name: str = "gestures", version: int = 1, channels: Sequence[str] = AXES, rate: float | None = RATE, **more: object
) -> LoadedModel:
    """Return a classifier of series; `more` are other fields of its manifest."""
    count = len(channels)
    manifest = SeriesClassifierManifest.model_validate(
        {
            **_common(name, version),
            "task": "series-classification",
            "files": [_file("model.onnx", STEPS)],
            "inputs": [
                {"name": "stretched", "datatype": "FP32", "shape": [-1, STEPS, count]},
                {"name": "series", "datatype": "FP32", "shape": [-1, STEPS, count]},
                {"name": "lengths", "datatype": "INT32", "shape": [-1]},
            ],
            "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, len(GESTURES)]}],
            "labels": GESTURES,
            "channels": channels,
            "length": STEPS,
            "window_overlap": STEP_OVERLAP,
            "mean": [MEAN] * count,
            "scale": [SCALE] * count,
            "rate": rate,
            **more,
        }
    )
    return LoadedModel(SeriesClassification(manifest), Backend("logits", gesture_logits), "onnx", 0.5)


def gesture_logits(inputs: Tensors) -> Array:
    """Return the outputs of `series_classifier` for a batch."""
    wave = inputs["series"][:, :, 0].sum(axis=1) / inputs["lengths"] + inputs["stretched"][:, -1, -1]
    return np.stack([np.zeros(len(wave)), wave], axis=1)


def forecaster(
    name: str = "naive",
    version: int = 1,
    channels: Sequence[str] = CHANNELS,
    frequency: str = "1h",
    layout: Mapping[str, object] | None = None,
) -> LoadedModel:
    """Return a forecaster of series; without `layout`, of an export before manifests had one."""
    count = len(channels)
    manifest = ForecasterManifest.model_validate(
        {
            **_common(name, version),
            "task": "forecasting",
            "files": [_file("model.onnx", CONTEXT)],
            "inputs": [{"name": "series", "datatype": "FP32", "shape": [-1, CONTEXT, count]}],
            "outputs": [{"name": "forecast", "datatype": "FP32", "shape": [-1, HORIZON, count]}],
            "channels": list(channels),
            "mean": [MEAN] * count,
            "scale": [SCALE] * count,
            "context_length": CONTEXT,
            "horizon": HORIZON,
            "min_observations": 2,
            "frequency": frequency,
            **({} if layout is None else {"layout": layout}),
            "calibration": {"path": "calibration.npz", "sha256": SHA256},
            "calibration_source": "validation",
            "calibration_examples": 9,
            "quantiles_reliable": True,
        }
    )
    backend = Backend("forecast", lambda inputs: np.repeat(inputs["series"][:, -1:], HORIZON, axis=1))
    return LoadedModel(Forecasting(manifest, _calibration(count)), backend, "onnx", 0.5)


def any_series(name: str = "any", version: int = 1) -> LoadedModel:
    """Return a forecaster of any series; its outputs are QUANTILES times 1 + the first statistic of the series."""
    manifest = AnySeriesManifest.model_validate(
        {
            **_common(name, version),
            "task": "forecasting",
            "kind": "any-series",
            "files": [_file("model.onnx", bucket) for bucket in TOKENS],
            "inputs": [
                {"name": "tokens", "datatype": "FP32", "shape": [-1, -1, univariate.WIDTH]},
                {"name": "lengths", "datatype": "INT32", "shape": [-1]},
            ],
            "outputs": [{"name": "quantiles", "datatype": "FP32", "shape": [-1, -1, univariate.HORIZON]}],
            "context_length": univariate.CONTEXT,
            "horizon": univariate.HORIZON,
            "levels": univariate.LEVELS,
            "theta_shares": SHARES,
            "quantiles_reliable": True,
        }
    )
    backend = Backend("quantiles", lambda inputs: outputs_of(inputs["tokens"]))
    return LoadedModel(AnySeries(manifest), backend, "onnx", 0.5)


def outputs_of(tokens: Array) -> Array:
    """Return the outputs of `any_series` for tokens (B, tokens, WIDTH)."""
    outputs: Array = QUANTILES.astype(np.float32) * (1 + tokens[:, :1, :1])
    return outputs


def quantiles_of(values: Sequence[float], seasons: Sequence[int] = (1,)) -> Doubles:
    """Return the quantiles (levels, HORIZON) that `any_series` forecasts for one series without missing values."""
    prepared = univariate.prepare(np.array([values], np.float64)[:, -univariate.CONTEXT :], seasons)
    share = SHARES[season_class(seasons)]
    (quantiles,) = prepared.restore(outputs_of(prepared.tokens).astype(np.float64), share)
    return np.array(quantiles)


def compute(computation: Computation[T], outputs: Sequence[Sequence[Array]]) -> T:
    """Return the answer of a computation whose steps get these outputs."""
    step = advance(computation)
    for computed in outputs:
        assert isinstance(step, RunModel | RunHead)
        step = advance(computation, computed)
    assert isinstance(step, Answer)
    return step.value


def rows_of(computation: Computation[Any]) -> list[bytes]:
    """Return the rows of the first step of a computation."""
    step = advance(computation)
    assert isinstance(step, RunModel)
    return list(step.rows)


def answer(response: httpx.Response) -> Any:
    """Return the JSON of a response with numbers rounded to 6 places: the models compute in float32."""
    assert response.status_code == 200, response.text
    return response.json(parse_float=lambda text: round(float(text), 6))


class ServingClient(httpx.AsyncClient):
    """A client of the application and its models; it closes the engine when it is closed."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.engine = runtime.engine
        self.metrics = runtime.metrics
        self.parser = runtime.parser
        self.app = create_app(runtime=runtime)
        super().__init__(transport=httpx.ASGITransport(self.app, raise_app_exceptions=False), base_url="http://x")

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Close the client and the engine."""
        await super().__aexit__(exc_type, exc_value, traceback)
        self.runtime.close()

    def count(self, name: str, **labels: str) -> float:
        """Return a sample of a metric; 0 if there is none."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def serving(*models: LoadedModel, settings: Settings | None = None) -> ServingClient:
    """Return a client of an application that serves models without a socket; without `settings`, no deadline passes."""
    chosen, metrics = settings or Settings(deadline_s=PATIENCE_S), Metrics()
    engine = Engine(models, chosen, metrics)
    return ServingClient(Runtime(chosen, metrics, engine, Reloader(engine, chosen, metrics)))


def _common(name: str, version: int, recipe: Mapping[str, object] = MappingProxyType({})) -> dict[str, Any]:
    """Return the fields that every manifest has."""
    return {
        "schema_version": 2,
        "name": name,
        "version": version,
        "golden": {"path": "golden.npz", "sha256": SHA256},
        "tolerance": 1e-6,
        "training": {
            "recipe": dict(recipe),
            "data": "none",
            "device": "none",
            "seconds": 0,
            "examples_per_second": 0,
            "peak_memory_bytes": 0,
            "validation": {"metric": "none", "value": 0},
            "revision": "none",
        },
        "results": [],
        "data_terms": "None.",
        "non_commercial": False,
    }


def _file(path: str, bucket: int) -> dict[str, Any]:
    return {"path": path, "sha256": SHA256, "format": "onnx", "precision": "float32", "bucket": bucket}


def _counts(inputs: Tensors) -> Array:
    """Count pluses and minuses (rows, 2) within the lengths of rows."""
    is_inside = np.arange(inputs["bytes"].shape[1]) < inputs["lengths"][:, None]
    return np.stack([((inputs["bytes"] == ord(sign)) & is_inside).sum(axis=1) for sign in "+-"], axis=1)


def _calibration(channels: int) -> Calibration:
    """Return the errors of `forecaster`."""
    errors = np.broadcast_to(np.array(ERRORS, np.float32)[:, None, None], (len(LEVELS), HORIZON, channels))
    return Calibration(np.array(LEVELS), errors, 9)
