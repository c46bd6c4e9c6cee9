"""Generated series that train and validate a forecaster of any series.

The series of a batch follow from a seed and the index of the batch alone, so that any process can draw any batch in any
order. A batch has groups of series with the same length, seasons and kind, which are drawn together; all else differs
within a group. Kinds:

- components: a trend, mostly a season, and noise, added;
- growth: a level that mostly goes one way, often a season;
- state space: level, slope and season that each change a little at every step, as exponential smoothing assumes;
- martingales: random walks and their like, whose last value is the best forecast;
- counts: of Poisson variables, with and without a season, often mostly zero;
- waves: sums and products of smooth curves and seasons.

Levels shift, regimes change and outliers occur alike in the past and in the future. Most series become positive, many
by an exponential, so that their parts multiply; some are rounded. Values of the past may be missing.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from artifact.arrays import Doubles
from artifact.univariate.features import CONTEXT, HORIZON
from artifact.univariate.smoothing import decaying_sums

GROUP = 8
"""Series of a group."""
SEASONS: dict[tuple[int, ...], float] = {
    (1,): 0.31,
    (4,): 0.12,
    (12,): 0.22,
    (7,): 0.06,
    (24,): 0.06,
    (52,): 0.04,
    (5,): 0.02,
    (48,): 0.02,
    (96,): 0.03,
    (144,): 0.02,
    (168,): 0.01,
    (24, 168): 0.03,
    (7, 28): 0.01,
    (): 0.05,
}
"""Seasons -> share of the groups; () stands for one of 2 to 60 steps."""
LENGTHS = ((1, 16, 0.06), (12, 64, 0.34), (65, 128, 0.24), (129, 256, 0.18), (257, CONTEXT, 0.18))
"""Shortest and longest series of a batch, and the share of such batches."""


SHORT = 64
"""Steps of the longest series that counts as short: such series are often of years or quarters, which grow."""


@dataclass(frozen=True)
class Group:
    """Series of one group."""

    past: Doubles
    """(GROUP, n), NaN if missing; the first and the last value are known."""
    future: Doubles
    """(GROUP, HORIZON); NaN if unknown."""
    seasons: tuple[int, ...]
    """What a user would say of them."""
    kind: str


class Draws:
    """Random numbers for a group of series: (rows, 1) for each series, (rows, steps) for each step."""

    def __init__(self, generator: np.random.Generator, past: int) -> None:
        self.generator, self.past, self.steps = generator, past, past + HORIZON
        self.time = np.arange(self.steps) / past
        """Time of each step; the past ends at 1."""
        self.drift_factor = min(1.0, SHORT / past)
        """Factor of the drift per step, so that long series do not go farther than short ones."""

    def chance(self, probability: float) -> bool:
        """Whether something is so for the whole group."""
        return self.generator.random() < probability

    def uniform(self, low: float, high: float) -> Doubles:
        """Uniform numbers (rows, 1)."""
        return self.generator.uniform(low, high, (GROUP, 1))

    def log_uniform(self, low: float, high: float) -> Doubles:
        """Numbers (rows, 1) whose logarithm is uniform."""
        return np.asarray(np.exp(self.uniform(math.log(low), math.log(high))))

    def normal(self, mean: float = 0.0, deviation: float = 1.0) -> Doubles:
        """Normal numbers (rows, 1)."""
        return self.generator.normal(mean, deviation, (GROUP, 1))

    def white(self) -> Doubles:
        """Independent numbers of variance 1, (rows, steps): normal, or with heavy tails."""
        if self.chance(0.7):
            return self.generator.standard_normal((GROUP, self.steps))
        freedom = self.uniform(2.5, 7)
        return self.generator.standard_t(freedom, (GROUP, self.steps)) * np.sqrt((freedom - 2) / freedom)

    def autoregressive(self, decay: Doubles) -> Doubles:
        """Stationary series of variance 1 with y[t] = decay * y[t - 1] + noise."""
        drive = self.white() * np.sqrt(1 - decay**2)
        drive[:, :1] /= np.sqrt(1 - decay**2)
        return decaying_sums(drive, decay)

    def smooth(self, scale: Doubles) -> Doubles:
        """Smooth stationary curve of variance about 1 that changes within `scale` steps."""
        curve = decaying_sums(self.autoregressive(np.exp(-2 / scale)), np.exp(-2 / scale))
        return standardised(curve)

    def noise(self) -> Doubles:
        """Noise of variance about 1: white, ARMA(1, 1), or with a variance that changes."""
        draw = self.generator.random()
        noise = self.white() if draw < 0.55 else self.autoregressive(self.uniform(-0.3, 0.95))
        if draw > 0.85:
            noise[:, 1:] += self.uniform(-0.8, 0.8) * noise[:, :-1]
        if self.chance(0.15):
            noise *= np.exp(0.7 * self.smooth(self.log_uniform(5, 2 * self.past + 5)))
        return standardised(noise)


def standardised(values: Doubles, past: int | None = None) -> Doubles:
    """Values (rows, steps) divided by their standard deviation, or by that of the past."""
    deviation: Doubles = values[:, :past].std(axis=1, keepdims=True)
    return values / np.where(deviation > 1e-9, deviation, 1.0)


def _flat(draws: Draws) -> Doubles:
    return np.zeros((GROUP, draws.steps))


def _straight(draws: Draws) -> Doubles:
    return draws.normal(0, 2) * draws.time


def _damped(draws: Draws) -> Doubles:
    left: Doubles = np.exp(-draws.time * draws.uniform(0.5, 6))
    return draws.normal(0, 2) * (1 - left)


def _exponential(draws: Draws) -> Doubles:
    return np.asarray(np.expm1(np.clip(draws.normal(0, 1.2) * draws.time, -4, 3.5)))


def _logistic(draws: Draws) -> Doubles:
    before: Doubles = np.exp((draws.uniform(0, 1.2) - draws.time) * draws.uniform(3, 15))
    return draws.normal(0, 2) / (1 + before)


def _bent(draws: Draws) -> Doubles:
    """Straight pieces, the later ones mostly flatter."""
    slope = np.broadcast_to(draws.normal(), (GROUP, draws.steps)).copy()
    for _ in range(int(draws.generator.integers(1, 5))):
        is_after = np.arange(draws.steps) >= draws.uniform(0, draws.steps)
        slope = np.where(is_after, slope * draws.uniform(-0.5, 1) + 0.8 * draws.normal(), slope)
    return slope.cumsum(axis=1) * (2 / draws.past)


def _walk(draws: Draws) -> Doubles:
    """Random walk, with and without drift."""
    return (draws.white() + draws.normal(0, 0.25)).cumsum(axis=1) / math.sqrt(draws.past)


def _drifting(draws: Draws) -> Doubles:
    """Random walk that mostly goes one way, as most yearly series do."""
    return standardised((draws.white() + draws.drift_factor * draws.normal()).cumsum(axis=1), draws.past)


def _momentum(draws: Draws) -> Doubles:
    """Random walk whose steps are correlated."""
    curve = (draws.autoregressive(draws.uniform(0.5, 0.99)) + draws.normal(0, 0.1)).cumsum(axis=1)
    return standardised(curve, draws.past)


def _curve(draws: Draws) -> Doubles:
    return draws.smooth(draws.uniform(0.1, 1) * draws.past + 2)


TRENDS: tuple[Callable[[Draws], Doubles], ...] = (
    *(_flat, _straight, _damped, _exponential, _logistic),
    *(_bent, _walk, _drifting, _momentum, _curve),
)


def pattern(draws: Draws, season: int) -> Doubles:
    """Pattern of a season (rows, season) with mean 0 and variance 1: a few waves, any values, or few peaks."""
    draw = draws.generator.random()
    if draw < 0.45 or (season > 60 and draw < 0.9):
        order = np.arange(1, min(season // 2, int(draws.generator.integers(1, 7))) + 1)
        angle = 2 * np.pi * np.outer(order, np.arange(season)) / season
        size = draws.generator.standard_normal((2, GROUP, len(order))) / order ** draws.generator.uniform(0.3, 1.5)
        shape = size[0] @ np.cos(angle) + size[1] @ np.sin(angle)
        if draws.chance(0.2):
            shape = np.maximum(shape, 0)
    elif draw < 0.85:
        shape = draws.generator.standard_normal((GROUP, season))
    else:
        is_peak = draws.generator.random((GROUP, season)) < max(1.5 / season, 0.15)
        height = draws.generator.gamma(1.0, 2.0, (GROUP, season))
        shape = np.where(is_peak, height, 0.1 * draws.generator.standard_normal((GROUP, season)))
    shape = shape - shape.mean(axis=1, keepdims=True)
    return standardised(shape)


def seasonal(draws: Draws, season: int) -> Doubles:
    """Season of variance 1 that repeats, grows, swells, or becomes another one."""
    steps = np.arange(draws.steps)
    repeated = pattern(draws, season)[:, steps % season]
    draw = draws.generator.random()
    if draw < 0.2:
        repeated *= np.maximum(0, 1 + draws.normal(0, 0.8) * draws.time)
    elif draw < 0.3:
        repeated *= np.exp(0.5 * draws.smooth(draws.uniform(2, 8) * season))
    elif draw < 0.45:
        share = np.clip(steps / draws.steps * draws.uniform(0.3, 1), 0, 1)
        repeated = repeated * (1 - share) + share * pattern(draws, season)[:, steps % season]
    return repeated


def components(draws: Draws, seasons: tuple[int, ...]) -> Doubles:
    """Trends, seasons and noise, added."""
    pick = draws.generator.integers(len(TRENDS), size=2)
    values = TRENDS[pick[0]](draws) * np.exp(draws.normal(0, 0.8))
    if draws.chance(0.25):
        values = values + TRENDS[pick[1]](draws) * draws.uniform(0.2, 0.8)
    if draws.chance(0.85):
        for season in seasons:
            values = values + seasonal(draws, season) * np.exp(draws.normal(-0.5, 0.9))
    loudness: Doubles = np.exp(draws.normal(-1.2, 1))
    total: Doubles = values + loudness * draws.noise()
    return total


def state_space(draws: Draws, seasons: tuple[int, ...]) -> Doubles:
    """Level, damped slope and season of exponential smoothing with additive errors; their errors are shared or not."""
    error = draws.white()
    slope_error = error if draws.chance(0.5) else draws.white()
    drive = slope_error * draws.log_uniform(1e-3, 0.2)
    drive[:, :1] += draws.drift_factor * draws.normal() * draws.log_uniform(0.05, 2)
    slope = decaying_sums(drive, draws.uniform(0.8, 1) if draws.chance(0.7) else 1.0)
    if draws.chance(0.3):
        slope = np.zeros_like(slope)
    values = (slope + error * draws.uniform(0, 1)).cumsum(axis=1) + error
    if draws.chance(0.8):
        for season in seasons:
            changes = draws.white() * draws.log_uniform(0.01, 0.5)
            cycles = -(-draws.steps // season)
            padded = np.pad(changes, ((0, 0), (0, cycles * season - draws.steps)))
            walk = padded.reshape(GROUP, cycles, season).cumsum(axis=1).reshape(GROUP, -1)[:, : draws.steps]
            fixed = pattern(draws, season)[:, np.arange(draws.steps) % season]
            values = values + fixed * draws.log_uniform(0.5, 8) + walk
    return values


def martingales(draws: Draws, seasons: tuple[int, ...]) -> Doubles:
    """Random walks: of steps whose variance changes or not, some of them zero; some with noise or drift."""
    del seasons
    steps = draws.white()
    if draws.chance(0.4):
        steps = steps * np.exp(draws.uniform(0.2, 1) * draws.autoregressive(draws.uniform(0.8, 0.99)))
    if draws.chance(0.15):
        steps = steps + draws.normal(0, 0.1)
    if draws.chance(0.15):
        steps = steps * (draws.generator.random(steps.shape) < draws.uniform(0.1, 0.9))
    values = steps.cumsum(axis=1)
    if draws.chance(0.2):
        values = values + draws.white() * draws.uniform(0, 0.5)
    return values


def counts(draws: Draws, seasons: tuple[int, ...]) -> Doubles:
    """Poisson counts of a rate that has a trend and a season; some are mostly zero."""
    trend = TRENDS[draws.generator.integers(len(TRENDS))](draws)
    rate = draws.normal(0.3, 1.3) + 0.5 * np.clip(trend, -4, 4)
    if draws.chance(0.6):
        for season in seasons:
            rate = rate + draws.uniform(0, 0.8) * seasonal(draws, season)
    mean = np.exp(np.clip(rate, -6, 9))
    if draws.chance(0.4):
        mean = mean * draws.generator.gamma(2, 0.5, mean.shape)
    found = draws.generator.poisson(mean).astype(np.float64)
    if draws.chance(0.4):
        found *= draws.generator.random(found.shape) < draws.uniform(0.2, 0.8)
    return found


def waves(draws: Draws, seasons: tuple[int, ...]) -> Doubles:
    """Sums and products of smooth curves and seasons, with little noise."""
    values = np.zeros((GROUP, draws.steps))
    for place in range(int(draws.generator.integers(1, 4))):
        is_smooth = max(seasons) == 1 or draws.chance(0.6)
        part = draws.smooth(draws.log_uniform(2, 2 * draws.past + 2)) if is_smooth else seasonal(draws, max(seasons))
        values = values * part if place and draws.chance(0.2) else values + part * draws.uniform(0.3, 1.5)
    return values + draws.noise() * draws.log_uniform(0.005, 0.5)


def growth(draws: Draws, seasons: tuple[int, ...]) -> Doubles:
    """Level that mostly goes one way, at a pace that changes slowly or not, with a season and little noise."""
    pace = draws.drift_factor * draws.normal() * draws.log_uniform(0.3, 3)
    if draws.chance(0.5):
        pace = pace + draws.drift_factor * (draws.white() * draws.log_uniform(1e-3, 0.2)).cumsum(axis=1)
    values = (pace + draws.autoregressive(draws.uniform(-0.3, 0.7))).cumsum(axis=1)
    if draws.chance(0.5):
        values = values + draws.white() * draws.uniform(0, 1)
    if draws.chance(0.8):
        for season in seasons:
            values = values + seasonal(draws, season) * draws.log_uniform(0.3, 8)
    return values


KINDS: dict[str, tuple[Callable[[Draws, tuple[int, ...]], Doubles], float, float]] = {
    "components": (components, 0.36, 0.46),
    "state space": (state_space, 0.16, 0.14),
    "growth": (growth, 0.32, 0.04),
    "martingales": (martingales, 0.05, 0.15),
    "counts": (counts, 0.06, 0.09),
    "waves": (waves, 0.05, 0.12),
}
"""Kind -> how it is drawn, its share of the groups of short series, and of the others."""
WITHOUT_EVENTS = ("martingales", "counts")


def disturb(draws: Draws, values: Doubles) -> Doubles:
    """Add shifts of the level, outliers, and a change of the noise, each to few groups."""
    size = values[:, : draws.past].std(axis=1, keepdims=True)
    steps = np.arange(draws.steps)
    if draws.chance(0.12):
        for _ in range(int(draws.generator.integers(1, 3))):
            values = values + (steps >= draws.uniform(0, draws.steps)) * draws.normal() * size
    if draws.chance(0.1):
        is_outlier = draws.generator.random(values.shape) < draws.uniform(0.003, 0.03)
        values = values + is_outlier * draws.generator.standard_t(3, values.shape) * 4 * size
    if draws.chance(0.08):
        is_after = steps >= draws.uniform(0, draws.steps)
        values = values + is_after * draws.white() * draws.uniform(0.2, 1) * size
    return values


def scale(draws: Draws, values: Doubles) -> Doubles:
    """Exponential, positive or any values in the units of a user; some rounded."""
    values = standardised(values, draws.past)
    values = values - values[:, :1]
    draw = draws.generator.random()
    if draw < 0.45:
        values = 100 * np.exp(np.clip(values * draws.log_uniform(0.02, 0.8), -8, 8))
    elif draw < 0.75:
        lowest = np.minimum(values[:, : draws.past].min(axis=1, keepdims=True), 0)
        values = 100 * (values - lowest + draws.log_uniform(0.3, 20))
        values = np.maximum(values, 0) if draws.chance(0.8) else values
    else:
        values = 100 * (values + draws.normal())
    return np.round(values / 20) if draws.chance(0.08) else values


def hide(generator: np.random.Generator, past: Doubles) -> Doubles:
    """The past with missing values, single ones and a gap, if it is long enough; the first and the last stay known."""
    n = past.shape[1]
    is_hidden = generator.random(past.shape) < generator.uniform(0.02, 0.2)
    if generator.random() < 0.5:
        start = int(generator.integers(n))
        is_hidden[:, start : start + int(generator.integers(1, n // 4 + 1))] = True
    is_hidden[:, [0, -1]] = False
    return np.where(is_hidden, np.nan, past)


def draw_group(generator: np.random.Generator, shortest: int, longest: int) -> Group:
    """Draw a group of series of one length between `shortest` and `longest`."""
    past = int(math.exp(generator.uniform(math.log(shortest), math.log(longest + 1))))
    seasons = choose_seasons(generator, past)
    shares = [short if past <= SHORT else long for _, short, long in KINDS.values()]
    kind = list(KINDS)[generator.choice(len(KINDS), p=shares)]
    draws = Draws(generator, past)
    values = KINDS[kind][0](draws, seasons)
    if kind not in WITHOUT_EVENTS:
        values = disturb(draws, values)
    if kind != "counts":
        values = scale(draws, values)
    observed = values[:, :past]
    if past > 20 and draws.chance(0.08):
        observed = hide(generator, observed)
    said = (1,) if draws.chance(0.02) else seasons
    return Group(observed, values[:, past:], said, kind)


def choose_seasons(generator: np.random.Generator, past: int) -> tuple[int, ...]:
    """Seasons of a series of `past` steps, which has mostly at least one cycle and a third."""
    choices, shares = list(SEASONS), list(SEASONS.values())
    for _ in range(8):
        seasons = choices[generator.choice(len(choices), p=shares)] or (int(generator.integers(2, 61)),)
        if 1.3 * max(seasons) <= past or generator.random() < 0.02:
            return seasons
    return (1,)


Draw = Callable[[np.random.Generator, int, int], Group]
"""Draws a group of series of one length between two."""


def draw_groups(stream: tuple[int, ...], index: int, size: int, draw: Draw = draw_group) -> Iterator[Group]:
    """Groups of batch `index` of a stream, `size` series in total, with lengths in one of the ranges of LENGTHS."""
    generator = np.random.default_rng([*stream, index])
    shortest, longest, _ = LENGTHS[generator.choice(len(LENGTHS), p=[share for *_, share in LENGTHS])]
    for _ in range(size // GROUP):
        yield draw(generator, shortest, longest)
