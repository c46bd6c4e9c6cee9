"""Classification of series: recordings of one or several channels -> labels with scores."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from artifact.arrays import Array, Doubles, Floats
from artifact.documents import OnOverflow, Span, combine, cut
from artifact.errors import InvalidInput
from artifact.manifest import Format, Text
from artifact.recordings import (
    STRETCHES,
    Recording,
    RecordingCoverage,
    Scaling,
    check_rate,
    recording_of,
    row_bytes,
    rows_of,
    stretch_bounds,
    unpack_rows,
    without,
)
from artifact.series import Column
from artifact.tasks.base import (
    Answer,
    Computation,
    RunModel,
    StepOutputs,
    Task,
    Tensor,
    TensorAnswer,
    VectorCache,
    Work,
)
from artifact.tasks.labels import LabelledManifest, ResultOptions, label_bytes, max_stretch_bytes, ranked

VALUES_PER_ITEM = 512
"""Checking and preparing so many values takes about as long as one item of a server's other work."""


class SeriesClassifierManifest(LabelledManifest):
    """Recordings -> labels."""

    task: Literal["series-classification"]
    channels: tuple[Text, ...] = Field(min_length=1)
    length: int = Field(gt=1)
    """Number of steps that the model reads; longer recordings are read in windows."""
    window_overlap: int = Field(ge=0)
    """Minimum overlap of neighbouring windows in steps."""
    mean: tuple[float, ...]
    """Training mean of each channel; the model reads (value - mean) / scale."""
    scale: tuple[Annotated[float, Field(gt=0)], ...]
    own_scale: tuple[Text, ...] = ()
    """Channels that the model reads a second time, with the mean and deviation that they have in the recording."""
    rate: Annotated[float, Field(gt=0)] | None = None
    """Steps per second of the training data; None if unknown."""
    id_column: str = ""
    time_column: str = ""
    day_first: bool = False
    """What `predict` needs besides to read a table like that of the training data; see `RecordingLayout`."""

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        """Check what serving relies on."""
        count = len(self.channels)
        if len(set(self.channels)) != count:
            raise ValueError("channels must differ")
        if not len(self.mean) == len(self.scale) == count:
            raise ValueError(f"{count} channels need as many means and scales")
        if self.window_overlap >= self.length:
            raise ValueError(f"window_overlap {self.window_overlap} must be below length {self.length}")
        if unknown := set(self.own_scale) - set(self.channels):
            raise ValueError(f"own_scale has {min(unknown)}, which is not one of the channels")
        if len(set(self.own_scale)) != len(self.own_scale):
            raise ValueError("the channels of own_scale must differ")
        shape = (-1, self.length, self.scaling.num_columns)
        expected = (("stretched", "FP32", shape), ("series", "FP32", shape), ("lengths", "INT32", (-1,)))
        if (found := tuple((spec.name, spec.datatype, spec.shape) for spec in self.inputs)) != expected:
            columns = f"{count} channels and {len(self.own_scale)} of own_scale need {self.scaling.num_columns} columns"
            raise ValueError(f"inputs are {found}; expected {expected}: {columns}")
        if len(self.outputs) > 1:
            raise ValueError(f"the only output is the logits; outputs has {len(self.outputs)}")
        if {file.bucket for file in self.files} != {self.length}:
            raise ValueError(f"the bucket must be {self.length}, the length")
        return self

    @cached_property
    def scaling(self) -> Scaling:
        """How values are standardised."""
        own = tuple(map(self.channels.index, self.own_scale))
        return Scaling(np.array(self.mean), np.array(self.scale), self.rate, own)


class StretchContribution(NamedTuple):
    """What a stretch of a recording contributes to its logits."""

    start: int
    end: int
    contributions: Floats
    """(classes,): the recording's logits less those of the recording with a straight line in place of the stretch."""


@dataclass(frozen=True, slots=True)
class ClassifiedRecording:
    """Result for one recording."""

    scores: list[float]
    """Of each label, summing to 1."""
    coverage: RecordingCoverage
    stretches: Sequence[StretchContribution]
    """Empty without `detail`."""
    task: "SeriesClassification"

    def as_json(self, options: ResultOptions) -> dict[str, Any]:
        """The JSON object returned to clients, best score first."""
        labels = self.task.manifest.labels
        scores = ranked(self.scores, labels, options.top_k)
        result: dict[str, Any] = {
            **scores[0],
            "scores": scores,
            "coverage": self.coverage.as_json(options.on_overflow),
        }
        if options.detail:
            kept = [score["label"] for score in scores]
            result["stretches"] = [
                {"start": part.start, "end": part.end, "contributions": {label: found[label] for label in kept}}
                for part in self.stretches
                for found in (dict(zip(labels, part.contributions.tolist(), strict=True)),)
            ]
        return result


