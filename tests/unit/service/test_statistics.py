"""Counts and durations of one version of a model."""

import time

from service.statistics import Duration, Statistics

STAGES = {"decode_s": 1.0, "queue_s": 2.0, "compute_s": 3.0, "encode_s": 4.0}


def test_requests_are_counted_with_their_stages() -> None:
    found, before = Statistics(), time.time()
    found.answered(**STAGES, total_s=11.0)
    found.answered(**STAGES, total_s=12.0)
    assert (found.decode, found.queue, found.compute, found.encode) == (
        Duration(2, 2.0),
        Duration(2, 4.0),
        Duration(2, 6.0),
        Duration(2, 8.0),
    )
    assert (found.success, found.fail) == (Duration(2, 23.0), Duration())
    assert before <= found.last_s <= time.time()


def test_failure_does_not_count_as_an_inference() -> None:
    found = Statistics()
    found.failed(0.5)
    found.failed(0.0)
    assert (found.fail, found.success, found.last_s) == (Duration(2, 0.5), Duration(), 0)


def test_batches_are_counted_by_their_rows() -> None:
    found, before = Statistics(), time.time()
    for rows, seconds in ((4, 1.0), (1, 0.5), (4, 2.0)):
        found.computed(rows, seconds)
    assert found.batches == {4: Duration(2, 3.0), 1: Duration(1, 0.5)}
    assert (found.rows, found.executions) == (9, 3)
    assert before <= found.last_s <= time.time()
