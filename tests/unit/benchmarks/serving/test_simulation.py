"""The simulation: formulas of queues, every request ends once, refusals, balancing. Seeds are fixed."""

import dataclasses

import numpy as np
import pytest
import simpy
from numpy.typing import NDArray

from benchmarks.serving.simulation import (
    ANSWERED,
    LATE,
    LIMITS,
    REFUSED,
    Core,
    Costs,
    Pool,
    Result,
    Simulation,
    row_lengths,
)
from service.batching.admission import Limits

ROW_S = 0.01
COSTS = Costs({4096: {1: ROW_S, 2: 2 * ROW_S}}, (1.0, 1.0), {4096: 0.0}, {4096: 0.0}, 0.0)
"""A row takes 10 ms; nothing else takes time."""
SINGLE_ROWS = Limits(batch_rows=1, queue_rows=8192, queue_bytes=2**26, slots=1)


def poisson(rate: float, count: int, seed: int = 0) -> NDArray[np.float64]:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def simulate(rate: float, count: int, pool: Pool, costs: Costs = COSTS, length: int = 4096, seed: int = 0) -> Result:
    return Simulation(costs, pool, seed).run(poisson(rate, count, seed), [length] * count)


def test_single_rows_have_the_latency_of_an_m_d_1_queue() -> None:
    load = 0.7
    result = simulate(load / ROW_S, 20_000, Pool(1, limits=SINGLE_ROWS))
    assert result.latencies.mean() == pytest.approx(ROW_S * (1 + load / (2 * (1 - load))), rel=0.05)


def test_exponential_times_have_the_latency_of_an_m_m_1_queue() -> None:
    load = 0.6
    spread = tuple(-np.log1p(-np.linspace(0, 0.9999, 10_000)))
    mean = float(np.mean(spread))
    costs = dataclasses.replace(COSTS, spread=spread)
    result = simulate(load / (mean * ROW_S), 20_000, Pool(1, limits=SINGLE_ROWS), costs)
    assert result.latencies.mean() == pytest.approx(mean * ROW_S / (1 - load), rel=0.05)


def test_latencies_equal_those_of_a_slow_reference_without_batches() -> None:
    times = poisson(90, 2000)
    result = Simulation(COSTS, Pool(1, limits=SINGLE_ROWS)).run(times, [4096] * 2000)
    free, expected = 0.0, []
    for at in times:
        free = max(free, at) + ROW_S
        expected.append(free)
    np.testing.assert_allclose(result.ended, expected, rtol=0, atol=1e-9)


def test_request_takes_longer_if_the_core_was_idle() -> None:
    costs = dataclasses.replace(COSTS, wake={4096: 0.004})
    result = Simulation(costs, Pool(1, limits=SINGLE_ROWS)).run([0, 0.001, 0.1], [4096] * 3)
    np.testing.assert_allclose(result.latencies, [0.014, 0.023, 0.014])


def test_rows_that_wait_share_a_batch() -> None:
    costs = dataclasses.replace(COSTS, batches={4096: {1: ROW_S, 2: ROW_S * 1.5}})
    result = Simulation(costs, Pool(1)).run([0, 0.001, 0.002], [4096] * 3)
    np.testing.assert_allclose(result.ended, [0.01, 0.025, 0.025])


def test_every_request_ends_once() -> None:
    result = simulate(300, 3000, Pool(2, deadline_s=0.2))
    assert set(result.status.tolist()) <= {ANSWERED, REFUSED, LATE}
    assert len(result.status) == 3000
    assert (result.ended >= result.arrived).all()


def test_a_load_above_the_capacity_is_refused_and_answers_are_in_time() -> None:
    result = simulate(200, 5000, Pool(1, deadline_s=1.0))
    assert result.refused == pytest.approx(0.5, abs=0.05)
    assert result.quantile(1.0) <= 1.0
    assert result.quantile_of_all(0.99) == np.inf


def test_equal_seeds_give_equal_results() -> None:
    one, other = (simulate(150, 500, Pool(2, "random"), seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.ended, other.ended)


def test_more_replicas_are_not_slower_in_the_mean() -> None:
    means = [simulate(90, 3000, Pool(replicas)).latencies.mean() for replicas in (1, 2, 4, 8)]
    assert means == sorted(means, reverse=True)


def test_fewest_open_requests_are_faster_than_random_choice() -> None:
    least, at_random = (simulate(320, 4000, Pool(4, balancer)).latencies.mean() for balancer in ("least", "random"))
    assert least < at_random


def test_a_random_choice_among_many_equals_one_with_its_share_of_the_load() -> None:
    one = simulate(60, 20_000, Pool(1, "random")).latencies.mean()
    many = simulate(600, 20_000, Pool(10, "random")).latencies.mean()
    assert many == pytest.approx(one, rel=0.05)


def test_windows_of_a_long_document_are_rows() -> None:
    assert row_lengths(4096) == [4096]
    assert row_lengths(16384) == [4096] * 5
    costs = dataclasses.replace(COSTS, batches={4096: {1: ROW_S, 16: 16 * ROW_S}})
    result = Simulation(costs, Pool(1)).run([0.0], [16384])
    assert result.ended[0] == pytest.approx(5 * ROW_S)


def test_front_end_shares_the_core_with_the_batch() -> None:
    costs = Costs({4096: {1: 0.01}}, (1.0, 1.0), {4096: 0.003}, {4096: 0.0}, 0.001)
    alone = Simulation(costs, Pool(1)).run([0.0], [4096])
    assert alone.ended[0] == pytest.approx(0.013)
    result = Simulation(costs, Pool(1)).run([0.0, 0.002], [4096] * 2)
    # The batch ends 2 ms later, because of the second request; then the response shares the core with the next batch.
    assert result.ended[0] == pytest.approx(0.013 + 0.002 + 0.001)


def test_threads_share_a_core_equally() -> None:
    env, ended = simpy.Environment(), dict[str, float]()
    core = Core(env)
    core.run(1.0, lambda: ended.update(short=env.now))
    core.run(3.0, lambda: ended.update(long=env.now))
    env.run()
    assert ended == {"short": 2.0, "long": 4.0}


def test_costs_between_and_beyond_measured_sizes_are_linear() -> None:
    costs = Costs({256: {1: 1.0, 3: 2.0}}, (1.0,), {100: 1.0, 300: 2.0}, {100: 0.5, 300: 1.0}, 0.0)
    assert [costs.batch_s(256, rows) for rows in (1, 2, 3, 5)] == [1.0, 1.5, 2.0, 3.0]
    assert [costs.front_end_s(length) for length in (1, 200, 500)] == [1.0, 1.5, 3.0]
    assert costs.wake_s(200) == 0.75


def test_lengths_for_other_times_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 lengths for 2 times"):
        Simulation(COSTS, Pool(1)).run([0.0, 1.0], [4096])


def test_no_requests_give_an_empty_result() -> None:
    result = Simulation(COSTS, Pool(1)).run([], [])
    assert result.refused == 0
    assert np.isnan(result.quantile(0.5))
    assert np.isnan(result.quantile_of_all(0.5))


def test_limits_are_those_of_a_process_on_one_core() -> None:
    from artifact.backends.base import BATCH_ROWS
    from service.settings import Settings

    settings = Settings()
    assert (LIMITS.batch_rows, LIMITS.slots) == (BATCH_ROWS["cpu"], 1)
    assert (LIMITS.queue_rows, LIMITS.queue_bytes) == (settings.max_queue_rows, settings.max_queue_bytes)
