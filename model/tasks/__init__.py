"""The tasks: their parts of training, evaluation and export. `task_of` selects the task of a recipe."""

from typing import Any, assert_never

from model.config.run import (
    AnySeriesRun,
    ClassificationRun,
    ForecastingRun,
    MatchingRun,
    RunConfig,
    SeriesClassificationRun,
)
from model.tasks.any_series import AnySeriesTask
from model.tasks.base import TrainingTask
from model.tasks.bytes import ByteTask
from model.tasks.classification import ClassificationTask
from model.tasks.forecasting import ForecastingTask
from model.tasks.lexical_matching import LexicalMatchingTask
from model.tasks.matching import MatchingTask
from model.tasks.series_classification import SeriesClassificationTask
from model.tasks.words import WordTask
from model.training.checkpoint import Facts

CLASSIFIERS: dict[str, type[ClassificationTask]] = {"bytes": ByteTask, "paper": ClassificationTask, "words": WordTask}
"""Task of a text classifier by its kind."""


def task_of(config: RunConfig, facts: Facts | None = None) -> TrainingTask[Any, Any, Any]:
    """The task of a recipe, with what is known of its data."""
    match config:
        case ClassificationRun():
            return CLASSIFIERS[config.model.kind](config, facts or {})
        case SeriesClassificationRun():
            return SeriesClassificationTask(config, facts or {})
        case MatchingRun():
            kind = MatchingTask if config.model.lexical_view is None else LexicalMatchingTask
            return kind(config, facts or {})
        case ForecastingRun():
            return ForecastingTask(config, facts or {})
        case AnySeriesRun():
            return AnySeriesTask(config, facts or {})
        case _:
            assert_never(config)
