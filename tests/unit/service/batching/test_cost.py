"""The measured cost of rows."""

import pytest

from service.batching.cost import EARLIER_WEIGHT, LONGEST_BATCH_S, SHORTEST_BATCH_S, CostModel


def test_first_measurement_counts_fully_and_later_ones_by_weight() -> None:
    cost = CostModel()
    cost.record_batch(8, 1.0)
    assert cost.row_seconds(8) == 1.0
    cost.record_batch(8, 2.0)
    assert cost.row_seconds(8) == pytest.approx(EARLIER_WEIGHT + 2 * (1 - EARLIER_WEIGHT))


def test_buckets_are_measured_separately_and_added_up() -> None:
    cost = CostModel()
    cost.record_batch(8, 1.0)
    cost.record_batch(16, 3.0)
    assert cost.seconds({8: 2, 16: 1}) == 5.0


@pytest.mark.parametrize(("bucket", "row_seconds"), [(8, 1.0), (16, 2.0), (64, 12.0), (256, 48.0), (1024, 192.0)])
def test_bucket_without_a_measurement_costs_as_much_per_byte_as_the_nearest(bucket: int, row_seconds: float) -> None:
    cost = CostModel()
    cost.record_batch(8, 1.0)
    cost.record_batch(128, 24.0)
    assert cost.row_seconds(bucket) == row_seconds


def test_first_batch_of_a_long_bucket_is_limited_before_its_first_measurement() -> None:
    cost = CostModel()
    cost.record_batch(256, LONGEST_BATCH_S / 128)
    assert [cost.max_rows(256 * times) for times in (1, 64, 128, 256)] == [128, 2, 1, 1]


def test_mean_cost_follows_the_cost_of_requests() -> None:
    cost = CostModel()
    cost.record_request(1.0)
    assert cost.request_seconds == pytest.approx(1 - EARLIER_WEIGHT)
    for _ in range(200):
        cost.record_request(4.0)
    assert cost.request_seconds == pytest.approx(4.0)


@pytest.mark.parametrize(("row_seconds", "rows"), [(LONGEST_BATCH_S / 4, 4), (LONGEST_BATCH_S / 3.5, 3), (9.0, 1)])
def test_batch_is_limited_to_the_rows_computed_in_time(row_seconds: float, rows: int) -> None:
    cost = CostModel()
    cost.record_batch(8, row_seconds)
    assert cost.max_rows(8) == rows


@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (7, 1), (8, 2), (11, 2), (12, 3), (100, 3)])
def test_rows_are_split_into_batches_of_at_least_the_shortest_time(rows: int, parts: int) -> None:
    cost = CostModel()
    assert cost.parts(8, rows, 3) == 1
    cost.record_batch(8, SHORTEST_BATCH_S / 4)
    assert cost.parts(8, rows, 3) == parts
