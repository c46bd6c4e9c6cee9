"""Seasons by the step of a series, and by its values."""

from collections.abc import Callable

import numpy as np
import pytest

from artifact.arrays import Doubles
from artifact.series import parse_frequency
from artifact.univariate.seasons import infer_seasons, seasons_of

GENERATOR = np.random.default_rng
PASSENGERS = np.fromstring(
    "112 118 132 129 121 135 148 148 136 119 104 118 115 126 141 135 125 149 170 170 158 133 114 140 145 150 178 163 "
    "172 178 199 199 184 162 146 166 171 180 193 181 183 218 230 242 209 191 172 194 196 196 236 235 229 243 264 272 "
    "237 211 180 201 204 188 235 227 234 264 302 293 259 229 203 229",
    sep=" ",
)
"""Monthly airline passengers, 1949 to 1954 (Box and Jenkins 1976, series G)."""


@pytest.mark.parametrize(
    ("frequency", "seasons"),
    [
        ("1y", (1,)),
        ("1q", (4,)),
        ("1mo", (12,)),
        ("2mo", (6,)),
        ("5mo", (1,)),
        ("1w", (52,)),
        ("14d", (26,)),
        ("1b", (5,)),
        ("2b", (1,)),
        ("1d", (7,)),
        ("2d", (1,)),
        ("6h", (4, 28)),
        ("1h", (24, 168)),
        ("30min", (48, 336)),
        ("15min", (96,)),
        ("5min", (288,)),
        ("1min", (60,)),
        ("1s", (60,)),
        ("7min", (1,)),
        ("100ms", (1,)),
        ("1000y", (1,)),
    ],
)
def test_seasons_follow_from_the_step(frequency: str, seasons: tuple[int, ...]) -> None:
    assert seasons_of(parse_frequency(frequency)) == seasons


@pytest.mark.parametrize("months", [48, 60, len(PASSENGERS)])
def test_passengers_have_a_season_of_a_year(months: int) -> None:
    assert infer_seasons(PASSENGERS[-months:]) == (12,)


def pattern(season: int, steps: int, generator: np.random.Generator) -> Doubles:
    """A pattern of normal variables that repeats."""
    return np.tile(generator.standard_normal(season), -(-steps // season))[:steps]


@pytest.mark.parametrize(("season", "steps"), [(4, 40), (7, 60), (12, 72), (24, 120), (52, 208), (96, 400), (168, 512)])
def test_clear_season_is_found_beside_noise_and_a_trend(season: int, steps: int) -> None:
    found = []
    for seed in range(10):
        generator = GENERATOR(seed)
        series = 3 * pattern(season, steps, generator) + generator.standard_normal(steps) + 0.05 * np.arange(steps)
        found.append(infer_seasons(series))
    assert found.count((season,)) >= 9


def test_unusual_season_is_found_if_it_is_clear() -> None:
    steps = np.arange(200)
    assert infer_seasons(np.sin(2 * np.pi * steps / 17) + 0.1 * GENERATOR(0).standard_normal(200)) == (17,)


def test_day_and_week_are_both_found() -> None:
    steps, noise = np.arange(512), GENERATOR(0).standard_normal(512)
    day = np.exp(np.sin(2 * np.pi * steps / 24))
    weekend = np.where(steps % 168 >= 120, 0.4, 1.0)
    assert infer_seasons(50 * day * weekend + 4 * noise) == (24, 168)


def walk(generator: np.random.Generator) -> Doubles:
    return generator.standard_normal(150).cumsum()


def autoregression(generator: np.random.Generator) -> Doubles:
    values = generator.standard_normal(150)
    for step in range(1, len(values)):
        values[step] += 0.7 * values[step - 1]
    return values


@pytest.mark.parametrize(
    "draw", [lambda generator: generator.standard_normal(150), walk, autoregression], ids=["noise", "walk", "ar"]
)
def test_series_without_a_season_seldom_show_one(draw: Callable[[np.random.Generator], Doubles]) -> None:
    found = [infer_seasons(draw(GENERATOR(seed))) for seed in range(60)]
    assert found.count((1,)) >= 54


@pytest.mark.parametrize(
    "values",
    [
        np.empty(0),
        np.full(30, np.nan),
        np.array([1.0, 2.0, 3.0] * 2),
        np.full(100, 7.5),
        np.arange(100.0),
        np.array([np.nan] * 99 + [3.0]),
    ],
    ids=["empty", "unknown", "short", "constant", "line", "one value"],
)
def test_series_that_show_nothing_have_no_season(values: Doubles) -> None:
    assert infer_seasons(values) == (1,)


def test_gaps_outliers_and_units_do_not_matter() -> None:
    series = PASSENGERS.copy()
    series[[5, 20, 21, 50]] = np.nan
    series[30] = 1e6
    for scale in (1.0, 1e-200, 1e200):
        assert infer_seasons(scale * series + 3 * scale) == (12,)
