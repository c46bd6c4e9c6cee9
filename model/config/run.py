"""Complete recipes: the configuration of one training run, by task."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, TypeAdapter, ValidationError, model_validator

from artifact.manifest import Name
from model.config.data import DocumentsConfig, GeneratedSeriesConfig, PairsConfig, RecordingsConfig, SeriesConfig
from model.config.models import (
    AnySeriesConfig,
    ClassifierConfig,
    ForecasterConfig,
    MatcherConfig,
    SeriesClassifierConfig,
)
from model.config.schema import Section, explain
from model.config.training import TrainingConfig


def _model_name(value: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(value)
    except ValidationError:
        raise ValueError(f"must be 1 to 64 of a-z, 0-9 and (inside) . _ -, not {value!r}") from None


class _Run(Section):
    """Keys shared by the recipes of all tasks; each task has its own sections `data` and `model`."""

    default_recipe: ClassVar[str]
    """Recipe if the user names the task only."""
    own_recipe: ClassVar[str]
    """Recipe for user data."""
    reads: ClassVar[Literal["texts", "recordings", "series"]] = "texts"
    """What user data holds: rows of texts, recordings with a label each, or one series, which is split by time."""

    name: Annotated[str, AfterValidator(_model_name)]
    """Name of the model, also used for its run folder and its export."""
    seed: int
    """Seed of initialisation, data order, crops and dropout."""
    training: TrainingConfig

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of plain values; inverse of `from_dict`."""
        return self.model_dump()


class ClassificationRun(_Run):
    """Recipe of text classification."""

    default_recipe: ClassVar[str] = "imdb-s3"
    own_recipe: ClassVar[str] = "documents"

    task: Literal["text-classification"]
    data: DocumentsConfig
    model: ClassifierConfig

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.data.unlabelled and (self.model.kind == "paper" or not self.model.ngram_vectors.epochs):
            raise ValueError("data.unlabelled must be false for a model without n-gram vectors, which learn from them")
        return self


class SeriesClassificationRun(_Run):
    """Recipe of the classification of series."""

    default_recipe: ClassVar[str] = "japanese-vowels"
    own_recipe: ClassVar[str] = "recordings"
    reads: ClassVar[Literal["texts", "recordings", "series"]] = "recordings"

    task: Literal["series-classification"]
    data: RecordingsConfig
    model: SeriesClassifierConfig


class MatchingRun(_Run):
    """Recipe of text matching."""

    default_recipe: ClassVar[str] = "aan"
    own_recipe: ClassVar[str] = "pairs"

    task: Literal["text-matching"]
    data: PairsConfig
    model: MatcherConfig

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.training.batch_size % 2:
            raise ValueError(
                f"training.batch_size must be even (one half are positive pairs), not {self.training.batch_size}"
            )
        return self


class ForecastingRun(_Run):
    """Recipe of forecasting."""

    default_recipe: ClassVar[str] = "ettm2-s3"
    own_recipe: ClassVar[str] = "forecasting"
    reads: ClassVar[Literal["texts", "recordings", "series"]] = "series"

    task: Literal["forecasting"]
    data: SeriesConfig
    model: ForecasterConfig


class AnySeriesRun(_Run):
    """Recipe of a forecaster of any series: of the task `forecasting`, if model.kind is `any-series`."""

    task: Literal["forecasting"]
    data: GeneratedSeriesConfig
    model: AnySeriesConfig


RunConfig = ClassificationRun | SeriesClassificationRun | MatchingRun | ForecastingRun | AnySeriesRun

RUNS: dict[str, type[RunConfig]] = {
    "text-classification": ClassificationRun,
    "series-classification": SeriesClassificationRun,
    "text-matching": MatchingRun,
    "forecasting": ForecastingRun,
}
"""Recipe class by the recipe's `task`."""


def from_dict(table: dict[str, Any]) -> RunConfig:
    """Create a recipe from nested dicts. Raises: ValueError naming the key."""
    task = table.get("task")
    if not isinstance(task, str) or task not in RUNS:
        raise ValueError(f"task must be one of {', '.join(RUNS)}, not {task!r}")
    model = table.get("model")
    is_any_series = isinstance(model, dict) and model.get("kind") == "any-series"
    kind = AnySeriesRun if task == "forecasting" and is_any_series else RUNS[task]
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise ValueError(explain(error)) from None
