"""What the classifiers of texts and of series share: labels, calibration, and the options of a result."""

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Self

from pydantic import Field, model_validator

from artifact.documents import OnOverflow
from artifact.manifest import ExportManifest, ManifestPart, Text

NUMBER_BYTES = 24
"""Maximum bytes of a number of 64 bits in JSON."""


class ReliabilityBin(ManifestPart):
    """Test examples whose top score falls into one bin; of any number of labels, each label of an example is one."""

    score: float
    """Mean top score; of any number of labels, mean score of all labels."""
    accuracy: float
    """Share of correct answers; of any number of labels, share of these that a document has."""
    examples: int


class LabelledManifest(ExportManifest):
    """Examples -> labels."""

    labels: tuple[Text, ...] = Field(min_length=2)
    temperature: float = Field(default=1.0, gt=0)
    """Calibration temperature. The exported weights are already divided by it."""
    reliability: tuple[ReliabilityBin, ...] = ()
    """Mean score and accuracy on the test split, by score bin."""

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if self.outputs[0].shape != (-1, len(self.labels)):
            raise ValueError(f"{len(self.labels)} labels do not fit outputs of shape {self.outputs[0].shape}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ")
        return self


class ResultOptions(NamedTuple):
    """What a result holds."""

    top_k: int | None = None
    """Number of scores to return, best first; None, or a number above the number of labels, returns all."""
    on_overflow: OnOverflow = "windows"
    """How inputs longer than the model reads were read."""
    detail: bool = False
    """Whether to return the contributions of each stretch, and for documents the scores of each window."""


def ranked(
    scores: Sequence[float], labels: Sequence[str], top_k: int | None, thresholds: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """Labels with their scores, and thresholds if they have any, best score first; at most `top_k`."""
    columns: dict[str, Sequence[Any]] = {"label": labels, "score": scores}
    if thresholds is not None:
        columns["threshold"] = thresholds
    rows = sorted(zip(*columns.values(), strict=True), key=itemgetter(1), reverse=True)
    return [dict(zip(columns, row, strict=True)) for row in rows[:top_k]]


def label_bytes(labels: Sequence[str]) -> list[int]:
    """Bytes of each label in JSON, the longest first."""
    return sorted((len(json.dumps(label, ensure_ascii=False).encode()) for label in labels), reverse=True)


def max_stretch_bytes(lengths: Sequence[int]) -> int:
    """Maximum bytes in JSON of a stretch with its contributions to labels of these lengths."""
    frame = len('{"start":,"end":,"contributions":{}},') + 2 * NUMBER_BYTES
    return frame + sum(lengths) + (NUMBER_BYTES + len(":,")) * len(lengths)
