"""The tasks: their parts of training, evaluation and export. `task_of` selects the task of a recipe."""

from typing import Any

from model.config.run import RunConfig
from model.tasks.base import Task
from model.tasks.classification import Classification
from model.tasks.forecasting import Forecasting
from model.tasks.matching import Matching

TASKS: dict[str, type[Task[Any]]] = {
    "text-classification": Classification,
    "text-matching": Matching,
    "forecasting": Forecasting,
}


def task_of(config: RunConfig) -> Task[Any]:
    """Create the task of a recipe."""
    return TASKS[config.task](config)
