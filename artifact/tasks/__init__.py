"""The tasks, one class each."""

from artifact.manifest import ExportManifest
from artifact.tasks.any_series import AnySeries
from artifact.tasks.base import Task
from artifact.tasks.classification import Classification
from artifact.tasks.forecasting import Forecasting
from artifact.tasks.matching import Matching
from artifact.tasks.series_classification import SeriesClassification

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Classification, SeriesClassification, Matching, Forecasting)
}
"""Name -> task. Whatever lists the tasks reads it."""
CLASSES: dict[type[ExportManifest], type[Task]] = {
    task.manifest_type: task for task in (Classification, SeriesClassification, Matching, Forecasting, AnySeries)
}
"""Manifest -> task. A forecaster is of the channels that it was trained on, or of any series."""
