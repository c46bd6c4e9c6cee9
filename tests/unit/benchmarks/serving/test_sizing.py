"""The number of replicas from simulated loads, and the report, rendered from made-up data."""

from pathlib import Path

import pytest

from benchmarks.lib.record import Data
from benchmarks.serving import sizing
from benchmarks.serving.simulation import Costs
from tests.support.costs import COSTS
from tests.support.records import expect_in_report, made_up

FIGURES = {"requests": 10, "answers_per_s": 100.0, "p50_ms": 5.0, "p99_ms": 20.0, "refused": 0.0}


def load(share: float, p99_ms: float, refused: float = 0.0) -> Data:
    return {
        "bytes": 4096, "arrivals": "poisson", "balancer": "random", "replicas": 1, "share": share, "requests": 30,
        "p50_ms": [p99_ms / 2] * 3, "p99_ms": [p99_ms] * 3, "refused": [refused] * 3,
    }  # fmt: skip


def loads() -> list[Data]:
    cases = (("poisson", "least"), ("poisson", "random"), ("bursty", "random"))
    return [
        {**load(share, 10.0 / (1.6 - share)), "bytes": length, "arrivals": arrivals, "balancer": balancer}
        for length in sizing.LENGTHS
        for arrivals, balancer in cases
        for share in (*sizing.SHARES, *sizing.OVERLOADS)
    ]


def test_sustained_share_is_interpolated_in_the_logarithm() -> None:
    assert sizing.sustained([load(0.4, 10), load(0.6, 1000)], 100) == pytest.approx(0.5)
    assert sizing.sustained([load(0.4, 10), load(0.6, 50)], 50) == 0.6
    assert sizing.sustained([load(0.4, 10)], 5) == 0


def test_refusals_end_the_sustained_share() -> None:
    assert sizing.sustained([load(0.4, 10), load(0.6, 20, refused=0.01)], 100) == 0.4


def test_replicas_are_the_rate_divided_by_the_sustained_rate_of_one() -> None:
    data = {"costs": COSTS, "loads": [load(0.5, 10), load(0.7, 1e9)]}
    assert sizing.capacity(Costs.from_data(COSTS), 4096) == pytest.approx(200)
    assert sizing.replicas_for(data, 1000, 4096, "poisson", 10) == 10
    assert sizing.replicas_for(data, 1001, 4096, "poisson", 10) == 11
    assert sizing.replicas_for(data, 1000, 4096, "poisson", 5) is None


def test_balanced_replicas_are_counted_if_there_are_enough() -> None:
    least = {**load(0.9, 10), "balancer": "least"}
    data = {
        "costs": COSTS,
        "loads": [load(0.5, 10), load(0.7, 1e9), least, {**least, "share": 0.95, "p99_ms": [1e9] * 3}],
    }
    assert sizing.replicas_for(data, 1800, 4096, "poisson", 10) == 10
    assert sizing.replicas_for(data, 1600, 4096, "poisson", 10) == 16


def test_loads_are_simulated_with_every_seed() -> None:
    found = sizing.simulate_load(COSTS, 200, {**load(0.5, 0.0), "bytes": None})
    assert found["requests"] == 200 * sizing.SEEDS
    assert len(set(found["p99_ms"])) == sizing.SEEDS
    assert found["refused"] == [0.0] * sizing.SEEDS


def test_report_shows_replicas_and_validation(tmp_path: Path) -> None:
    cases = [
        {
            "processes": 1,
            "bytes": 4096,
            "times": None,
            "real": FIGURES,
            "simulated": {**FIGURES, "answers_per_s": 110.0},
        },
        *(
            {
                "processes": 2,
                "bytes": 16384,
                "times": 1.5,
                "real": {**FIGURES, "refused": 0.3},
                "simulated": {**FIGURES, "p99_ms": p99_ms},
            }
            for p99_ms in (20.0, 22.0, 99.0)
        ),
    ]
    pools = [{**load(share, 9.0), "replicas": count} for share in sizing.POOL_SHARES for count in sizing.POOLS]
    steps = [
        {"delay_s": 5.0, "p99_ms": [9.0, 9.0], "refused": [0.1, 0.1], "replicas": [4, 4], "settled_s": [30.0, 30.0]}
    ]
    data = {"costs": COSTS, "validation": cases, "loads": loads(), "pools": pools, "autoscaling": steps}
    expect_in_report(
        sizing.BENCHMARK,
        made_up(data, requests=10),
        [
            "| 4 KB | poisson | 50 | 12 | 112 | 1,112 |",
            "| 4 KB | 80 | 0.4 | 8.3 ± 0.0 | 8.3 ± 0.0 | 0.0% ± 0.0% | 0.0% ± 0.0% |",
            "| 1 | 4 KB | closed loop | 100 | 110 | +10% | 5.0 | 5.0 | +0% |",
            "| 2 | 16 KB | 1.5 x capacity | 100 | 100 | +0% | 5.0 | 5.0 | +0% | 20.0 | 22.0 | +10% | 30.0% | 0.0% |",
            "| 5 | 9 ± 0 | 30 ± 0 | 4 ± 0 | 10.0% ± 0.0% |",
            "| 256 | 1.00 | 16.00 |",
        ],
        tmp_path,
    )
