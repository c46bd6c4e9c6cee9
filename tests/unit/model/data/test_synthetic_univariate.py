import numpy as np
import pytest

from artifact.univariate.features import CONTEXT, HORIZON
from model.data.synthetic_univariate import (
    GROUP,
    KINDS,
    LENGTHS,
    SEASONS,
    TRENDS,
    Draws,
    draw_groups,
    pattern,
    seasonal,
)

SOME = [group for index in range(60) for group in draw_groups((0, 0), index, 64)]


def _draws(seed: int = 0, past: int = 100) -> Draws:
    return Draws(np.random.default_rng(seed), past)


def test_batch_follows_from_seed_and_index_in_any_order() -> None:
    backwards = [next(draw_groups((0, 0), index, 64)) for index in reversed(range(60))][::-1]
    for found, expected in zip(backwards, SOME[::8], strict=True):
        assert found.past.tobytes() == expected.past.tobytes()
        assert found.future.tobytes() == expected.future.tobytes()
    other = next(draw_groups((0, 1), 0, 64))
    assert other.past.tobytes() != SOME[0].past.tobytes()


def test_series_have_a_past_of_a_length_of_their_batch_and_a_known_future() -> None:
    for group in SOME:
        n = group.past.shape[1]
        assert group.past.shape == (GROUP, n)
        assert 1 <= n <= CONTEXT
        assert group.future.shape == (GROUP, HORIZON)
        assert np.isfinite(group.future).all()
        assert np.isfinite(group.past[:, [0, -1]]).all()
        assert not np.isinf(group.past).any()
    for batch in range(60):
        lengths = [group.past.shape[1] for group in SOME[8 * batch : 8 * batch + 8]]
        assert any(low <= min(lengths) <= max(lengths) <= high for low, high, _ in LENGTHS)


def test_shares_add_up() -> None:
    of_kinds = zip(*(shares for _, *shares in KINDS.values()), strict=True)
    for shares in (SEASONS.values(), [share for *_, share in LENGTHS], *of_kinds):
        assert sum(shares) == pytest.approx(1)


def test_all_kinds_lengths_and_many_seasons_occur() -> None:
    assert {group.kind for group in SOME} == set(KINDS)
    lengths = [group.past.shape[1] for group in SOME]
    assert min(lengths) <= 4
    assert max(lengths) > 450
    assert {(1,), (4,), (12,), (7,), (24,), (52,)} <= {group.seasons for group in SOME}
    assert any(len(group.seasons) == 2 for group in SOME)
    assert any(np.isnan(group.past).any() for group in SOME)
    assert any((group.past < 0).any() for group in SOME)


def test_last_value_of_a_martingale_is_its_best_forecast() -> None:
    """A share of the distance from the last value to the mean of the past does not lower the squared error."""
    generator, errors = np.random.default_rng(0), []
    make, *_ = KINDS["martingales"]
    for _ in range(300):
        draws = Draws(generator, 60)
        values = make(draws, (1,))
        last, mean = values[:, 59], values[:, :60].mean(axis=1)
        scale = values[:, :60].std(axis=1) + 1e-9
        errors.append(
            [np.minimum(((values[:, 70] - last - share * (mean - last)) / scale) ** 2, 9).mean() for share in (0, 0.2)]
        )
    naive, reverting = np.mean(errors, axis=0)
    assert naive < reverting


@pytest.mark.parametrize("season", [2, 4, 12, 168])
def test_pattern_has_mean_0_and_variance_1(season: int) -> None:
    for seed in range(20):
        found = pattern(_draws(seed), season)
        assert found.shape == (GROUP, season)
        assert found.mean(axis=1) == pytest.approx(0, abs=1e-9)
        assert found.std(axis=1) == pytest.approx(1)


def test_seasons_repeat_unless_they_change() -> None:
    repeats = [
        np.allclose(found[:, 12:], found[:, :-12]) for seed in range(40) for found in (seasonal(_draws(seed), 12),)
    ]
    assert 0.3 < np.mean(repeats) < 0.8


@pytest.mark.parametrize("trend", TRENDS, ids=lambda trend: trend.__name__)
def test_trends_are_finite_for_the_shortest_and_the_longest_past(trend: object) -> None:
    for past in (1, CONTEXT):
        found = trend(_draws(past=past))  # type: ignore[operator]  # one of TRENDS
        assert found.shape == (GROUP, past + HORIZON)
        assert np.isfinite(found).all()


def test_autoregressive_series_has_variance_1_from_its_start() -> None:
    rows = np.concatenate([_draws(seed).autoregressive(np.full((GROUP, 1), 0.95)) for seed in range(200)])
    assert rows[:, [0, 5, 50, 150]].std(axis=0) == pytest.approx(1, abs=0.12)
    assert np.mean(rows[:, 1:] * rows[:, :-1]) == pytest.approx(0.95, abs=0.05)
