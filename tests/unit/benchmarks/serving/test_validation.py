"""Figures and costs of the validation, from made-up times."""

import numpy as np
import pytest

from benchmarks.serving.simulation import ANSWERED, REFUSED, Result
from benchmarks.serving.validation import SECONDS, WARM_UP_S, figures, scaled
from tests.support.costs import COSTS


def test_all_times_are_scaled() -> None:
    plain, slow = scaled(COSTS, 1.0), scaled(COSTS, 2.0)
    assert slow.capacity([4096]) == pytest.approx(plain.capacity([4096]) / 2)
    assert slow.wake_s(4096) == 2 * plain.wake_s(4096) > 0
    assert slow.refusal == 2 * plain.refusal


def test_figures_leave_out_the_warm_up_and_add_the_transport() -> None:
    arrived = np.array([0.0, WARM_UP_S, WARM_UP_S, WARM_UP_S])
    took = np.array([9.0, 0.1, 0.1, 0.0])
    result = Result(arrived, arrived + took, np.array([ANSWERED, ANSWERED, ANSWERED, REFUSED]))
    found = figures(result, 0.001)
    assert found == {
        "answers_per_s": pytest.approx(2 / (SECONDS - WARM_UP_S), abs=0.1),
        "p50_ms": pytest.approx(101),
        "p99_ms": pytest.approx(101),
        "refused": pytest.approx(1 / 3, abs=1e-4),
    }
