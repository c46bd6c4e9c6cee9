"""Figures of a load on a real server, in the order of the requests; those of a simulation have the same form."""

from collections import Counter

import numpy as np
import pytest

from benchmarks.lib.load import Outcome
from benchmarks.serving.simulation import ANSWERED, REFUSED
from benchmarks.serving.validation import OPEN_S, WARM_UP_S, as_result, figures


def test_requests_of_the_warm_up_do_not_count() -> None:
    due, took = np.array([3.0, 0.5, 2.0, 4.0]), np.array([0.03, 9.0, 0.01, 0.02])
    status = np.array([ANSWERED, ANSWERED, ANSWERED, REFUSED])
    outcome = Outcome(0.0, OPEN_S, due, due + took, status, np.zeros(4, bool), Counter())
    result = as_result(outcome)
    assert result.arrived.tolist() == [0.5, 2.0, 3.0, 4.0]
    found = figures(result)
    assert found["answers_per_s"] == pytest.approx(2 / (OPEN_S - WARM_UP_S), abs=0.01)
    assert found["p50_ms"] == 20
    assert found["p99_ms"] == pytest.approx(29.8)
    assert found["refused"] == pytest.approx(1 / 3, abs=1e-4)
