"""Code shared by all backends."""

import numpy as np
import pytest

from artifact.backends.base import largest_error, output_error


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        ([0.0, 0.5], [0.0, 0.25], 0.25), ([10.0, 21.0], [10.0, 20.0], 0.05), ([-3.0], [-2.0], 0.5), ([], [], 0.0),
        ([1.0], [1.0, 1.0], np.inf), ([np.nan], [1.0], np.inf), ([np.inf], [np.inf], np.inf),
        ([1.0], [np.nan], np.inf),
    ],
)  # fmt: skip
def test_error_is_relative_to_the_largest_output(got: list[float], expected: list[float], error: float) -> None:
    assert largest_error(np.array(got, np.float32), np.array(expected, np.float32)) == pytest.approx(error)


def test_error_of_nan_is_infinite() -> None:
    assert largest_error(np.array([1]), np.array(["1"])) == np.inf
    assert largest_error(np.array([1]), np.array([1])) == np.inf


def test_missing_stretches_of_an_output_count_as_zero() -> None:
    expected = np.zeros((1, 3, 2), np.float32)
    expected[:, 0] = 0.5
    assert output_error(expected[:, :1], expected) == 0.0
    expected[:, 2] = 0.25
    assert output_error(expected[:, :1], expected) == 0.25
    assert output_error(expected, expected[:, :1]) == np.inf
    assert output_error(expected[:, :, 0], expected) == np.inf
