"""What is kept in the file, and what is computed again."""

from contextlib import closing
from pathlib import Path

import numpy as np

from artifact.arrays import Doubles
from benchmarks.models.any_series.cache import Cache
from benchmarks.models.any_series.forecasters import naive


def test_forecast_is_computed_once_for_each_input_and_version(tmp_path: Path) -> None:
    computed = []

    def forecaster(past: Doubles, season: int, horizon: int) -> Doubles:
        computed.append((past.tolist(), season, horizon))
        return naive(past, season, horizon)

    path, past = tmp_path / "runs" / "forecasts.sqlite", np.array([1.0, 4.0, 2.0])
    for _ in range(2):  # the second time, the file is there
        with closing(Cache(path)) as cache:
            found = [cache.wrap("a", forecaster)(past, 1, 2) for _ in range(2)]
            assert [quantiles.tolist() for quantiles in found] == [naive(past, 1, 2).tolist()] * 2
    assert computed == [(past.tolist(), 1, 2)]
    with closing(Cache(path)) as cache:
        for name, changed, season, horizon in (
            ("b", past, 1, 2),
            ("a", -past, 1, 2),
            ("a", past, 2, 2),
            ("a", past, 1, 3),
        ):
            assert cache.wrap(name, forecaster)(changed, season, horizon).shape == (horizon, 9)
        assert len(computed) == 5
        assert [cache.seconds(name)[0] for name in "abc"] == [4, 1, 0]
        assert cache.seconds("a")[1] >= 0
