"""The costs of a process that is slower than the measured one."""

import pytest

from benchmarks.serving.simulation import Costs
from benchmarks.serving.validation import LARGE, SMALL, slowed
from tests.support.costs import COSTS


def test_slower_processes_answer_proportionally_less() -> None:
    before, after = Costs.from_data(COSTS), Costs.from_data(slowed(COSTS, 1.25, 1.25))
    assert after.capacity([4096]) == pytest.approx(before.capacity([4096]) / 1.25)
    assert after.refusal == pytest.approx(1.25 * before.refusal)
    assert (after.spread, after.start) == (before.spread, before.start)


def test_large_batches_have_a_factor_of_their_own() -> None:
    costs = {**COSTS, "batch_ms": {"4096": {str(rows): 10.0 for rows in (1, SMALL, LARGE, 2 * LARGE)}}}
    found = slowed(costs, 1.0, 2.0)["batch_ms"]["4096"]
    assert found == {"1": 10.0, str(SMALL): 10.0, str(LARGE): 20.0, str(2 * LARGE): 20.0}
