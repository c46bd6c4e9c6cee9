"""Series of the user, read from tables and cut into groups."""

from pathlib import Path

import numpy as np
import pytest

from artifact.univariate.features import HORIZON
from model.data.added_series import AddedSeries, read_added
from model.data.synthetic_univariate import GROUP, draw_group, draw_groups
from model.errors import UserError


def ramps(*lengths: int, share: float = 1.0) -> AddedSeries:
    """Series that count from 1,000, 2,000 and so on."""
    series = tuple(np.arange(float(length)) + 1_000 * place for place, length in enumerate(lengths, 1))
    return AddedSeries(series, ((12,),) * len(series), share)


def test_groups_are_cut_from_the_series_at_any_step() -> None:
    added, seen = ramps(30, 40, 300), set[tuple[int, float]]()
    for seed in range(200):
        group = added.draw_group(np.random.default_rng(seed), 12, 64)
        assert (group.kind, group.seasons) == ("added", (12,))
        assert group.past.shape[0] == GROUP
        assert 12 <= group.past.shape[1] <= 64
        assert group.future.shape == (GROUP, HORIZON)
        for past, future in zip(group.past, group.future, strict=True):
            known = future[~np.isnan(future)]
            whole = added.series[int(past[0] // 1_000) - 1]
            values = np.r_[past, known]
            assert values.tolist() == (past[0] + np.arange(len(values))).tolist()
            assert values[-1] <= whole[-1]
            assert len(known) == min(HORIZON, whole[-1] - past[-1]) > 0
            seen.add((int(past[0] // 1_000), past[-1]))
    assert {place for place, _ in seen} == {1, 2, 3}
    assert len({end for place, end in seen if place == 3}) > 100


def test_series_of_a_group_have_the_same_seasons() -> None:
    whole = ramps(30, 30, 30)
    added = AddedSeries(whole.series, ((12,), (1,), (12,)), 1.0)
    for seed in range(50):
        group = added.draw_group(np.random.default_rng(seed), 1, 16)
        owners = {int(past[0] // 1_000) for past in group.past}
        assert owners <= ({1, 3} if group.seasons == (12,) else {2})


def test_share_of_the_groups_is_drawn_from_the_series_as_far_as_they_are_long_enough() -> None:
    kinds = [
        group.kind for index in range(100) for group in draw_groups((0,), index, 64, ramps(64, share=0.3).draw_group)
    ]
    assert 0.05 < np.mean([kind == "added" for kind in kinds]) < 0.3
    short = ramps(12).draw_group(np.random.default_rng(0), 12, 64)
    generated = draw_group(np.random.default_rng(0), 12, 64)
    assert short.kind == generated.kind != "added"


def test_batches_follow_from_the_stream_and_the_index() -> None:
    added = ramps(30, 40, 300, share=0.5)
    first, again = ([group.past for group in draw_groups((0, 1), 3, 64, added.draw_group)] for _ in range(2))
    assert all(map(np.array_equal, first, again))


def test_long_and_wide_tables_are_read_with_the_season_of_their_step(tmp_path: Path) -> None:
    long, wide = tmp_path / "long.csv", tmp_path / "wide.csv"
    rows = [("a", month, 10 * month) for month in range(1, 8) if month != 3] + [("b", month, month) for month in (5, 6)]
    rows += [("c", month, 1) for month in (9, 11)]
    long.write_text("id,month,value\n" + "".join(f"{name},2020-{month:02},{value}\n" for name, month, value in rows))
    wide.write_text(
        "year,x,y\n" + "".join(f"{year},{year - 2000},{'' if year < 2004 else 5}\n" for year in range(2000, 2005))
    )
    found = read_added([long, wide], 0.5)
    assert [values.tolist() for values in found.series] == [
        [5, 6],
        [1, 1, 1],
        [0, 1, 2, 3, 4],
        [10, 20, 30, 40, 50, 60, 70],  # the third is interpolated
    ]
    assert found.seasons == ((12,), (12,), (1,), (12,))
    assert found.share == 0.5
    assert found.fingerprint != read_added([long], 0.5).fingerprint


def test_files_without_a_series_are_named(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("year,x\n2020,1\n2021,\n")
    with pytest.raises(UserError, match=r"short.csv: no series with 2 values or more"):
        read_added([path], 0.5)
    path.write_text("year,x\n2020,1\n2021,a\n2022,3\n")
    with pytest.raises(UserError, match=r"short.csv.*line 3"):
        read_added([path], 0.5)
