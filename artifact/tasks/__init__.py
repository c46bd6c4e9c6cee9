"""The tasks, one class each."""

from artifact.tasks.base import Task
from artifact.tasks.classification import Classification
from artifact.tasks.forecasting import Forecasting
from artifact.tasks.matching import Matching

TASKS: dict[str, type[Task]] = {task.name: task for task in (Classification, Matching, Forecasting)}
"""Name -> task. Whatever lists the tasks reads it."""
