"""Reads a user's series and derives recipe keys from it: splits, context length and horizon."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from artifact.series import IRREGULAR, Layout
from model.config.data import SeriesConfig
from model.config.schema import validated
from model.data.own_recipe import RecipeKeys, name_of
from model.data.series import OwnSeries, ScaledSeries, load_series, read_own_series
from model.errors import UserError
from model.tasks.baselines import EXACT, solve_linear_map

HORIZONS = (96, 48, 24, 12)
"""Horizons; the longest with at least ROWS_PER_STEP rows per step is used."""
CONTEXTS = (12, 24, 48, 96, 192, 336, 720)
"""Candidate context lengths; those with at least ROWS_PER_CONTEXT_STEP rows per step are compared."""
ROWS_PER_STEP, ROWS_PER_CONTEXT_STEP = 15, 10
CLOSE = 1.01
"""The shortest context whose MSE is at most this times the lowest, or at most EXACT**2, is chosen."""
LARGEST_FIT = 50_000
"""Maximum number of windows, over all channels, that the comparison fits a linear map to."""
LONGEST_PATCH = 24
"""Maximum number of steps per patch."""
FEWEST_PATCHES = 6
"""Minimum number of patches: the attention in the recipe `forecasting` samples 6 of them."""
SHORT_ROWS = 400
"""Number of rows below which validation gets a fifth of the rows instead of a tenth."""

CONTEXT, HORIZON = "model.context_length", "model.prediction_length"
PATCH, PATCHES = "model.patch_length", "model.encoder.seq_len"


def read_series_of(
    path: Path, layout: Layout, given: Mapping[str, object], *, fill: bool = False
) -> tuple[RecipeKeys, OwnSeries]:
    """Read the user's file, and derive recipe keys from it; prints how the context length was chosen.

    Args:
        path: the file.
        layout: how it holds the series.
        given: recipe keys that the user set; the others are derived to fit them.
        fill: whether to interpolate missing cells and rows.

    Raises: UserError naming the file and the lines at fault, or the key that does not fit.

    """
    values = {"name": "csv", **asdict(layout), "fill": fill}
    values |= {key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")}
    config = validated(SeriesConfig, "data", values)
    rows = read_own_series(path, config)
    if len(rows.values) < SHORT_ROWS:
        config = validated(SeriesConfig, "data", {"train_fraction": 0.6, "validation_fraction": 0.2, **values})
    series = load_series(config, rows)
    horizon = given.get(
        HORIZON, next((size for size in HORIZONS if len(rows.values) >= ROWS_PER_STEP * size), HORIZONS[-1])
    )
    keys: RecipeKeys = {f"data.{key}": value for key, value in config.model_dump(exclude={"name"}).items()}
    keys |= {"name": name_of(path, "series"), HORIZON: horizon}
    context = given.get(CONTEXT)
    if context is None and isinstance(horizon, int) and horizon > 0:
        context = _choose_context(series, horizon, given)
    if isinstance(context, int):  # otherwise the recipe's own check names the key
        patch_length, patches = _patches(context, given)
        keys |= {CONTEXT: context, PATCH: patch_length, PATCHES: patches}
    return keys, rows


def _choose_context(series: ScaledSeries, horizon: int, given: Mapping[str, object]) -> int:
    """The shortest candidate whose error is CLOSE to the lowest.

    The error is that of a least-squares linear map on the first half of validation. Prints a table of the errors, or
    that there is nothing to compare.
    """
    train, rows = series.boundaries[0], len(series.values)
    fitting = [size for size in CONTEXTS if rows >= ROWS_PER_CONTEXT_STEP * size and size + 2 * horizon <= train]
    candidates = [size for size in fitting if _fits(size, given)]
    if len(candidates) < 2:
        chosen = (candidates or [size for size in CONTEXTS if _fits(size, given)] or CONTEXTS)[0]
        print(
            f"context length: {chosen} steps; {rows} rows and the given settings leave no other to compare; "
            f"--set {CONTEXT}=... sets another"
        )
        return chosen
    errors = {size: _validation_mse(series, size, horizon) for size in candidates}
    limit = max(CLOSE * min(errors.values()), EXACT**2)
    chosen = next(size for size, error in errors.items() if error <= limit)
    step = "" if series.frequency == IRREGULAR else f" of {series.frequency}"
    print(
        f"context length: {chosen} steps{step}, the shortest within {CLOSE - 1:.0%} of the lowest error of a linear\n"
        f"map of {horizon} steps on the first half of validation; --set {CONTEXT}=... sets another"
    )
    print(f"{'context':>8}  {'MSE':>8}")
    for size, error in errors.items():
        print(f"{size:>8}  {error:>8.4f}{'  chosen' if size == chosen else ''}")
    return chosen


def _validation_mse(series: ScaledSeries, context: int, horizon: int) -> float:
    """MSE of the least-squares linear map on the first half of validation, in scaled units."""
    windows = series.windows("train", context, horizon)
    thinned = windows[:: max(1, len(windows) * windows.shape[1] // LARGEST_FIT)]
    linear = solve_linear_map(thinned, context)
    start, end = series.validation_half(0)
    error = series.by_target(linear.forecast, context, horizon, (start, end)) - series.values[start:end, None]
    return float(np.square(error, dtype=np.float64).mean())


def _fits(context: int, given: Mapping[str, object]) -> bool:
    """Whether a context length can be cut into patches."""
    try:
        _patches(context, given)
    except UserError:
        return False
    return True


def _patches(context: int, given: Mapping[str, object]) -> tuple[object, object]:
    """Length and number of the patches of a context, an even number of at least FEWEST_PATCHES.

    Without a given length or number, patches are as long as possible, up to LONGEST_PATCH.

    Raises: UserError naming the context length and the values that fit.
    """
    length, number = given.get(PATCH, 1 if given.get("model.kind") == "paper" else None), given.get(PATCHES)
    if length is not None and number is not None:
        return length, number
    if isinstance(length, int) and length > 0:
        if context % (2 * length) or context < FEWEST_PATCHES * length:
            raise UserError(
                f"{CONTEXT} must be a multiple of {2 * length} (an even number of patches of {PATCH} = {length}) of at "
                f"least {FEWEST_PATCHES * length}, not {context}"
            )
        return length, context // length
    if isinstance(number, int) and number > 0:
        if context % number:
            raise UserError(f"{CONTEXT} must be a multiple of {number} ({PATCHES}), not {context}")
        return context // number, number
    if context % 2 or context < FEWEST_PATCHES:
        raise UserError(f"{CONTEXT} must be even and at least {FEWEST_PATCHES}, not {context}")
    longest = min(LONGEST_PATCH, context // FEWEST_PATCHES)
    patch_length = next(size for size in range(longest, 0, -1) if context % (2 * size) == 0)
    return patch_length, context // patch_length
