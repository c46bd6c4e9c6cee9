"""Series of the user that train a forecaster of any series beside the generated ones."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.series import IRREGULAR, PLAIN, parse_frequency
from artifact.tables.timeline import align, read_series
from artifact.univariate.features import CONTEXT, HORIZON, interpolate
from artifact.univariate.seasons import infer_seasons, seasons_of
from model.data.synthetic_univariate import GROUP, Group, draw_group
from model.errors import UserError, reading

SHORTEST = 2
"""Minimum steps of a series: a past and a future."""


@dataclass(frozen=True)
class AddedSeries:
    """Series of the user, without missing values."""

    series: tuple[Doubles, ...]
    """Shortest first."""
    seasons: tuple[tuple[int, ...], ...]
    """Seasons of each series, as the service would find them."""
    share: float
    """Share of the groups that are drawn from them."""

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each series."""
        return np.array([len(values) for values in self.series])

    @cached_property
    def alike(self) -> dict[tuple[int, ...], NDArray[np.int64]]:
        """Seasons -> places of the series that have them."""
        found = dict[tuple[int, ...], list[int]]()
        for place, seasons in enumerate(self.seasons):
            found.setdefault(seasons, []).append(place)
        return {seasons: np.array(places) for seasons, places in found.items()}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the series."""
        return hashlib.sha256(b"".join(values.tobytes() + b"/" for values in self.series)).hexdigest()

    def draw_group(self, generator: np.random.Generator, shortest: int, longest: int) -> Group:
        """Draw a group of the user's series with probability `share`, if some have more than `shortest` steps.

        Otherwise the group is generated. The past of each series ends at a random step; its future is NaN from where
        the series has ended.
        """
        fitting = np.flatnonzero(self.lengths > shortest)
        if generator.random() >= self.share or not len(fitting):
            return draw_group(generator, shortest, longest)
        first = int(generator.choice(fitting))
        limit = min(longest, len(self.series[first]) - 1)
        past = min(limit, int(math.exp(generator.uniform(math.log(shortest), math.log(limit + 1)))))
        places = self.alike[self.seasons[first]]
        pasts, futures = np.empty((GROUP, past)), np.full((GROUP, HORIZON), np.nan)
        for row, place in enumerate(generator.choice(places[self.lengths[places] > past], GROUP)):
            values = self.series[place]
            end = int(generator.integers(past, len(values)))
            pasts[row] = values[end - past : end]
            future = values[end : end + HORIZON]
            futures[row, : len(future)] = future
        return Group(pasts, futures, self.seasons[first], "added")


def read_added(paths: Sequence[Path], share: float) -> AddedSeries:
    """Read the series of files, as `predict` does: tables with a column for each series, or long ones.

    Values that are missing between others are interpolated. The seasons are those of the time step, or what the values
    show if there is none.

    Raises: UserError naming file and line, or if no series has two values.

    """
    found = list[tuple[Doubles, tuple[int, ...]]]()
    for path in paths:
        with reading():
            timeline = align(read_series(path, PLAIN, finds_long=True), PLAIN, fill=True)
        is_regular = timeline.frequency != IRREGULAR
        seasons = seasons_of(parse_frequency(timeline.frequency)) if is_regular else None
        for column in timeline.values.T:
            known = np.flatnonzero(~np.isnan(column))
            if len(known) >= SHORTEST:
                values = column[None, known[0] : known[-1] + 1]
                (filled,) = interpolate(values, ~np.isnan(values))
                found.append((filled, seasons or infer_seasons(filled[-CONTEXT:])))
    if not found:
        raise UserError(f"{', '.join(map(str, paths))}: no series with {SHORTEST} values or more")
    found.sort(key=lambda one: len(one[0]))
    return AddedSeries(tuple(values for values, _ in found), tuple(seasons for _, seasons in found), share)
