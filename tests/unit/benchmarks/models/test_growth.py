"""The benchmark of the growth of the cost: where it ends, the fitted power, threads and the report."""

from functools import partial

import pytest

from benchmarks.models import growth
from benchmarks.models.growth import LENGTHS, SPANS, affordable, in_turns, power


def test_runs_end_before_one_that_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "timed", lambda run, _: run())
    costs = [1.0, 4.0, 16.0, 64.0, 256.0]
    runs = [(("a", i), partial(float, cost)) for i, cost in enumerate(costs)]
    found, expected = affordable(runs, 100)
    assert (list(found), expected) == ([("a", 0), ("a", 1), ("a", 2), ("a", 3)], 256.0)
    assert affordable(runs[:2], 100) == ({("a", 0): (runs[0][1], 1.0), ("a", 1): (runs[1][1], 4.0)}, None)
    assert affordable(runs, 1.5)[1] == 2.0  # before there is a factor


def test_slow_runs_are_measured_once() -> None:
    calls = {("a", 1): 0, ("a", 2): 0}

    def call(key: tuple[str, int]) -> None:
        calls[key] += 1

    measured = in_turns({key: (partial(call, key), seconds) for key, seconds in zip(calls, (0.4, 0.6), strict=True)}, 3)
    assert calls == {("a", 1): 3, ("a", 2): 1}
    assert [len(measured[key]) for key in calls] == [3, 1]


def test_power_is_the_slope_of_the_logarithms_in_the_span() -> None:
    ms = {("a", n): 0.001 * n**1.5 if n >= 4_096 else 5.0 for n in LENGTHS if n <= 65_536}
    assert power(ms, "a", SPANS[1]) == pytest.approx(1.5)
    assert power({("a", n): 3.0 for n in LENGTHS}, "a", SPANS[0]) == pytest.approx(0.0)
    assert power(ms, "a", SPANS[2]) is None
    assert power(ms, "b", SPANS[1]) is None
