"""What each task adds to training, evaluation and export; `task_of` picks the one a recipe names."""

from model.config.run import ClassificationRun, ForecastingRun, MatchingRun, RunConfig
from model.tasks.base import Task
from model.tasks.classification import Classification
from model.tasks.forecasting import Forecasting
from model.tasks.matching import Matching


def task_of(config: RunConfig) -> Task:
    """The task of a recipe."""
    if isinstance(config, ClassificationRun):
        return Classification(config)
    if isinstance(config, MatchingRun):
        return Matching(config)
    assert isinstance(config, ForecastingRun)
    return Forecasting(config)
