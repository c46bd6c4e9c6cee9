import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from artifact import load
from artifact.backends import create_backend
from artifact.backends.base import largest_error
from artifact.exports import read_manifest
from artifact.manifest import Format, Result
from artifact.series import Layout
from artifact.tasks.forecasting import ForecasterManifest
from artifact.univariate.features import MEDIAN
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ForecastingRun
from model.data.own import DataFiles
from model.data.series import ScaledSeries
from model.errors import UserError
from model.nn.forecaster import PaperForecaster, ResidualForecaster
from model.runs.load import load_trained
from model.tasks import zero_shot
from model.tasks.baselines import LinearMap, solve_linear_map
from model.tasks.forecasting import (
    BAND,
    LEVELS,
    ForecastData,
    ForecastingTask,
    Start,
    WindowLearner,
    calibrated,
    quantiles_are_reliable,
)
from model.tasks.graphs import GraphFunction, module_functions
from model.training import checkpoint
from tests.support.commands import call, export, train
from tests.support.models import CHANNELS, quantiles_of
from tests.support.naive import write_any_series, write_naive_forecaster

CONTEXT, HORIZON = 48, 24
ROWS, TRAIN, MIDDLE, VALIDATION = 600, 360, 420, 480
"""Rows of synthetic-series, and the ends of training, of the first and of the second half of validation."""

Values = NDArray[np.float64]


@pytest.fixture(autouse=True)
def _without_any_series(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zero_shot, "EXPORT", tmp_path / "none")


def forecasting(*overrides: str) -> ForecastingTask:
    config = load_recipe(find_recipe("synthetic-series"), list(overrides))
    assert isinstance(config, ForecastingRun)
    return ForecastingTask(config)


def learner_of(*overrides: str, path: Path | None = None) -> WindowLearner:
    """Return what training on generated data learns from, or on a file."""
    task = forecasting(*overrides, *(() if path is None else ['data.name="csv"']))
    data = task.load(task.read(DataFiles(data=path)))
    return task.with_facts_of(data).learner(data)


@pytest.fixture
def learner() -> WindowLearner:
    return learner_of()


@pytest.fixture
def data(learner: WindowLearner) -> ForecastData:
    return learner.data


def with_values(values: Values, boundaries: tuple[int, int, int]) -> ForecastData:
    """Return data whose series has these values, already scaled."""
    channels = tuple(f"channel {i}" for i in range(values.shape[1]))
    nothing = np.zeros(values.shape[1])
    series = ScaledSeries(values.astype(np.float32), channels, nothing, nothing + 1, boundaries)
    linear = LinearMap(np.zeros((CONTEXT, HORIZON)), np.zeros(HORIZON))
    start = Start(linear, 1.0, "repeat-last")
    return ForecastData(series, CONTEXT, HORIZON, linear, start, np.ones(HORIZON), 1, nothing + 1)