@dataclass(frozen=True)
class _Planned:
    """A recording that is classified."""

    standardised: Doubles
    """(steps, columns)."""
    plan: list[list[Span]]
    """Spans of each row, in these steps."""
    coverage: RecordingCoverage


class SeriesClassification(Task):
    """A classifier of series."""

    name: ClassVar[str] = "series-classification"
    kind: ClassVar[str] = "series_classifier"
    manifest_type = SeriesClassifierManifest
    operations: ClassVar[tuple[str, ...]] = ("classify",)
    field: ClassVar[str] = "series"
    public = frozenset({"labels", "channels", "length", "window_overlap", "rate", "temperature", "reliability"})

    manifest: SeriesClassifierManifest

    def __init__(self, manifest: SeriesClassifierManifest) -> None:
        self.manifest = manifest
        self._label_bytes = label_bytes(manifest.labels)

    def row_lengths(self, format: Format) -> list[int]:
        """Bytes of a row; the buckets of the files are in steps."""
        return [row_bytes(steps, self.manifest.scaling.num_columns) for steps in super().row_lengths(format)]

    def pack(self, rows: Sequence[bytes], bucket: int) -> dict[str, Array]:
        """Inputs of the graph; all rows have the same length."""
        del bucket
        return dict(unpack_rows(rows, self.manifest.length, self.manifest.scaling.num_columns))

    def recording(
        self,
        columns: Sequence[Column | Array],
        names: Sequence[str] | None,
        rate: float | None = None,
        place: str = "series",
    ) -> Recording:
        """Check a recording; arguments as those of `recording_of`. Raises: InvalidInput naming the channel."""
        return recording_of(columns, names, self.manifest.channels, rate, place)

    def classify(
        self, recordings: Sequence[Recording], on_overflow: OnOverflow = "windows", *, detail: bool = False
    ) -> Computation[list[ClassifiedRecording]]:
        """Classify recordings of any length.

        Args:
            recordings: what `recording` returned.
            on_overflow: how to read recordings longer than the model reads.
            detail: whether to compute the contributions of stretches, for which the windows of each stretch are
                computed again without it.

        Raises: InvalidInput naming the recording.

        """
        planned = [self._plan(recording, on_overflow) for recording in recordings]
        length = self.manifest.length
        outputs = yield RunModel([row for one in planned for row in rows_of(one.standardised, one.plan, length)])
        results, first = list[ClassifiedRecording](), 0
        for one in planned:
            own = outputs[first : first + len(one.plan)]
            first += len(one.plan)
            stretches = (yield from self._stretches(one, np.stack(own))) if detail else []
            results.append(ClassifiedRecording(combine(own), one.coverage, stretches, self))
        return Answer(results, [result.coverage for result in results])

    def _plan(self, recording: Recording, on_overflow: OnOverflow) -> _Planned:
        """Prepare a recording. Raises: InvalidInput."""
        manifest = self.manifest
        standardised = manifest.scaling.standardise(recording)
        steps, count = len(standardised), len(recording.values)
        if on_overflow == "error" and steps > manifest.length:
            message = f"the recording has {steps} steps; the model reads {manifest.length} and on_overflow is 'error'"
            raise InvalidInput.at(recording.place, message)
        plan = cut(steps, manifest.length, manifest.window_overlap, on_overflow)
        known = ~np.isnan(recording.values)
        read = np.zeros(count, bool)
        for start, end in (span for spans in plan for span in spans):
            read[start * count // steps : -(-end * count // steps)] = True
        used = int(known[read].sum())
        coverage = RecordingCoverage(
            observations_total=int(known.sum()),
            observations_used=used,
            imputed=int(read.sum()) * known.shape[1] - used,
            context_length=manifest.length,
            steps=count,
            windows=len(plan),
            is_resampled=recording.rate not in (None, manifest.rate),
        )
        return _Planned(standardised, plan, coverage)

    def _stretches(self, one: _Planned, outputs: Floats) -> Generator[Work, StepOutputs, list[StretchContribution]]:
        """Compute the windows of each stretch again without it. `outputs` (windows, classes) are those of the whole."""
        steps, sent = len(one.standardised), one.coverage.steps
        bounds = stretch_bounds(min(steps, sent))
        rows, places = list[bytes](), list[tuple[int, int]]()
        for stretch, (start, end) in enumerate(_scaled(bounds, steps)):
            touched = [
                window
                for window, spans in enumerate(one.plan)
                if any(first < end and start < last for first, last in spans)
            ]
            changed = without(one.standardised, start, end)
            rows += rows_of(changed, [one.plan[window] for window in touched], self.manifest.length)
            places += [(stretch, window) for window in touched]
        found = yield RunModel(rows)
        contributions = np.zeros((len(bounds), outputs.shape[1]), np.float32)
        for (stretch, window), output in zip(places, found, strict=True):
            contributions[stretch] += (outputs[window] - output) / len(outputs)
        spans = _scaled(bounds, sent)
        return [StretchContribution(*span, part) for span, part in zip(spans, contributions, strict=True)]

    def count_items(self, recordings: int, values: int, *, detail: bool = False) -> int:
        """Number of items of recordings with so many values, as servers count the work to check and prepare them."""
        return (recordings + values // VALUES_PER_ITEM) * (1 + STRETCHES if detail else 1)

    def count_values(self, recordings: Sequence[Recording]) -> int:
        """Values of recordings at the rate of the model. Raises: InvalidInput, as `Scaling.steps_of`."""
        steps = sum(self.manifest.scaling.steps_of(recording) for recording in recordings)
        return steps * self.manifest.scaling.num_columns

    def count_contributions(self, recordings: int, top_k: int | None) -> int:
        """Maximum number of contributions in an answer with `detail`."""
        labels = len(self.manifest.labels)
        return recordings * STRETCHES * (labels if top_k is None else min(top_k, labels))

    def max_detail_bytes(self, options: ResultOptions) -> int:
        """Maximum bytes of the stretches of a recording in JSON; 0 without `detail`."""
        if not options.detail:
            return 0
        return STRETCHES * max_stretch_bytes(self._label_bytes[: options.top_k]) + len('"stretches":[],')

    @property
    def tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Recordings of equal length in, shorter ones end in NaN, and their rate; scores and best label out."""
        series = Tensor("series", "FP32", (-1, -1, len(self.manifest.channels)))
        rate = Tensor("rate", "FP32", (-1,), is_optional=True)
        scores = Tensor("scores", "FP32", (-1, len(self.manifest.labels)))
        return (series, rate), (scores, Tensor("label", "BYTES", (-1,)))

    def rate_of(self, inputs: Mapping[str, Any]) -> float | None:
        """Steps per second of the recordings of a tensor, if given. Raises: InvalidInput unless it is one number."""
        if "rate" not in inputs:
            return None
        if len(inputs["rate"]) != 1:
            raise InvalidInput.at("rate", f"must be one number, for all recordings, not {len(inputs['rate'])}")
        rate, own = float(inputs["rate"][0]), self.manifest.rate
        return own if own is not None and np.float32(own) == rate else rate

    def count_tensor_values(self, inputs: Mapping[str, Any]) -> int:
        """Values of the recordings of a tensor at the rate of the model. Raises: InvalidInput, as `recording`."""
        series, rate = inputs["series"], self.rate_of(inputs)
        check_rate(rate)
        return self.count_values([Recording(series[0], rate)]) * len(series) if len(series) else 0

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """The labels, in the order of the scores, and the channels."""
        return {"labels": list(self.manifest.labels), "channels": list(self.manifest.channels)}

    def infer(
        self, inputs: Mapping[str, Any], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[TensorAnswer]:
        """Classify the rows of `series`; NaN is a missing value. `rate` has their steps per second."""
        del cache
        rate = self.rate_of(inputs)
        recordings = [
            self.recording(values.T, None, rate, f"series.{index}") for index, values in enumerate(inputs["series"])
        ]
        answer = yield from self.classify(recordings, on_overflow)
        scores = np.array([result.scores for result in answer.value])
        labels = np.array(self.manifest.labels, object)[scores.argmax(axis=1)]
        outputs: dict[str, Array] = {"scores": scores.astype("<f4"), "label": labels}
        read = [result.coverage for result in answer.value]
        return Answer(TensorAnswer(outputs, RecordingCoverage.sums(read)), read)


def _scaled(bounds: Sequence[Span], steps: int) -> list[Span]:
    """The same parts of a recording that has `steps` steps."""
    count = bounds[-1][1]
    return [(round(start * steps / count), round(end * steps / count)) for start, end in bounds]
