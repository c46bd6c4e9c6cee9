"""Simulations of the propositions."""

import numpy as np
import pytest

from benchmarks.papers.propositions import MATRICES, RANK, SEQUENCES, bound, relative, smooth


@pytest.mark.parametrize("rank", [None, RANK])
def test_incoherent_matrix_is_recovered_from_as_many_samples_as_its_rank(rank: int | None) -> None:
    x = MATRICES["incoherent"](np.random.default_rng(0))
    assert relative(x, x, (np.arange(RANK), np.arange(RANK)), rank, float(np.linalg.norm(x, 2))) < 1e-9
    fewer = (np.arange(RANK - 1), np.arange(RANK - 1))
    assert relative(x, x, fewer, rank, float(np.linalg.norm(x, 2))) > 1e-3


def test_few_rows_of_a_coherent_matrix_lack_one_of_its_components() -> None:
    matrices = [MATRICES["coherent"](np.random.default_rng(seed)) for seed in range(10)]
    assert {int(np.linalg.matrix_rank(x)) for x in matrices} == {RANK}
    of_rows = [int(np.linalg.matrix_rank(x[:8])) for x in matrices]
    assert of_rows.count(RANK - 1) >= 7


def test_bound_is_that_of_the_proposition() -> None:
    n, a, b, delta = 100, 3.0, 2.0, 0.05
    expected = b * np.sqrt(np.log(2 * n / delta) / (2 * n)) + a * np.sqrt(np.log(2 / delta) / (2 * n * n))
    assert bound(a, b, n) == pytest.approx(float(expected))


def test_convolution_is_that_of_the_proposition() -> None:
    n, generator = 16, np.random.default_rng(0)
    x = SEQUENCES["sine"](n, generator)
    kernel = generator.standard_normal(n) / n
    f = [sum(kernel[t - i] * x[i] for i in range(t + 1)) for t in range(n)]
    largest = float(np.abs(np.diff(f)).max() / np.abs(np.diff(x)).max())
    assert smooth("sine", n, 1)["over_input"][0] == pytest.approx(largest)
