"""A whole recipe: one training run of one task."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, TypeAdapter, ValidationError, model_validator

from artifact.manifest import Name
from model.config.data import DocumentsConfig, PairsConfig, SeriesConfig
from model.config.models import ClassifierConfig, ForecasterConfig, MatcherConfig
from model.config.schema import Section, explain
from model.config.training import TrainingConfig


def _model_name(value: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(value)
    except ValidationError:
        raise ValueError(f"must be 1 to 64 of a-z, 0-9 and (inside) . _ -, not {value!r}") from None


class _Run(Section):
    """What the runs of all tasks have; each task has its own sections `data` and `model`."""

    name: Annotated[str, AfterValidator(_model_name)]
    """Name of the model, of its run folder and of its export."""
    seed: int
    """Seed of initialisation, order, crops and dropout."""
    training: TrainingConfig

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of plain values that `from_dict` reads back."""
        return self.model_dump()


class ClassificationRun(_Run):
    """Documents -> labels."""

    task: Literal["text-classification"]
    data: DocumentsConfig
    model: ClassifierConfig


class MatchingRun(_Run):
    """Pairs of documents -> scores."""

    task: Literal["text-matching"]
    data: PairsConfig
    model: MatcherConfig

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.training.batch_size % 2:
            raise ValueError(f"training.batch_size must be even, half of it positive, not {self.training.batch_size}")
        return self


class ForecastingRun(_Run):
    """Windows of a series -> their continuation."""

    task: Literal["forecasting"]
    data: SeriesConfig
    model: ForecasterConfig


RunConfig = ClassificationRun | MatchingRun | ForecastingRun

RUNS: dict[str, type[RunConfig]] = {
    "text-classification": ClassificationRun,
    "text-matching": MatchingRun,
    "forecasting": ForecastingRun,
}
"""Kind of run by its `task`."""


def from_dict(table: dict[str, Any]) -> RunConfig:
    """Build the run of a task from nested dicts. Raises: ValueError naming the key."""
    task = table.get("task")
    if not isinstance(task, str) or task not in RUNS:
        raise ValueError(f"task must be one of {', '.join(RUNS)}, not {task!r}")
    try:
        return RUNS[task].model_validate(table)
    except ValidationError as error:
        raise ValueError(explain(error)) from None
