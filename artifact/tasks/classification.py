"""Text classification: documents -> labels with scores."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from artifact.arrays import Array, Floats
from artifact.documents import OnOverflow, Span, TextCoverage, WordCounts, bytes_used, combine, cut, take
from artifact.encodings import as_text
from artifact.errors import InvalidInput
from artifact.manifest import ManifestPart, TextManifest
from artifact.tasks.base import Answer, Computation, RunModel, Task, Tensor, TensorAnswer, VectorCache
from artifact.tasks.labels import (
    NUMBER_BYTES,
    LabelledManifest,
    ResultOptions,
    label_bytes,
    max_stretch_bytes,
    ranked,
)

KNOWN_SHAPE = (-1, 2)
"""Shape of the output of a classifier that counts known words: rows, and the number of known words and of all words."""


class Stretches(ManifestPart):
    """Parts of a document whose contributions to the logits are the second output of a classifier.

    The logits of a row are `base` plus the contributions of its stretches.
    """

    length: int = Field(gt=0)
    """Number of bytes of a stretch; the last one of a row may be shorter."""
    base: tuple[float, ...]
    """Part of the logits that is the same for all documents, (classes,)."""


class KnownWords(ManifestPart):
    """`TextCoverage.known` of the documents of the validation split."""

    low: float = Field(ge=0, le=1)
    """1st percentile: 99 % of the documents have at least this share."""
    median: float = Field(ge=0, le=1)


class ClassifierManifest(LabelledManifest, TextManifest):
    """Documents -> labels."""

    task: Literal["text-classification"]
    words: Literal["unicode"] | None = None
    """Rule by which the model finds words. None for models of bytes, and for exports of before this rule, whose words
    consist of ASCII letters, digits and bytes above 127."""
    stretches: Stretches | None = None
    """None if the model returns logits only."""
    known: KnownWords | None = None
    """Shares of known words that are normal for the model; None if it does not count words."""
    thresholds: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None
    """Score from which each label applies, chosen on validation, if a document may have any number of labels; each
    score is then the sigmoid of a logit. None if a document has one label; the scores are the softmax of the logits."""

    @property
    def counts_words(self) -> bool:
        """Whether the third output is the number of known words and of all words of each row."""
        return len(self.outputs) == 3

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
        if self.thresholds is not None and len(self.thresholds) != len(self.labels):
            raise ValueError(f"{len(self.labels)} labels do not fit {len(self.thresholds)} thresholds")
        return self

    @model_validator(mode="after")
    def _check_known(self) -> Self:
        if self.known is not None and not self.counts_words:
            raise ValueError(f"`known` needs a third output; outputs has {len(self.outputs)}")
        return self

    @model_validator(mode="after")
    def _check_stretches(self) -> Self:
        shapes = tuple(spec.shape for spec in self.outputs[1:])
        if self.stretches is None:
            if shapes:
                raise ValueError(f"a second output needs `stretches`; outputs has {1 + len(shapes)}")
            return self
        if not shapes or len(shapes[0]) != 3 or shapes[0][::2] != (-1, len(self.labels)):
            raise ValueError(f"`stretches` need a second output of shape (-1, any, {len(self.labels)}), not {shapes}")
        if shapes[1:] not in ((), (KNOWN_SHAPE,)):
            raise ValueError(f"a third output has the shape {KNOWN_SHAPE}, and there is no fourth; found {shapes[1:]}")
        if len(self.stretches.base) != len(self.labels):
            raise ValueError(f"{len(self.labels)} labels do not fit a base of {len(self.stretches.base)} numbers")
        return self


@dataclass(frozen=True, slots=True)
class RowScores:
    """What the model computed for one row of a document."""

    spans: list[Span]
    """Parts of the document in the row."""
    scores: list[float]
    """Of each label, from 0 to 1; their sum is 1 if a document has one label."""
    contributions: Floats
    """(stretches, classes); those of the padding may be included."""


@dataclass(frozen=True, slots=True)
class ClassifiedDocument:
    """Result for one document."""

    scores: list[float]
    """Of each label, from 0 to 1; their sum is 1 if a document has one label."""
    coverage: TextCoverage
    plan: list[list[Span]]
    """Parts of the document in each row."""
    outputs: Sequence[Floats]
    """Outputs of the model for each row."""
    task: "Classification"

    @property
    def rows(self) -> list[RowScores]:
        """The rows in detail."""
        return [
            RowScores(spans, *self.task.split(output)) for spans, output in zip(self.plan, self.outputs, strict=True)
        ]

    @property
    def chosen(self) -> list[str] | None:
        """The labels whose score reaches their threshold, best score first; None if a document has one label."""
        manifest = self.task.manifest
        if manifest.thresholds is None:
            return None
        found = sorted(zip(self.scores, manifest.thresholds, manifest.labels, strict=True), key=lambda one: -one[0])
        return [label for score, threshold, label in found if score >= threshold]

    def as_json(self, options: ResultOptions) -> dict[str, Any]:
        """The JSON object returned to clients, best score first."""
        labels, thresholds = self.task.manifest.labels, self.task.manifest.thresholds
        scores = ranked(self.scores, labels, options.top_k, thresholds)
        result: dict[str, Any] = {
            "label": scores[0]["label"],
            "score": scores[0]["score"],
            **({} if (chosen := self.chosen) is None else {"labels": chosen}),
            "scores": scores,
            "coverage": self.coverage.as_json(options.on_overflow),
        }
        if options.detail:
            rows = self.rows
            result["windows"] = [
                {"start": start, "end": end, "scores": ranked(row.scores, labels, options.top_k, thresholds)}
                for row in rows
                for start, end in row.spans
            ]
            kept = [score["label"] for score in scores]
            result["stretches"] = [
                {"start": start, "end": end, "contributions": {label: contributions[label] for label in kept}}
                for start, end, contributions in self._stretches(rows)
            ]
        return result

    def _stretches(self, rows: Sequence[RowScores]) -> list[tuple[int, int, dict[str, float]]]:
        """Start and end byte of each stretch, and its contribution to the document's logit of each label, by start.

        The document's logits, the mean over its rows, are the sum of the contributions and of the manifest's base.
        Stretches of overlapping windows overlap. In a row of `head_tail`, a stretch that begins in the head and ends in
        the tail includes the bytes between, which the model does not read.
        """
        labels = self.task.manifest.labels
        found = list[tuple[int, int, dict[str, float]]]()
        for row in rows:
            bounds = stretch_bounds(row.spans, self.task.stretch_bytes)
            shares = row.contributions[: len(bounds)].astype(np.float64) / len(rows)
            found += [
                (start, end, dict(zip(labels, share, strict=True)))
                for (start, end), share in zip(bounds, shares.tolist(), strict=True)
            ]
        return sorted(found, key=lambda stretch: stretch[:2])


class Classification(Task):
    """A classifier of texts."""

    name: ClassVar[str] = "text-classification"
    kind: ClassVar[str] = "classifier"
    manifest_type = ClassifierManifest
    operations: ClassVar[tuple[str, ...]] = ("classify",)
    public = frozenset(
        {
            "labels",
            "thresholds",
            "max_length",
            "window_overlap",
            "temperature",
            "reliability",
            "stretches",
            "known",
        }
    )

    manifest: ClassifierManifest

    def __init__(self, manifest: ClassifierManifest) -> None:
        self.manifest = manifest
        self._classes = len(manifest.labels)
        self._label_bytes = label_bytes(manifest.labels)
        # without contributions, each row is one stretch that contributes its logits
        self._contributions, self.stretch_bytes = slice(0, None), manifest.max_length
        if manifest.stretches is not None:
            end = -KNOWN_SHAPE[1] if manifest.counts_words else None
            self._contributions, self.stretch_bytes = slice(self._classes, end), manifest.stretches.length

    def classify(
        self, documents: Sequence[bytes], on_overflow: OnOverflow, place: str = "inputs"
    ) -> Computation[list[ClassifiedDocument]]:
        """Classify documents of any length.

        Args:
            documents: raw bytes of each document.
            on_overflow: how to read documents longer than the model's max_length.
            place: name of the field with the documents, for errors.

        Raises: InvalidInput naming the document.

        """
        plans = list[list[list[Span]]]()
        texts = list[bytes]()
        for index, document in enumerate(documents):
            try:
                text = as_text(document) if self.manifest.reads_text else document
                plans.append(cut(len(text), self.manifest.max_length, self.manifest.window_overlap, on_overflow))
            except InvalidInput as error:
                where = f"input {index}" if place == "inputs" else f"{place}.{index}"
                raise InvalidInput(f"{where}: {error}", [(f"{place}.{index}", str(error))]) from None
            texts.append(text)
        outputs = yield RunModel([take(text, spans) for text, plan in zip(texts, plans, strict=True) for spans in plan])
        results, first = list[ClassifiedDocument](), 0
        for text, plan in zip(texts, plans, strict=True):
            own = outputs[first : first + len(plan)]
            scores = self._scores(own)
            coverage = TextCoverage(len(text), bytes_used(plan), len(plan), self._words(own))
            results.append(ClassifiedDocument(scores, coverage, plan, own, self))
            first += len(plan)
        return Answer(results, [result.coverage for result in results])

    def split(self, output: Floats) -> tuple[list[float], Floats]:
        """Scores of a row and contributions of its stretches (stretches, classes), from its output."""
        return self._scores([output]), output[self._contributions].reshape(-1, self._classes)

    def _scores(self, outputs: Sequence[Floats]) -> list[float]:
        """Scores of a document, from the outputs of its rows."""
        logits = [output[: self._classes] for output in outputs]
        return combine(logits, has_one_label=self.manifest.thresholds is None)

    def _words(self, outputs: Sequence[Floats]) -> WordCounts | None:
        """Sum of the counts of rows, from their outputs; None if the model does not count words."""
        if not self.manifest.counts_words:
            return None
        return WordCounts.sum(WordCounts(*map(int, output[-KNOWN_SHAPE[1] :].tolist())) for output in outputs)

    @property
    def tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Text in, scores and best label out; of any number of labels also the chosen ones, a list of them as JSON."""
        names = ["label"] if self.manifest.thresholds is None else ["label", "labels"]
        scores, *texts = Tensor("scores", "FP32", (-1, self._classes)), *(Tensor(one, "BYTES", (-1,)) for one in names)
        return (Tensor("text", "BYTES", (-1, 1)),), (scores, *texts)

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """The labels, in the order of the scores, and their thresholds if a document may have any number of them."""
        parameters: dict[str, str | list[str]] = {"labels": list(self.manifest.labels)}
        if self.manifest.thresholds is not None:
            parameters["thresholds"] = [str(threshold) for threshold in self.manifest.thresholds]
        return parameters

    def infer(
        self, inputs: Mapping[str, Any], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[TensorAnswer]:
        """Classify the elements of `text`."""
        del cache
        answer = yield from self.classify(inputs["text"], on_overflow, "text")
        scores = np.array([result.scores for result in answer.value])
        labels = np.array(self.manifest.labels, object)[scores.argmax(axis=1)]
        outputs: dict[str, Array] = {"scores": scores.astype("<f4"), "label": labels}
        if self.manifest.thresholds is not None:
            chosen = [json.dumps(result.chosen, ensure_ascii=False) for result in answer.value]
            outputs["labels"] = np.array(chosen, object)
        read = [result.coverage for result in answer.value]
        return Answer(TensorAnswer(outputs, TextCoverage.sums(read)), read)

    def count_contributions(self, documents: Sequence[bytes], top_k: int | None) -> int:
        """Contributions in an answer with `detail`; overlapping windows have up to twice as many."""
        labels = self._classes if top_k is None else min(top_k, self._classes)
        return labels * sum(-(-len(document) // self.stretch_bytes) for document in documents)

    def max_detail_bytes(self, size: int, options: ResultOptions) -> int:
        """Maximum bytes of windows and stretches in the JSON of a document of `size` bytes; 0 without `detail`."""
        if not options.detail:
            return 0
        lengths = self._label_bytes[: options.top_k]
        window_bytes = len('{"start":,"end":,"scores":[]},') + 2 * NUMBER_BYTES
        score_bytes = NUMBER_BYTES + len('{"label":,"score":},')
        if self.manifest.thresholds is not None:
            score_bytes += NUMBER_BYTES + len('"threshold":,')
        window_bytes += sum(lengths) + score_bytes * len(lengths)
        rows, length = 1, min(size, self.manifest.max_length)
        if options.on_overflow == "windows":
            rows = len(cut(size, self.manifest.max_length, self.manifest.window_overlap, "windows"))
        stretches = rows * -(-length // self.stretch_bytes)
        windows = rows + 1  # `head_tail` reads two parts in one row
        return windows * window_bytes + stretches * max_stretch_bytes(lengths) + len('"windows":[],"stretches":[],')


def stretch_bounds(spans: Sequence[Span], length: int) -> list[Span]:
    """Start and end in the document of each stretch of `length` bytes of a row; the last may be shorter."""
    positions = np.concatenate([np.arange(start, end) for start, end in spans])
    starts = positions[::length]
    last = np.append(positions[length - 1 :: length], positions[-1])[: len(starts)]
    return list(zip(starts.tolist(), (last + 1).tolist(), strict=True))
