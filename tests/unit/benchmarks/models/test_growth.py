"""The benchmark of the growth of the cost: where it ends, the fitted power, threads and the report."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from benchmarks.models import growth
from benchmarks.models.growth import LENGTHS, MODELS, ROW_LENGTHS, SPANS, THREADED, affordable, at_once, in_turns, power
from tests.support.records import expect_in_report, made_up


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


def test_documents_are_computed_at_once() -> None:
    barrier = Barrier(2, timeout=20)
    with ThreadPoolExecutor(2) as pool:
        at_once(pool, barrier.wait)  # raises BrokenBarrierError unless both calls run


def test_encoders_compute_batches_of_their_length() -> None:
    for name in growth.ENCODERS:
        assert growth.encoder_run(name, [b"x" * 64, b"y" * 64])().shape == (2, 2)


def test_report_shows_all_parts(tmp_path: Path) -> None:
    ended = "softmax encoder"
    lengths = [
        {"model": name, "size": n, "seconds": [n / 1e6] * 3}
        for name in MODELS
        for n in LENGTHS
        if name != ended or n <= 16_384
    ]
    rows = {
        str(length): [{"model": name, "size": n, "seconds": [n * 0.002]} for name in MODELS for n in (1, 64)]
        for length in ROW_LENGTHS
    }
    threads = [
        {"model": name, "bytes": n, growth.ONE: [0.012], growth.WITHIN: [0.008], growth.BESIDE: [0.016]}
        for name, n in THREADED
    ]
    data = {
        "versions": {"scotus": 2, "imdb-s3": 5},
        "max_length": {"scotus": 65_536, "imdb-s3": 4_096},
        "lengths": {"seconds": lengths, "ended": {ended: {"bytes": 32_768, "seconds": 33.4}}},
        "rows": rows,
        "threads": threads,
    }
    expect_in_report(
        growth.BENCHMARK,
        made_up(data, rounds=3),
        [
            "Versions: `scotus` 2, `imdb-s3` 5.",
            "| 65,536 | 65.5 | 65.5 | 65.5 | |",
            "| 1,048,576 | 1,049 |",
            f"The {ended} ends before 32,768 bytes, which would take about 33 s.",
            "| scotus | 1.00 | 1.00 | 1.00 |",
            f"| {ended} | 1.00 | 1.00 | |",
            "| imdb-s3 | 4,096 | 2.00 | | | | | | 2.00 |",
            "| scotus | 65,536 | 12.0 | 8.00 | 1.50 x | 16.0 | 1.50 x |",
        ],
        tmp_path,
    )
