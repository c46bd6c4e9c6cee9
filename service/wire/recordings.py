"""Recordings in requests: parsed, checked, and classified."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from artifact.arrays import Doubles
from artifact.recordings import Recording
from artifact.tasks.base import Computation
from artifact.tasks.labels import ResultOptions
from artifact.tasks.series_classification import ClassifiedRecording, SeriesClassification
from service.errors import PayloadTooLarge
from service.offload import offload
from service.wire.parsing import MAX_VALUES
from service.wire.schemas import SentSeries


class SentRecording(NamedTuple):
    """A recording of a request, which is to be checked by the model."""

    place: str
    """Location in the request."""
    names: list[str] | None
    """Names of the channels; None if they are identified by position."""
    columns: list[Doubles]
    """Values of each channel; NaN if missing."""
    rate: float | None = None

    @classmethod
    def of(cls, place: str, sent: SentSeries, rate: float | None = None) -> "SentRecording":
        """Convert the values of a validated series to arrays."""
        return cls(place, sent.names, [np.array(column, np.float64) for column in sent.columns], rate)

    @property
    def size(self) -> int:
        """Number of values."""
        return sum(len(column) for column in self.columns)


class CheckedRecordings(NamedTuple):
    """Recordings that a model can classify."""

    task: SeriesClassification
    recordings: list[Recording]
    values: int
    """Number of values at the rate of the model."""
    items: int
    """Number of items, as `offload` counts them."""

    @classmethod
    async def of(
        cls,
        task: SeriesClassification,
        sent: Sequence[SentRecording],
        *,
        most: int | None = None,
        detail: bool = False,
    ) -> "CheckedRecordings":
        """Check recordings.

        Args:
            task: that of the model.
            sent: the recordings.
            most: maximum number of values at the rate of the model; None means MAX_VALUES. As many as were sent are
                always allowed: their number is limited when they are read.
            detail: whether contributions are computed.

        Raises: InvalidInput naming the channel; PayloadTooLarge for more values.

        """
        size = sum(one.size for one in sent)
        recordings = await offload(task.count_items(len(sent), size), _check, task, sent)
        count = task.count_values(recordings)
        check_values(count, size, most)
        return cls(task, recordings, count, task.count_items(len(sent), count, detail=detail))

    @property
    def nbytes(self) -> int:
        """Bytes that the values hold at the rate of the model: in float64, and twice in float32 in rows."""
        return self.values * (8 + 2 * 4)

    def classify(self, options: ResultOptions) -> Computation[list[ClassifiedRecording]]:
        """Classify them."""
        return self.task.classify(self.recordings, options.on_overflow, detail=options.detail)


def check_values(count: int, sent: int, most: int | None = None) -> None:
    """Check the number of values at the rate of a model, as `CheckedRecordings.of`. Raises: PayloadTooLarge."""
    if count > (limit := max(sent, MAX_VALUES if most is None else most)):
        raise PayloadTooLarge(f"there would be {count} values at the rate of the model; at most {limit} are allowed")


def _check(task: SeriesClassification, sent: Iterable[SentRecording]) -> list[Recording]:
    return [task.recording(one.columns, one.names, one.rate, one.place) for one in sent]
