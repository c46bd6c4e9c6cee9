"""What is derived from a user's series."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from artifact.series import Layout
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ForecastingRun
from model.data.series import load_series, read_own_series
from model.errors import UserError
from model.tasks.baselines import solve_linear_map
from model.tasks.own_series import CLOSE, CONTEXTS, read_series_of


def waves(period: int, rows: int) -> list[float]:
    """A wave under noise: only a context of several periods averages the noise out."""
    noise = np.random.default_rng(0).normal(0, 1, rows)
    found: list[float] = (np.sin(2 * np.pi * np.arange(rows) / period) + noise).round(4).tolist()
    return found


def write(folder: Path, values: list[float], name: str = "load.csv") -> Path:
    times = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(len(values))]
    path = folder / name
    path.write_text("at,a\n" + "".join(f"{time},{value}\n" for time, value in zip(times, values, strict=True)))
    return path


def recipe(path: Path, given: Mapping[str, object] = {}) -> ForecastingRun:
    """The complete recipe of a file."""
    overrides = [f"{key}={value}" for key, value in given.items()]
    settings = read_series_of(path, Layout(time_column="at"), given)[0]
    config = load_recipe(find_recipe(ForecastingRun.own_recipe), overrides, settings)
    assert isinstance(config, ForecastingRun)
    return config


@pytest.mark.parametrize(
    ("rows", "horizon", "validation"),
    [(100, 12, 0.2), (399, 24, 0.2), (400, 24, 0.1), (720, 48, 0.1), (1440, 96, 0.1), (3000, 96, 0.1)],
)
def test_horizon_and_splits_follow_from_the_rows(rows: int, horizon: int, validation: float, tmp_path: Path) -> None:
    config = recipe(write(tmp_path, waves(24, rows)))
    assert config.model.prediction_length == horizon
    assert (config.data.train_fraction, config.data.validation_fraction) == (round(0.8 - validation, 1), validation)
    assert (config.name, config.data.time_column) == ("load", "at")


def rows_of_table(text: str) -> dict[int, float]:
    """The errors that are printed, by context length."""
    return {int(size): float(error) for size, error in re.findall(r"^ *([0-9]+)  +([0-9.]+)(?:  chosen)?$", text, re.M)}


def test_context_is_the_shortest_within_a_percent_of_the_best_linear_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = recipe(write(tmp_path, waves(24, 3000)))
    out = capsys.readouterr().out
    errors = rows_of_table(out)
    assert list(errors) == [size for size in CONTEXTS if size <= 3000 / 10]
    series = load_series(config.data, read_own_series(tmp_path / "load.csv", config.data))
    start, middle = 2100, 2250
    for size in (12, 96):
        linear = solve_linear_map(series.windows("train", size, 96), size)
        squared = []
        for row in range(start, middle):
            for step in range(96):
                origin = row - step
                forecast = linear.forecast(series.values[None, origin - size : origin])[0, step]
                squared.append(float((forecast - series.values[row]).item() ** 2))
        assert errors[size] == pytest.approx(np.mean(squared), abs=1e-4)
    chosen = config.model.context_length
    best = min(errors.values())
    assert errors[chosen] <= CLOSE * best + 1e-4
    assert all(error > CLOSE * best - 1e-4 for size, error in errors.items() if size < chosen)
    assert chosen > 24
    assert f"context length: {chosen} steps of 1h" in out
    assert re.search(rf"^ *{chosen}  .*  chosen$", out, re.M)
    assert len({len(line.removesuffix("  chosen")) for line in out.splitlines()[2:]}) == 1


@pytest.mark.parametrize("scale", [1, 1e-300, 1e300])
def test_context_of_an_exactly_periodic_series_is_the_shortest_with_a_period(scale: float, tmp_path: Path) -> None:
    values = [scale * (1 if 7 <= i % 24 < 22 else 3) for i in range(1000)]
    assert recipe(write(tmp_path, values)).model.context_length == 24


def test_a_few_rows_compare_two_contexts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe(write(tmp_path, waves(12, 240)))
    assert list(rows_of_table(capsys.readouterr().out)) == [12, 24]
    config = recipe(write(tmp_path, waves(12, 120)))
    assert capsys.readouterr().out == (
        "context length: 12 steps; 120 rows and the given settings leave no other to compare; "
        "--set model.context_length=... sets another\n"
    )
    assert config.model.context_length == 12


def test_choice_reads_no_row_after_the_first_half_of_validation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = waves(24, 1500)
    recipe(write(tmp_path, values))
    before = capsys.readouterr().out
    recipe(write(tmp_path, [*values[:1125], *[9.0, -9.0, 4.0] * 125]))
    assert capsys.readouterr().out == before
    recipe(write(tmp_path, [*values[:1100], 9.0, *values[1101:]]))
    assert capsys.readouterr().out != before


@pytest.mark.parametrize("context", [*CONTEXTS, 6, 14, 100, 168, 336, 500, 512, 674])
def test_given_context_alone_is_enough(context: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = recipe(write(tmp_path, waves(24, 500)), {"model.context_length": context})
    assert config.model.context_length == context == config.model.patch_length * config.model.encoder.seq_len
    assert config.model.patch_length <= 24
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model.context_length": 97}, "model.context_length must be even and at least 6, not 97"),
        ({"model.context_length": 4}, "model.context_length must be even and at least 6, not 4"),
        ({"model.context_length": 0}, "model.context_length must be even and at least 6, not 0"),
        (
            {"model.context_length": 336, "model.patch_length": 16},
            "model.context_length must be a multiple of 32 (an even number of patches of model.patch_length = 16) of "
            "at least 96, not 336",
        ),
        (
            {"model.context_length": 100, "model.encoder.seq_len": 8},
            "model.context_length must be a multiple of 8 (model.encoder.seq_len), not 100",
        ),
        ({"model.context_length": '"long"'}, "model.context_length must be an integer"),
        ({"model.prediction_length": 0}, "model.prediction_length must be at least 1, not 0"),
        ({"data.frequency": '"hourly"'}, "data.frequency must be a number and one of ms, s, min, h, "),
        ({"data.train_fraction": 0.95}, "train_fraction and validation_fraction must leave rows for the test split"),
    ],
)
def test_key_that_does_not_fit_is_one_error(given: Mapping[str, object], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, waves(24, 500))
    plain = {key: value.strip('"') if isinstance(value, str) else value for key, value in given.items()}
    with pytest.raises(UserError) as caught:
        load_recipe(
            find_recipe(ForecastingRun.own_recipe),
            [f"{key}={value}" for key, value in given.items()],
            read_series_of(path, Layout(time_column="at"), plain)[0],
        )
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "patches"),
    [
        ({"model.patch_length": 8}, (8, None)),
        ({"model.encoder.seq_len": 12}, (None, 12)),
        ({"model.context_length": 96, "model.patch_length": 4}, (4, 24)),
        ({"model.context_length": 96, "model.encoder.seq_len": 24}, (4, 24)),
        ({"model.kind": "paper", "model.context_length": 48}, (1, 48)),
    ],
)
def test_given_patches_are_kept(
    given: Mapping[str, object], patches: tuple[int | None, int | None], tmp_path: Path
) -> None:
    model = recipe(write(tmp_path, waves(24, 1500)), given).model
    for expected, found in zip(patches, (model.patch_length, model.encoder.seq_len), strict=True):
        assert expected in (None, found)


def test_given_shares_and_horizon_are_kept(tmp_path: Path) -> None:
    given = {"data.train_fraction": 0.5, "data.validation_fraction": 0.25, "model.prediction_length": 10}
    config = recipe(write(tmp_path, waves(24, 300)), given)
    assert (config.data.train_fraction, config.data.validation_fraction) == (0.5, 0.25)
    assert config.model.prediction_length == 10


@pytest.mark.parametrize(
    ("name", "expected"), [("My Load (2).2024.csv", "my-load-2"), ("Ä.csv", "series"), ("x" * 63 + "-y.csv", "x" * 63)]
)
def test_model_is_named_after_its_file(name: str, expected: str, tmp_path: Path) -> None:
    assert recipe(write(tmp_path, waves(24, 200), name)).name == expected
