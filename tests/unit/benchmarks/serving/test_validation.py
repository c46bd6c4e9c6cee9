"""Slower cores, as the simulation sees them."""

import pytest

from benchmarks.serving.simulation import Costs
from benchmarks.serving.validation import slowed
from tests.support.costs import COSTS


def test_slower_cores_answer_proportionally_less() -> None:
    before, after = Costs.from_data(COSTS), Costs.from_data(slowed(COSTS, 1.25))
    assert after.capacity([4096]) == pytest.approx(before.capacity([4096]) / 1.25)
    assert after.refusal == pytest.approx(1.25 * before.refusal)
    assert (after.spread, after.start) == (before.spread, before.start)
