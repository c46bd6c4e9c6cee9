"""What rows cost."""

import math

import pytest

from service.batching.cost import LONGEST_BATCH_S, RATE_MEMORY, CostModel


def test_nothing_is_known_before_the_first_batch() -> None:
    cost = CostModel()
    assert (cost.row_seconds(8), cost.seconds({8: 100}), cost.request_seconds) == (0, 0, 0)
    assert cost.rows_in_time(8) == math.inf


def test_first_measurement_is_taken_as_it_is_and_later_ones_by_their_weight() -> None:
    cost = CostModel()
    cost.measured(8, 1.0)
    assert cost.row_seconds(8) == 1.0
    cost.measured(8, 2.0)
    assert cost.row_seconds(8) == pytest.approx(RATE_MEMORY + 2 * (1 - RATE_MEMORY))


def test_buckets_are_measured_apart_and_added_up() -> None:
    cost = CostModel()
    cost.measured(8, 1.0)
    cost.measured(16, 3.0)
    assert cost.seconds({8: 2, 16: 1, 32: 5}) == 5.0


def test_mean_of_requests_follows_what_they_cost() -> None:
    cost = CostModel()
    cost.requested(1.0)
    assert cost.request_seconds == pytest.approx(1 - RATE_MEMORY)
    for _ in range(200):
        cost.requested(4.0)
    assert cost.request_seconds == pytest.approx(4.0)


@pytest.mark.parametrize(("row_seconds", "rows"), [(LONGEST_BATCH_S / 4, 4), (LONGEST_BATCH_S / 3.5, 3), (9.0, 1)])
def test_batch_holds_as_many_rows_as_are_computed_in_time(row_seconds: float, rows: int) -> None:
    cost = CostModel()
    cost.measured(8, row_seconds)
    assert cost.rows_in_time(8) == rows
