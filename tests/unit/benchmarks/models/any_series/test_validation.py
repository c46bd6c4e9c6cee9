"""Validation series end before the hold-outs, and their errors are those of the mixed forecasts."""

import numpy as np
import pytest

from artifact.univariate.features import HORIZON, LEVELS
from benchmarks.models.any_series.validation import SHARES, inside, measure
from model.tasks.graphs import GraphFunction
from tests.unit.benchmarks.models.any_series.conftest import quarterly

ZERO: GraphFunction = lambda inputs: np.zeros((len(inputs["tokens"]), len(LEVELS), HORIZON), np.float32)  # noqa: E731


def test_last_horizon_inside_the_past_of_every_second_series() -> None:
    values = np.random.default_rng(0).normal(50, 10, (3, 24)).tolist()
    series = [quarterly(str(number), values[number], 4) for number in range(3)]
    found = list(inside(series))
    assert [one.name for one in found] == ["0", "2"]
    for one, whole in zip(found, series[::2], strict=True):
        assert np.array_equal(np.r_[one.past, one.future], whole.past)
        assert len(one.future) == len(whole.future)


def test_errors_are_of_seasonal_naive_and_of_each_share() -> None:
    values = np.tile([10.0, 20.0, 30.0, 40.0], 8) + np.random.default_rng(0).standard_normal(32)
    (one,) = inside([quarterly("one", values.tolist(), 4)])
    ((key, (row,)),) = measure(ZERO, [one]).items()
    assert key == (one.collection, one.frequency)
    assert len(row) == 1 + len(SHARES)
    assert row[0] == pytest.approx(np.abs(one.future - one.past[-4:]).mean() / one.unit)
    assert len(set(row)) == len(row)