def _forecast_of(linear: LinearMap, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    return linear.forecast(inputs["series"])


def initial(learner: WindowLearner) -> torch.nn.Module:
    """Return the linear map as a model."""
    model = learner.build().eval()
    learner.initialise(model, torch.device("cpu"))
    return model


def repeat_last(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Forecast the last value; exact for whole numbers."""
    return np.repeat(inputs["series"][:, -1:], HORIZON, axis=1)


def last_and_step(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Return forecasts that encode their window and step: 1000 times the last value, plus the step."""
    last = inputs["series"][:, -1:] * 1000
    return np.concatenate([last + step for step in range(HORIZON)], axis=1).astype(np.float32)


def write(path: Path, values: Values, step: timedelta = timedelta(hours=1)) -> Path:
    """Write a CSV file of these channels."""
    lines = ["time," + ",".join(f"c{i}" for i in range(values.shape[1]))]
    for number, row in enumerate(values.tolist()):
        lines.append((datetime(2024, 1, 1) + number * step).isoformat() + "," + ",".join(map(repr, row)))
    path.write_text("\n".join(lines) + "\n")
    return path


def waves(rows: int = ROWS) -> Values:
    noise = np.random.default_rng(1).normal(0, 0.1, (rows, 2))
    time = np.arange(rows)[:, None]
    return np.sin(time * [0.26, 0.11]) + noise


@pytest.mark.parametrize(("start", "end"), [(100, 400), (72, 75), (500, 501)])
def test_by_target_puts_every_forecast_at_its_target_row(start: int, end: int) -> None:
    values = np.stack([np.arange(600.0), -np.arange(600.0)], axis=1)
    found = with_values(values, (300, 400, 600)).by_target(last_and_step, start, end)
    assert found.shape == (end - start, HORIZON, 2)
    for row in range(start, end):
        for step in range(HORIZON):
            last = row - step - 1
            assert found[row - start, step].tolist() == [1000 * last + step, -1000 * last + step]


def test_by_target_passes_context_windows_in_order() -> None:
    values = np.stack([np.arange(600.0), np.arange(600.0) % 7], axis=1)
    seen: list[NDArray[np.float32]] = []

    def run(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        seen.extend(inputs["series"])
        return last_and_step(inputs)

    with_values(values, (300, 400, 600)).by_target(run, 100, 400)
    assert len(seen) == 300 + HORIZON - 1
    for number, window in enumerate(seen):
        first = 100 - HORIZON + 1 - CONTEXT + number
        assert np.array_equal(window, values[first : first + CONTEXT])


def test_by_target_needs_rows_before_the_first_target() -> None:
    data = with_values(np.zeros((600, 1)), (300, 400, 600))
    assert data.by_target(repeat_last, CONTEXT + HORIZON - 1, 80).shape == (9, HORIZON, 1)
    with pytest.raises(UserError, match=r"begins at row 70; 48 \+ 24 rows are needed before it"):
        data.by_target(repeat_last, 70, 80)


def outcome(path: Path) -> dict[str, Any]:
    """Return everything that training and selection derive from a file."""
    torch.manual_seed(0)
    learner = learner_of(path=path)
    model = learner.build()
    learner.initialise(model, torch.device("cpu"))
    batches = list(learner.batches(0))
    return {
        "facts": learner.task.facts,
        "batches": [tensor.tolist() for batch in batches for tensor in batch],
        "loss": float(learner.loss(model, batches[0]).detach()),
        "weights": learner.weights.tolist(),
        "model": {name: tensor.tolist() for name, tensor in model.state_dict().items()},
        "linear on validation": learner.data.step_mse.tolist(),
        "validation": learner.validate(shifted(model).eval(), torch.device("cpu")),
    }


def shifted(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model with forecasts that differ from the linear map."""
    assert isinstance(model, ResidualForecaster)
    model.linear.bias.data += 0.5
    return model


def differing(left: dict[str, Any], right: dict[str, Any]) -> set[str]:
    return {key for key in left if not same(left[key], right[key])}


def same(left: Any, right: Any) -> bool:
    """Equality except for the last bits, which depend on where the arrays of a matrix product are in memory."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == pytest.approx(right, rel=1e-5, abs=1e-7)) if isinstance(left, float) else bool(left == right)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome(write(tmp_path_factory.mktemp("data") / "rows.csv", waves()))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(VALIDATION, ROWS), set[str]()),
        (slice(MIDDLE, VALIDATION), set[str]()),
        (slice(MIDDLE - 1, MIDDLE), {"linear on validation", "validation"}),
        (slice(TRAIN, TRAIN + 1), {"linear on validation", "validation"}),
        (slice(TRAIN - 1, TRAIN), None),
    ],
    ids=["test", "second half of validation", "end of the first half", "its beginning", "end of training"],
)
def test_rows_of_a_split_affect_only_its_own_results(
    rows: slice, expected: set[str] | None, original: dict[str, Any], tmp_path: Path
) -> None:
    values = waves()
    values[rows] = 3 * values[rows][::-1] + 1
    changed = outcome(write(tmp_path / "rows.csv", values))
    assert differing(original, changed) == (set(original) if expected is None else expected)


def test_training_batches_have_every_window_of_the_training_rows_once(learner: WindowLearner) -> None:
    rows = [(context, truth) for batch in learner.batches(0) for context, truth in zip(*batch, strict=True)]
    windows = TRAIN - CONTEXT - HORIZON + 1
    assert len(rows) == learner.examples_per_epoch == windows // 16 * 16
    starts = set()
    for context, truth in rows:
        window = np.concatenate([context.numpy(), truth.numpy()])
        [start] = [
            s for s in range(windows) if np.array_equal(learner.data.series.values[s : s + CONTEXT + HORIZON], window)
        ]
        starts.add(start)
    assert len(starts) == len(rows)


def test_training_batches_depend_on_seed_and_epoch(learner: WindowLearner) -> None:
    def epoch(number: int, seed: int = 0) -> list[list[float]]:
        return [batch[0].flatten().tolist() for batch in learner_of(f"seed={seed}").batches(number)]

    assert epoch(2) == [batch[0].flatten().tolist() for batch in learner.batches(2)]
    assert epoch(2) != epoch(3)
    assert epoch(2) != epoch(2, seed=1)


def test_training_batches_of_a_shorter_epoch_are_the_first_of_a_full_epoch(learner: WindowLearner) -> None:
    short = learner_of("training.examples_per_epoch=40")
    assert short.examples_per_epoch == 32
    whole = list(learner.batches(1))
    for left, right in zip(short.batches(1), whole[:2], strict=True):
        assert torch.equal(left[0], right[0])
        assert torch.equal(left[1], right[1])


def forecast_linearly(linear: LinearMap, context: NDArray[np.float32]) -> Values:
    """Forecast (steps,) from the values of one channel."""
    change = context.astype(np.float64) - float(context[-1])
    return float(context[-1]) + change @ linear.weight + linear.bias


def test_loss_weighs_each_step_by_the_error_of_the_linear_map(learner: WindowLearner) -> None:
    windows = learner.data.series.windows("train", CONTEXT, HORIZON)
    linear = solve_linear_map(windows, CONTEXT)
    squared = np.zeros(HORIZON)
    for window in windows:
        for channel in window:
            squared += (forecast_linearly(linear, channel[:CONTEXT]) - channel[CONTEXT:]) ** 2
    inverse = 1 / squared
    expected = inverse / inverse.mean()
    assert learner.weights.numpy() == pytest.approx(expected, rel=1e-5)

    torch.manual_seed(0)
    model = learner.build().eval()
    context, truth = next(learner.batches(0))
    found = model(context).detach().numpy()
    loss = 0.0
    for step in range(HORIZON):
        loss += expected[step] * ((found[:, step] - truth[:, step].numpy()) ** 2).mean() / HORIZON
    assert float(learner.loss(model, (context, truth)).detach()) == pytest.approx(loss, rel=1e-5)


def test_loss_of_the_linear_map_is_equal_at_every_step(learner: WindowLearner) -> None:
    windows = torch.from_numpy(learner.data.series.windows("train", CONTEXT, HORIZON).transpose(0, 2, 1).copy())
    model = initial(learner)
    squared = (model(windows[:, :CONTEXT]).detach() - windows[:, CONTEXT:]).square().mean(dim=(0, 2))
    weighted = (squared * learner.weights).numpy()
    assert weighted == pytest.approx(np.full(HORIZON, weighted.mean()), rel=1e-4)


def test_validation_error_is_the_mean_ratio_to_the_linear_map(learner: WindowLearner) -> None:
    model = initial(learner)
    assert learner.validate(model, torch.device("cpu")) == pytest.approx(1, rel=1e-5)
    model = shifted(model)
    values = learner.data.series.values
    ours, linear = np.zeros(HORIZON), np.zeros(HORIZON)
    for row in range(TRAIN, MIDDLE):
        for step in range(HORIZON):
            last = row - step
            for channel in range(3):
                forecast = forecast_linearly(learner.data.linear, values[last - CONTEXT : last, channel])[step]
                linear[step] += (forecast - values[row, channel]) ** 2
                ours[step] += (forecast + 0.5 - values[row, channel]) ** 2
    assert learner.validate(model, torch.device("cpu")) == pytest.approx((ours / linear).mean(), rel=1e-4)


def errors_of_repeat_last(values: Values, first: int, end: int) -> Values:
    """Return truth minus forecast (rows, steps, channels)."""
    return np.array([[values[row] - values[row - step - 1] for step in range(HORIZON)] for row in range(first, end)])


def conformal(errors: Values, level: float) -> Values:
    """Return the error that bounds a level, rounded to the safe side."""
    product = round((len(errors) + 1) * level, 9)
    rank = int(np.ceil(product) if level >= 0.5 else np.floor(product))
    bound: Values = np.sort(errors, axis=0)[rank - 1]
    return bound


def coverage(errors: Values, of: Values) -> float:
    low, high = (conformal(errors, level) for level in BAND)
    return float(((low <= of) & (of <= high)).mean())


def noise(quiet: slice) -> Values:
    """Whole numbers; some rows vary a tenth as much. 300 training rows, then two times 100 validation rows."""
    values = np.random.default_rng(0).integers(-100, 100, (600, 2)).astype(np.float64)
    values[quiet] = (values[quiet] / 10).round()
    return values


@pytest.mark.parametrize(
    ("quiet", "source", "first"),
    [(slice(0, 300), "validation", 400), (slice(300, 400), "history", CONTEXT + HORIZON)],
    ids=["history was quieter", "first half was quieter"],
)
def test_calibration_uses_the_rows_most_similar_to_recent_ones(quiet: slice, source: str, first: int) -> None:
    values = noise(quiet)
    calibration, found = calibrated(repeat_last, with_values(values, (300, 500, 600)))
    recent = errors_of_repeat_last(values, 400, 500)
    distances = [
        abs(coverage(errors_of_repeat_last(values, begin, 400), recent) - 0.8) for begin in (300, CONTEXT + HORIZON)
    ]
    assert (distances[0] <= distances[1]) == (source == "validation")
    assert (found, calibration.count) == (source, 500 - first)
    errors = errors_of_repeat_last(values, first, 500)
    extremes = (1 / (len(errors) + 1), len(errors) / (len(errors) + 1))
    levels = sorted({*extremes, *(level for level in LEVELS if extremes[0] < level < extremes[1])})
    assert calibration.levels.tolist() == levels
    for level, stored in zip(levels, calibration.errors, strict=True):
        assert np.array_equal(stored, conformal(errors, level))


def test_calibration_reads_no_row_of_the_test_split(data: ForecastData) -> None:
    values = data.series.values.copy()
    values[VALIDATION:] += 5
    other = dataclasses.replace(data, series=dataclasses.replace(data.series, values=values))
    (before, source), (after, same) = (calibrated(repeat_last, each) for each in (data, other))
    assert source == same
    assert np.array_equal(before.errors, after.errors)


METRICS = ("mse", "mae", "mase")
SEASON = 24


def scales(data: ForecastData) -> Values:
    """(channels,): mean error of repeating the season before, in training."""
    train = data.series.values[: data.series.boundaries[0]].astype(np.float64)
    rows = range(SEASON, len(train))
    errors = [[abs(train[i, c] - train[i - SEASON, c]) for i in rows] for c in range(train.shape[1])]
    found: Values = np.array(errors).mean(axis=1)
    return found


def metrics(error: Values, scale: Values) -> list[Values]:
    """Of one window (steps, channels), by METRICS."""
    return [error**2, abs(error), abs(error) / scale]


def slow_baselines(data: ForecastData, first: int, horizon: int) -> dict[str, Values]:
    """Forecasts (steps, channels) of the baselines from row `first` on."""
    values = data.series.values.astype(np.float64)
    context = data.series.values[first - CONTEXT : first]
    return {
        "repeat-last": np.repeat(values[first - 1 : first], horizon, axis=0),
        f"seasonal naive ({SEASON} steps)": np.array(
            [values[first - SEASON + step % SEASON] for step in range(horizon)]
        ),
        "linear map": np.stack([forecast_linearly(data.linear, column)[:horizon] for column in context.T], axis=1),
    }


def slow_results(data: ForecastData, run: GraphFunction, horizon: int) -> tuple[dict[str, Values], float]:
    """METRICS of the model and the baselines, and coverage of one horizon, window by window."""
    calibration, _ = calibrated(run, data)
    low, high = (calibration.error(level, horizon) for level in BAND)
    values, scale = data.series.values, scales(data)
    begin, end = data.series.boundaries[1:]
    found: dict[str, list[list[Values]]] = {}
    covered = []
    for first in range(begin, end - horizon + 1):
        context, truth = values[first - CONTEXT : first], values[first : first + horizon]
        forecast = run({"series": context[None]})[0, :horizon].astype(np.float64)
        covered.append((low <= truth - forecast) & (truth - forecast <= high))
        answers: dict[str, Values] = {"model": forecast, **slow_baselines(data, first, horizon)}
        for name, other in answers.items():
            found.setdefault(name, []).append(metrics(truth - other, scale))
    return {name: np.mean(rows, axis=(0, 2, 3)) for name, rows in found.items()}, float(np.mean(covered))


def test_results_cover_every_test_window_at_every_horizon() -> None:
    task = forecasting("model.prediction_length=40", "data.train_fraction=0.4", "data.validation_fraction=0.3")
    data = task.load(Path("absent"))

    def run(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        last, before = inputs["series"][:, -1:], inputs["series"][:, -24:-23]
        return np.concatenate([last * 0.5 + before * 0.5 + 0.01 * step for step in range(40)], axis=1)

    results = {(result.condition, result.metric): result for result in task.measure([run], data).results}
    assert len(results) == 8
    for horizon in (24, 36):
        expected, covered = slow_results(data, run, horizon)
        assert results[f"horizon {horizon}", "coverage_80"].value == pytest.approx(covered, abs=2e-6)
        for place, metric in enumerate(METRICS):
            result = results[f"horizon {horizon}", metric]
            # Single precision in the forecasts, six decimals in the results.
            assert result.value == pytest.approx(expected["model"][place], abs=2e-6)
            assert (result.split, result.examples, result.seeds) == ("test", 180 - horizon + 1, (0,))
            others = [f"{name} {row[place]:.3f}" for name, row in expected.items() if name != "model"]
            assert result.compared_with == ", ".join(others)


def test_measure_notes_every_baseline_that_is_ahead(data: ForecastData) -> None:
    found = forecasting().measure([lambda inputs: repeat_last(inputs) + 9], data)
    assert [re.sub("[0-9]+[.][0-9]+", "X", line) for line in found.notes] == [
        f"warning: the model is behind {name} on test, horizon 24: MSE X, {name} X"
        for name in ("repeat-last", "seasonal naive (24 steps)", "linear map")
    ]
    found = forecasting().measure([lambda inputs: data.linear.forecast(inputs["series"])], data)
    assert "linear map" not in "".join(found.notes)


def test_comparison_has_the_errors_on_the_second_half_of_validation(learner: WindowLearner) -> None:
    torch.manual_seed(0)
    data, table = learner.data, learner.compare(shifted(initial(learner)), torch.device("cpu")).splitlines()
    values, scale = data.series.values.astype(np.float64), scales(data)
    sums: dict[str, list[list[Values]]] = {}
    for row in range(MIDDLE, VALIDATION):
        for step in range(HORIZON):
            for name, forecast in slow_baselines(data, row - step, HORIZON).items():
                sums.setdefault(name, []).append(metrics(values[row] - forecast[step], scale))
                if name == "linear map":
                    sums.setdefault("model", []).append(metrics(values[row] - forecast[step] - 0.5, scale))
    assert table[1].split() == ["MSE", "MAE", "MASE"]
    assert len({len(line) for line in table[1:6]}) == 1
    found = {line[:-30].strip(): [float(cell) for cell in line[-30:].split()] for line in table[2:6]}
    assert found.keys() == sums.keys()
    for name, rows in sums.items():
        assert found[name] == pytest.approx(np.mean(rows, axis=(0, 2)), abs=6e-5)
    ahead = [name for name, row in found.items() if name != "model" and row[0] < found["model"][0]]
    assert "linear map" in ahead
    assert table[6:] == [
        f"warning: the model is behind {name} on the second half of validation: "
        f"MSE {found['model'][0]:.4f}, {name} {found[name][0]:.4f}"
        for name in ahead
    ]


def test_comparison_has_the_forecaster_of_any_series(
    learner: WindowLearner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_any_series(tmp_path, "any")
    monkeypatch.setattr(zero_shot, "EXPORT", tmp_path / "any")
    monkeypatch.setattr(zero_shot, "MOST_SERIES", 6)
    data, values = learner.data, learner.data.series.values
    count = 6 // values.shape[1]
    rows = np.linspace(MIDDLE, VALIDATION - HORIZON, count).astype(int)
    lines = learner.compare(shifted(initial(learner)), torch.device("cpu")).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"On {count} windows"))
    found = {line.split()[0]: [*map(float, line.split()[1:])] for line in lines[start + 2 : start + 4]}
    errors: dict[str, list[NDArray[np.float32]]] = {"model": [], "any-series": []}
    for row in rows.tolist():
        truth = values[row : row + HORIZON]
        errors["model"].append(truth - data.linear.forecast(values[None, row - CONTEXT : row])[0] - 0.5)
        forecast = [quantiles_of(past.tolist(), (24, 168))[MEDIAN, :HORIZON] for past in values[:row].T]
        errors["any-series"].append(truth - np.transpose(forecast))
    for name, found_errors in errors.items():
        assert found[name] == pytest.approx(data.metrics(np.stack(found_errors)).mean(axis=(0, 1)), abs=1e-3)
    assert found["model"][0] > found["any-series"][0]
    assert lines[start + 4 :] == [
        f"warning: the model is behind any-series on these windows: MSE {found['model'][0]:.4f}, any-series "
        f"{found['any-series'][0]:.4f}; serve any-series, which needs no training"
    ]


def test_comparison_is_without_the_forecaster_of_any_series_if_it_cannot_answer(
    learner: WindowLearner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    series, rows = learner.data.series, np.array([MIDDLE])
    assert zero_shot.zero_shot(series, rows, HORIZON) is None  # no export
    write_any_series(tmp_path, "any")
    write_naive_forecaster(tmp_path, "plant", CHANNELS)
    monkeypatch.setattr(zero_shot, "EXPORT", tmp_path / "plant")
    assert zero_shot.zero_shot(series, rows, HORIZON) is None
    monkeypatch.setattr(zero_shot, "EXPORT", tmp_path / "any")
    assert zero_shot.zero_shot(series, rows, 961) is None
    assert zero_shot.zero_shot(series, rows, HORIZON) is not None


def test_the_best_share_of_the_linear_map_is_the_start() -> None:
    learner = learner_of('model.linear_share="best"')
    data, half = learner.data, learner.data.series.validation_half(0)
    truth = data.series.values[slice(*half), None]
    linear = data.by_target(functools.partial(_forecast_of, data.linear), *half)
    errors = {}
    for name, season in data.naive.items():
        repeating = LinearMap.repeating(season, CONTEXT, HORIZON)
        naive = data.by_target(functools.partial(_forecast_of, repeating), *half)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            errors[name, share] = float(np.square(share * linear + (1 - share) * naive - truth).mean())
    start = data.start
    assert errors[start.rest, start.share] == pytest.approx(min(errors.values()), rel=1e-4)
    assert any("of the linear map" in line for line in learner.task.describe(data))


def test_horizons_longer_than_the_test_split_are_not_measured() -> None:
    task = forecasting("model.prediction_length=60", "data.train_fraction=0.8", "data.validation_fraction=0.15")
    repeated: GraphFunction = lambda inputs: np.repeat(inputs["series"][:, -1:], 60, axis=1)  # noqa: E731
    results = task.measure([repeated], task.load(Path("absent"))).results
    assert {(result.condition, result.examples) for result in results} == {("horizon 24", 30 - 24 + 1)}


def test_test_split_shorter_than_every_horizon_is_an_error() -> None:
    task = forecasting("model.prediction_length=60", "data.train_fraction=0.8", "data.validation_fraction=0.18")
    with pytest.raises(UserError, match=r"test split"):
        task.load(Path("absent"))


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
def test_too_short_validation_split_is_an_error() -> None:
    with pytest.raises(UserError, match=r"validation"):
        forecasting("data.validation_fraction=0.001").load(Path("absent"))


@pytest.mark.parametrize(
    ("coverages", "expected"),
    [([0.7, 0.9], True), ([0.699, 0.8], False), ([0.8, 0.901], False), ([0.8], True)],
)
def test_quantiles_are_reliable_if_every_horizon_is_covered(coverages: Sequence[float], expected: bool) -> None:
    common = {"split": "test", "examples": 1, "condition": "", "seeds": (0,), "compared_with": ""}
    results = [Result(metric="coverage_80", value=value, **common) for value in coverages]  # type: ignore[arg-type]
    results.append(Result(metric="mse", value=5.0, **common))  # type: ignore[arg-type]
    assert quantiles_are_reliable(results) is expected


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training run."""
    return train("synthetic-series", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the run as version 1."""
    return export(run, tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def manifest(exported: Path) -> ForecasterManifest:
    manifest = read_manifest(exported)
    assert isinstance(manifest, ForecasterManifest)
    return manifest


@pytest.fixture(scope="module")
def eager(run: Path) -> GraphFunction:
    """The best checkpoint in PyTorch."""
    return module_functions(load_trained(run, DataFiles()).finished.graphs, torch.device("cpu"))[0]


def test_training_keeps_the_initial_model_or_the_epoch_with_the_smallest_error(
    run: Path, learner: WindowLearner
) -> None:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    start = learner.validate(initial(learner), torch.device("cpu"))
    _, progress, _, _ = checkpoint.load(run / "best.pt")
    assert progress.best == min(start, *(record["validation_mse_to_linear"] for record in records))


def test_run_without_improvement_exports_the_initial_linear_map(tmp_path: Path) -> None:
    folder = train("synthetic-series", tmp_path, "training.learning_rate=1", "training.epochs=1")
    assert checkpoint.load(folder / "best.pt")[1].history == []
    manifest = read_manifest(export(folder, tmp_path / "exports"))
    assert manifest.training.validation.value == 1.0
    [mse] = [result for result in manifest.results if result.metric == "mse"]
    assert mse.compared_with.endswith(f"linear map {mse.value:.3f}")


def test_export_manifest_describes_the_run(
    run: Path, exported: Path, manifest: ForecasterManifest, learner: WindowLearner
) -> None:
    names = ["README.md", "calibration.npz", "golden.npz", "manifest.json", "model.onnx", "model.ts"]
    assert sorted(path.name for path in exported.iterdir()) == names
    _, progress, facts, _ = checkpoint.load(run / "best.pt")
    assert facts == learner.task.facts
    assert (manifest.channels, manifest.frequency) == (("day", "week", "sum"), "1h")
    assert (list(manifest.mean), list(manifest.scale)) == (facts["mean"], facts["scale"])
    assert (manifest.context_length, manifest.horizon, manifest.min_observations) == (48, 24, 12)
    assert [spec.shape for spec in (*manifest.inputs, *manifest.outputs)] == [(-1, 48, 3), (-1, 24, 3)]
    assert manifest.training.validation.metric == "mse_to_linear"
    assert manifest.training.validation.value == round(progress.best or 0, 4)
    assert (manifest.data_terms, manifest.non_commercial) == ("Generated; no terms.", False)
    assert manifest.quantiles_reliable == quantiles_are_reliable(manifest.results)


def test_export_has_the_calibration_of_its_model(
    exported: Path, manifest: ForecasterManifest, data: ForecastData, eager: GraphFunction
) -> None:
    calibration, source = calibrated(eager, data)
    assert (manifest.calibration_source, manifest.calibration_examples) == (source, calibration.count)
    with np.load(exported / "calibration.npz", allow_pickle=False) as stored:
        assert sorted(stored) == ["errors", "levels"]
        assert stored["levels"].tolist() == calibration.levels.tolist()
        assert stored["errors"].shape == (len(calibration.levels), 24, 3)
        assert np.abs(stored["errors"] - calibration.errors).max() <= manifest.tolerance * 10


@pytest.mark.parametrize("format", ["onnx", "torchscript"])
def test_backends_agree_with_pytorch_on_other_windows(
    exported: Path, manifest: ForecasterManifest, eager: GraphFunction, format: Format
) -> None:
    series = np.random.default_rng(7).standard_normal((5, 48, 3)).cumsum(axis=1).astype(np.float32)
    backend = create_backend(manifest, exported, format=format, device="cpu")
    found = backend.run({"series": series})["forecast"]
    assert largest_error(found, eager({"series": series})) <= manifest.tolerance
    for i in range(5):
        alone = backend.run({"series": series[i : i + 1]})["forecast"]
        assert largest_error(alone, found[i : i + 1]) <= manifest.tolerance


def test_evaluate_reproduces_the_results_in_the_manifest(
    exported: Path, manifest: ForecasterManifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exported, "--out", target, "--device", "cpu") == 0
    results = json.loads(target.read_text())
    assert results == json.loads(manifest.model_dump_json())["results"]
    assert [(r["metric"], r["condition"], r["examples"]) for r in results] == [
        (metric, "horizon 24", 120 - 24 + 1) for metric in ("mse", "mae", "mase", "coverage_80")
    ]
    assert results[0]["value"] < 0.2
    out = capsys.readouterr().out
    for r in results:
        measured = rf"{r['metric']} +horizon 24 +test +97 +{r['value']:.4f} +{r['value']:.4f}"
        assert re.search(rf"{measured}  {re.escape(r['compared_with'])}\n", out)


EXACT_SERIES: dict[str, Values] = {
    "periodic": np.array([[0.18 if i % 24 < 7 else 0.31] for i in range(ROWS)]),
    "linear": np.array([[0.1 * i, 7 - 3.0 * i] for i in range(ROWS)]),
    "alternating": np.array([[i % 2] for i in range(ROWS)], np.float64),
    "tiny and huge": np.array([[1e-300 * np.sin(i * np.pi / 12), 1e300 * (i % 12 - 5)] for i in range(ROWS)]),
}
"""Series that a linear map forecasts exactly."""


@pytest.mark.parametrize("kind", EXACT_SERIES)
def test_series_without_an_error_is_trained_exported_and_forecast(kind: str, tmp_path: Path) -> None:
    values = EXACT_SERIES[kind]
    future, path = values[-HORIZON:], write(tmp_path / "rows.csv", values[:-HORIZON])
    assert own(path, tmp_path / "runs") == 0
    folder = export(tmp_path / "runs" / "rows-seed0", tmp_path / "exports")
    manifest = read_manifest(folder)
    assert isinstance(manifest, ForecasterManifest)
    assert manifest.training.validation.value == pytest.approx(1, abs=0.05)
    assert manifest.results[0].value == pytest.approx(0, abs=1e-6)
    target = tmp_path / "evaluation.json"
    assert call("evaluate", folder.parent, "--data", path, "--out", target, "--device", "cpu") == 0
    assert json.loads(target.read_text()) == json.loads(manifest.model_dump_json())["results"]
    formats: list[Format] = ["onnx", "torchscript"]
    for format in formats:
        model = load(folder, format=format)
        columns = dict(zip(manifest.channels, values[:-HORIZON].T.tolist(), strict=True))
        forecast = model.forecast(columns)["forecast"]
        found = np.array([forecast[name] for name in manifest.channels]).T
        assert (found - future) / manifest.scale == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    "values",
    [
        np.array([[1.0 if i < 200 else 3] for i in range(ROWS)]),
        np.array([[float(i == TRAIN - 1)] for i in range(ROWS)]),
        np.where(np.arange(ROWS)[:, None] < TRAIN, waves(), 0),
        np.tile(np.random.default_rng(0).standard_normal((100, 1)), (6, 1)),
    ],
    ids=["step", "spike", "zeros at the end", "period longer than the context"],
)
def test_loss_and_metrics_of_a_degenerate_series_are_finite(values: Values, tmp_path: Path) -> None:
    learner = learner_of(path=write(tmp_path / "rows.csv", values))
    torch.manual_seed(0)
    model = initial(learner)
    assert learner.validate(model, torch.device("cpu")) == pytest.approx(1, rel=1e-3)
    assert math.isfinite(learner.loss(model, next(learner.batches(0))).detach())
    functions = module_functions(learner.task.graphs(model), torch.device("cpu"))
    results = learner.task.measure(functions, learner.data).results
    assert all(math.isfinite(result.value) for result in results)


def test_measure_warns_of_no_baseline_if_the_model_is_exact(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = learner_of(path=write(tmp_path / "rows.csv", EXACT_SERIES["periodic"])).data
    forecasting().measure([lambda inputs: data.linear.forecast(inputs["series"]) + np.float32(1e-6)], data)
    assert capsys.readouterr().out == ""


def test_paper_forecaster_is_trained_with_its_own_settings(tmp_path: Path) -> None:
    settings = ["model.kind=paper", "model.patch_length=1", "model.encoder.seq_len=48"]
    folder = train("synthetic-series", tmp_path, *settings)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert records[2]["training_loss"] < records[0]["training_loss"]
    assert isinstance(load_trained(folder, DataFiles()).finished.model, PaperForecaster)
    assert isinstance(read_manifest(export(folder, tmp_path / "exports")), ForecasterManifest)


def own(path: Path, runs: Path, *arguments: object) -> int:
    small = [
        "training.epochs=1",
        "model.encoder.dim=8",
        "model.encoder.num_heads=1",
        "model.encoder.ffn_dim=8",
    ]
    overrides = [part for setting in small for part in ("--set", setting)]
    common = ["--task", "forecasting", "--data", path, "--runs", runs, "--device", "cpu"]
    return call("train", *common, *overrides, *arguments)


def test_own_series_is_trained_exported_and_evaluated(tmp_path: Path) -> None:
    path = write(tmp_path / "My Series (2).2024.csv", waves(400), timedelta(minutes=15))
    lines = [",".join(reversed(line.split(","))) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    assert own(path, tmp_path / "runs", "--time-column", "time") == 0
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name == "my-series-2-seed0"
    exports = tmp_path / "exports"
    assert call("export", folder, "--data", path, "--out", exports, "--device", "cpu") == 0
    manifest = read_manifest(exports / "my-series-2" / "1")
    assert isinstance(manifest, ForecasterManifest)
    assert (manifest.channels, manifest.frequency) == (("c1", "c0"), "15min")
    assert (manifest.context_length in (12, 24), manifest.horizon) == (True, 24)
    assert manifest.mean == pytest.approx(waves(400)[:280].mean(axis=0)[::-1])
    assert (manifest.training.data, manifest.data_terms) == ("csv", "Own data.")
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exports / "my-series-2", "--data", path, "--out", target, "--device", "cpu") == 0
    assert json.loads(target.read_text()) == json.loads(manifest.model_dump_json())["results"]
    assert call("evaluate", folder, "--data", path, "--device", "cpu") == 0


@pytest.mark.parametrize(("rows", "horizon"), [(180, 12), (359, 12), (360, 24), (720, 48), (1440, 96)])
def test_own_series_is_forecast_as_far_as_its_rows_allow(
    rows: int, horizon: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "rows.csv", waves(rows))
    assert own(path, tmp_path / "runs", "--set", "training.examples_per_epoch=16") == 0
    out = capsys.readouterr().out
    assert f" steps in, {horizon} out" in out
    assert "Errors on the second half of validation" in out


def test_own_series_with_a_given_context_needs_no_other_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "rows.csv", waves(900))
    common = ["--set", "training.examples_per_epoch=16", "--set"]
    assert own(path, tmp_path / "runs", *common, "model.context_length=336") == 0
    assert "336 steps in, 48 out" in capsys.readouterr().out
    assert own(path, tmp_path / "odd", *common, "model.context_length=335") == 2
    assert capsys.readouterr().err == "error: model.context_length must be even and at least 6, not 335\n"


def test_monthly_series_with_gaps_is_filled_exported_and_evaluated(tmp_path: Path) -> None:
    months = [f"{1990 + i // 12}-{i % 12 + 1:02}" for i in range(240)]
    values = waves(240).round(4).tolist()
    lines = [f"{month},{a},{b}" for month, (a, b) in zip(months, values, strict=True)]
    lines[20] = f"{months[20]},n/a,{values[20][1]}"
    del lines[50:52]
    path = tmp_path / "Sales.csv"
    path.write_text("\n".join(["month,a,b", *lines]) + "\n")
    assert own(path, tmp_path / "runs") == 2
    assert own(path, tmp_path / "runs", "--fill") == 0
    exports = tmp_path / "exports"
    folder = tmp_path / "runs" / "sales-seed0"
    assert call("export", folder, "--data", path, "--out", exports, "--device", "cpu") == 0
    manifest = read_manifest(exports / "sales" / "1")
    assert isinstance(manifest, ForecasterManifest)
    assert (manifest.channels, manifest.frequency) == (("a", "b"), "1mo")
    assert "seasonal naive (12 steps)" in manifest.results[0].compared_with
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exports / "sales", "--data", path, "--out", target, "--device", "cpu") == 0
    assert json.loads(target.read_text()) == json.loads(manifest.model_dump_json())["results"]


def test_own_series_without_a_time_column_is_exported(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", waves(200))
    path.write_text("".join(line.partition(",")[2] + "\n" for line in path.read_text().splitlines()))
    assert own(path, tmp_path / "runs", "--frequency", "15min") == 0
    folder = tmp_path / "runs" / "rows-seed0"
    assert call("export", folder, "--data", path, "--out", tmp_path / "exports", "--device", "cpu") == 0
    manifest = read_manifest(tmp_path / "exports" / "rows" / "1")
    assert isinstance(manifest, ForecasterManifest)
    assert (manifest.channels, manifest.frequency) == (("c0", "c1"), "15min")


def test_long_table_is_trained_exported_and_kept_in_the_manifest(tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.csv", waves(200)).read_text().splitlines()[1:]
    rows = [[*line.split(",")] for line in wide]
    path = tmp_path / "long.csv"
    lines = [f"{name},{row[0]},{row[1 + k]},sun\n" for k, name in enumerate(("north", "south")) for row in rows]
    path.write_text("unit,at,load,sky\n" + "".join(lines))
    assert own(path, tmp_path / "runs", "--id-column", "unit", "--target-column", "load") == 0
    folder = tmp_path / "runs" / "long-seed0"
    assert call("export", folder, "--data", path, "--out", tmp_path / "exports", "--device", "cpu") == 0
    manifest = read_manifest(tmp_path / "exports" / "long" / "1")
    assert isinstance(manifest, ForecasterManifest)
    assert (manifest.channels, manifest.frequency) == (("north", "south"), "1h")
    assert manifest.layout == Layout(id_column="unit", target_column="load")
    assert call("evaluate", folder, "--data", path, "--device", "cpu") == 0


def test_columns_of_an_own_series_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.csv", waves(200))
    assert own(path, tmp_path / "runs", "--channels", "c1,") == 0
    assert "200 rows of 1 channels, step 1h" in capsys.readouterr().out
    assert own(path, tmp_path / "runs", "--ignore", "c0,c1") == 2
    assert ":1: expected at least one channel besides the time column" in capsys.readouterr().err


def lines_with(number: int, line: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[: number - 1], line, *lines[number:]]


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (
            lambda lines: lines,
            ["--frequency", "fortnightly"],
            "data.frequency must be a number and one of ms, s, min, h",
        ),
        (lines_with(9, "2024-01-01T07:00:00,,x"), ["--fill"], "{path}: cells that are not finite numbers (1): line 9 "),
        (lambda lines: lines, ["--time-column", "date"], "{path}:1: no column 'date'; columns: time, c0, c1"),
        (lambda lines: [line.rpartition(",")[0] + ",3" for line in lines], [], "{path}: column 3 is constant"),
        (lambda lines: lines[:2], [], "{path} leaves 0 training rows"),
        (lambda lines: lines[:31], [], "the train split has 18 rows with its context; 24 are needed"),
        (lambda lines: lines[:46], [], "4 training windows of 12 + 12 rows are fewer than one batch, 16"),
    ],
)
def test_error_about_an_unreadable_own_series_is_one_line_with_the_location(
    change: Callable[[list[str]], list[str]],
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write(tmp_path / "rows.csv", waves(200))
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))
    assert own(path, tmp_path / "runs", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message.format(path=path)}")
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_error_names_a_missing_own_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert own(tmp_path / "absent.csv", tmp_path / "runs") == 2
    assert re.fullmatch(rf"error: {tmp_path}/absent\.csv does not exist.*\n", capsys.readouterr().err)
    assert own(tmp_path, tmp_path / "runs") == 2
    assert re.fullmatch(rf"error: {tmp_path} is a folder.*\n", capsys.readouterr().err)


@pytest.mark.parametrize(("column", "name"), [('the "time"', "quotes"), ("t\\ime", "x" * 63 + "-y"), ("naïve", "Ä")])
def test_own_series_may_have_any_column_and_file_name(column: str, name: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"{name}.csv", waves(120))
    quoted = column.replace('"', '""')
    path.write_text(path.read_text().replace("time", f'"{quoted}"', 1))
    assert own(path, tmp_path / "runs", "--time-column", column) == 0
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name in ("quotes-seed0", "x" * 63 + "-seed0", "series-seed0")


def test_own_series_too_short_to_calibrate_is_rejected_or_exported(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", waves(100))
    if own(path, tmp_path / "runs") == 0:
        exports = tmp_path / "exports"
        assert call("export", tmp_path / "runs" / "rows-seed0", "--data", path, "--out", exports) == 0


@pytest.mark.parametrize("columns", [[0], [1, 0], [0, 1, 1]], ids=["one", "swapped", "three"])
def test_evaluate_on_a_file_of_other_channels_is_an_error(columns: list[int], tmp_path: Path) -> None:
    values = waves(200)
    path, other = write(tmp_path / "rows.csv", values), tmp_path / "other.csv"
    assert own(path, tmp_path / "runs") == 0
    write(other, values[:, columns])
    header = ",".join(["time", *(f"c{i}" if number < 2 else "more" for number, i in enumerate(columns))])
    other.write_text("\n".join([header, *other.read_text().splitlines()[1:]]) + "\n")
    assert call("evaluate", tmp_path / "runs" / "rows-seed0", "--data", other, "--device", "cpu") == 2
