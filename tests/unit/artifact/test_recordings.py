"""Recordings: checks, imputation, resampling, standardisation and rows, compared with slow references."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from artifact.arrays import Doubles
from artifact.errors import InvalidInput
from artifact.recordings import (
    FARTHEST,
    GRID,
    MAX_STEPS,
    STRETCHES,
    Recording,
    RecordingCoverage,
    Scaling,
    on_grid,
    recording_of,
    resample,
    row_bytes,
    rows_of,
    stretch_bounds,
    unpack_rows,
    without,
)
from artifact.series import impute
from tests.support import recordings as reference

CHANNELS = ("x", "y")
NAN = math.nan


def column(values: list[float]) -> Doubles:
    return np.array(values, np.float64)[:, None]


def noise(*shape: int, seed: int = 0) -> Doubles:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ([[1, 2, None], [4, 5, 6]], None),
        ([[4, 5, 6], [1, 2, None]], ["y", "x"]),
        ([np.array([4.0, 5, 6]), np.array([1, 2, NAN])], ["y", "x"]),
    ],
)
def test_channels_are_put_in_the_order_of_the_model(columns: list[Any], names: list[str] | None) -> None:
    found = recording_of(columns, names, CHANNELS, 10, "series.3")
    np.testing.assert_array_equal(found.values, [[1, 4], [2, 5], [NAN, 6]])
    assert (found.rate, found.place) == (10, "series.3")


def test_steps_without_any_value_are_left_out_at_the_end_only() -> None:
    found = recording_of([[None, 1, None, None, None], [None, 2, None, 3, None]], None, CHANNELS)
    np.testing.assert_array_equal(found.values, [[NAN, NAN], [1, 2], [NAN, NAN], [NAN, 3]])


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        ({"x": [1]}, "in", "the model needs the channels x, y; y is missing"),
        ({"x": [1], "y": [1], "z": [1]}, "in", "the model has the channels x, y; z is not one of them"),
        ({"x": [1], "y": [1], "n" * 99: [1]}, "in", f"x, y; {'n' * 32}... is not one of them"),
        ([[1]], "in", r"the model has 2 channels \(x, y\), a list of values each, not 1"),
        ([], "in", "not 0"),
        ({"x": [], "y": []}, "in", "at least 1 value of each channel is needed"),
        ({"x": [1, 2], "y": [1]}, "in.y", "its length is 1, that of x 2; both must be equal"),
        ({"x": [1, 2], "y": [1, math.inf]}, "in.y.1", "must be finite or missing"),
        ({"x": [None, None], "y": [1, 2]}, "in.x", "it has no known value"),
    ],
)
def test_error_names_the_channel(given: Any, place: str, message: str) -> None:
    names, columns = (list(given), list(given.values())) if isinstance(given, Mapping) else (None, given)
    with pytest.raises(InvalidInput, match=message) as caught:
        recording_of(columns, names, CHANNELS, place="in")
    assert [where for where, _ in caught.value.errors] == [place]


@pytest.mark.parametrize("rate", [0, -1, math.inf, NAN])
def test_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(InvalidInput, match="rate: must be a positive number of steps per second") as caught:
        recording_of([[1], [1]], None, CHANNELS, rate)
    assert caught.value.errors[0][0] == "rate"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 29, 30, 31, 100])
def test_resampled_values_equal_the_reference(count: int, steps: int) -> None:
    values = noise(count, 2, seed=count)
    expected = np.stack([reference.resampled(channel.tolist(), steps) for channel in values.T], axis=1)
    np.testing.assert_allclose(resample(values, steps), expected, rtol=0, atol=1e-12)


def test_resampling_keeps_the_ends_of_a_line_and_the_mean_of_long_steps() -> None:
    assert resample(column([1, 3]), 5)[:, 0].tolist() == [1, 1.5, 2, 2.5, 3]
    assert resample(column([1, 3, 5, 7, 2, 4]), 3)[:, 0].tolist() == [2, 6, 3]
    fast = np.tile([1.0, -1.0], 50)[:, None]
    assert np.abs(resample(fast, 10)).max() < 1e-12  # every second value alone would be constant 1


def test_standardised_recording_equals_the_reference() -> None:
    scaling = Scaling(np.array([10.0, 10]), np.array([2.0, 2]), 20)
    x, y = [None, 9.0, None, None, 14.0, 11.0], [10.0, None, 13.0, 1e300, -1e300, None]
    for rate, steps in ((None, 6), (20, 6), (10, 12), (50, 2), (110, 1)):
        found = scaling.standardise(recording_of([x, y], None, CHANNELS, rate))
        expected = [reference.standardised(values, steps) for values in (x, y)]
        np.testing.assert_allclose(found, np.transpose(expected), rtol=0, atol=1e-12)
        assert np.abs(found).max() <= FARTHEST


def test_own_scale_adds_columns_that_equal_the_reference() -> None:
    scaling = Scaling(np.zeros(2), np.ones(2), 20, own=(1,))
    x = [None, 9.0, None, None, 14.0, 11.0]
    y = [10.0, None, 13.0, 1e-3, 7.0, None]
    known = np.array([value for value in y if value is not None])
    own = [None if value is None else (value - known.mean()) / known.std() for value in y]
    assert scaling.num_columns == 3
    for factor, offset in ((1.0, 0.0), (1e-300, 0.0), (1e300, 0.0), (1e-6, 5.0)):
        changed = [None if value is None else factor * value + offset for value in y]
        found = scaling.standardise(recording_of([x, changed], None, CHANNELS, 10))
        assert found.shape == (12, 3)
        expected = reference.resampled(impute(np.array(own, np.float64)).tolist(), 12)
        np.testing.assert_allclose(found[:, 2], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("values", [[0.1] * 7, [0.1, None, 0.1], [3.0], [0.0, 0.0], [1e300, 1e300], [1.0, 1 + 1e-12]])
def test_own_scale_of_a_constant_gives_zeros(values: list[float | None]) -> None:
    found = Scaling(np.zeros(1), np.ones(1), None, own=(0,)).standardise(recording_of([values], None, ["x"]))
    assert found[:, 1].tolist() == [0.0] * len(values)


def test_a_recording_of_less_than_a_step_is_refused() -> None:
    with pytest.raises(InvalidInput, match="rate: the recording would have less than one step at the 20 per second"):
        Scaling(np.zeros(1), np.ones(1), 20).standardise(Recording(np.ones((3, 1)), rate=61))


def test_rate_needs_that_of_the_model() -> None:
    recording = Recording(np.ones((3, 1)), rate=10)
    with pytest.raises(InvalidInput, match="rate: the rate of the training recordings is not known"):
        Scaling(np.zeros(1), np.ones(1), None).standardise(recording)


def test_low_rate_is_refused_before_memory_is_needed() -> None:
    scaling = Scaling(np.zeros(1), np.ones(1), 1000)
    assert scaling.steps_of(Recording(np.ones((1000, 1)), rate=1)) == MAX_STEPS
    for rate in (0.999, 1e-9, 5e-324):
        with pytest.raises(InvalidInput, match="rate: the recording would have more than 1,000,000 steps"):
            scaling.standardise(Recording(np.ones((1000, 1)), rate))


def test_row_holds_the_window_stretched_and_padded() -> None:
    values = noise(5, 2)
    (row,) = rows_of(values, [[(0, 2), (3, 5)]], 6)
    assert len(row) == row_bytes(6, 2)
    found = unpack_rows([row, row], 6, 2)
    window = values[[0, 1, 3, 4]]
    stretched = [[reference.on_grid(one) for one in reference.resampled(channel.tolist(), 6)] for channel in window.T]
    assert {name: (array.dtype.str, array.shape) for name, array in found.items()} == {
        "stretched": ("<f4", (2, 6, 2)),
        "series": ("<f4", (2, 6, 2)),
        "lengths": ("<i4", (2,)),
    }
    for index in range(2):
        assert found["stretched"][index].T.tolist() == stretched
        assert found["series"][index, :4].tolist() == [[reference.on_grid(one) for one in step] for step in window]
        assert not found["series"][index, 4:].any()
    assert found["lengths"].tolist() == [4, 4]


def test_sums_of_values_on_the_grid_do_not_depend_on_their_order() -> None:
    values = on_grid(noise(5000, 1)[:, 0])
    assert (values / GRID == np.round(values / GRID)).all()
    forwards, backwards = np.float32(0), np.float32(0)
    for one, other in zip(values, values[::-1], strict=True):
        forwards, backwards = forwards + one, backwards + other
    assert float(forwards) == float(backwards) == math.fsum(values.tolist())


@pytest.mark.parametrize("steps", [1, 2, 15, 16, 17, 100, 12345])
def test_stretches_cover_the_recording_evenly(steps: int) -> None:
    bounds = stretch_bounds(steps)
    assert len(bounds) == min(steps, STRETCHES)
    assert [step for start, end in bounds for step in range(start, end)] == list(range(steps))
    lengths = [end - start for start, end in bounds]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1, 3, [0, 2, 4, 6, 1]),
        (0, 2, [4, 4, 4, 6, 1]),
        (3, 5, [0, 8, 4, 4, 4]),
        (0, 5, [3.8] * 5),
        (2, 3, [0, 8, 7, 6, 1]),
    ],
)
def test_stretch_is_replaced_by_a_straight_line(start: int, end: int, expected: list[float]) -> None:
    values = column([0, 8, 4, 6, 1])
    np.testing.assert_allclose(without(values, start, end)[:, 0], expected, rtol=0, atol=1e-12)
    assert values[:, 0].tolist() == [0, 8, 4, 6, 1]


@pytest.mark.parametrize(("used", "windows", "strategy"), [(7, 1, "whole"), (7, 2, "head"), (6, 1, "head")])
def test_coverage_tells_what_was_read(used: int, windows: int, strategy: str) -> None:
    coverage = RecordingCoverage(7, used, 1, 8, steps=4, windows=windows, is_resampled=False)
    assert coverage.as_json("head") == {
        "observations_total": 7,
        "observations_used": used,
        "imputed": 1,
        "strategy": strategy,
        "windows": windows,
        "resampled": False,
    }
