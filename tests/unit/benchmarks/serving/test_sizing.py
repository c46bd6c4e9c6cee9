"""The number of replicas from simulated loads, and the report, rendered from made-up data."""

import pytest

from benchmarks.lib.record import Data
from benchmarks.serving import sizing
from benchmarks.serving.simulation import Costs
from tests.support.costs import COSTS
from tests.support.records import made_up


def load(share: float, p99_ms: float, refused: float = 0.0) -> Data:
    return {
        "bytes": 4096, "arrivals": "poisson", "balancer": "random", "replicas": 1, "share": share, "requests": 30,
        "p50_ms": [p99_ms / 2] * 3, "p99_ms": [p99_ms] * 3, "refused": [refused] * 3,
    }  # fmt: skip


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


def test_report_has_the_median_deviation_of_each_load() -> None:
    side = {"answers_per_s": 100.0, "p50_ms": 10.0, "p99_ms": 20.0, "refused": 0.0}
    case = {"bytes": 4096, "share": 0.5, "factor": 1.1, "real": side}
    data = {
        "costs": COSTS,
        "validation": [{**case, "simulated": {**side, "p50_ms": p50}} for p50 in (9.0, 11.0, 12.0)],
    }
    (row,) = [line for line in sizing.report(made_up(data)).splitlines() if line.startswith("| 4 KB ")]
    assert [cell.strip() for cell in row.split("|")][6:9] == ["10.0", "11.0", "+10%"]
