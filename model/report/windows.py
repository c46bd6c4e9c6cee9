"""Sections about forecasters."""

from collections.abc import Iterator

import numpy as np

from model.report import figures
from model.report.content import Note, Picture, Section
from model.tasks.predictions import WindowPredictions

MOST_WINDOWS, MOST_PICTURES = 3, 12
"""Windows of a channel, and pictures of all channels."""
MOST_STEPS = 400
"""Known values that are drawn."""


def sections(found: WindowPredictions) -> Iterator[Section]:
    """All sections about forecasts."""
    yield Section("Forecasts", list(_forecasts(found)))


def _forecasts(found: WindowPredictions) -> Iterator[Note | Picture]:
    """Forecasts beside the truth, for windows from the beginning to the end of the test split."""
    rivals = [rival for rival in found.rivals if np.isfinite(rival.scores).all()]
    yield Note("The model with its 80 % band, and the baselines, beside the truth.")
    windows = np.unique(np.linspace(0, len(found.origins) - 1, MOST_WINDOWS).astype(np.int64)).tolist()
    most = MOST_PICTURES // len(windows)
    for place, channel in list(enumerate(found.channels))[:most]:
        for window in windows:
            part = np.stack([values[window, :, place] for values in (found.low, found.forecast, found.high)])
            others = [rival._replace(scores=rival.scores[window, :, place]) for rival in rivals]
            past, truth = found.past[window, -MOST_STEPS:, place], found.truth[window, :, place]
            where = f", from row {found.origins[window] + 1:,} of the series" if found.is_one_series else ""
            yield Picture(figures.forecast(past, truth, part, others), f"{channel}{where}")
    if len(found.channels) > most:
        yield Note(f"{most} of {len(found.channels):,} channels; predictions.csv has all.")
