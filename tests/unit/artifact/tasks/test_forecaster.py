"""Plans and answers that all forecasters share."""

import numpy as np
import pytest

from artifact.series import SeriesCoverage, Tails
from artifact.tasks.forecaster import Forecast, ForecastOptions, ForecastPlan, Seasons, SeasonSource

TAILS = Tails.of([[1, 2], [3, 4]], 2)
VALUES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def plan(
    names: list[str] | None, source: SeasonSource | None = None, seasons: tuple[Seasons, ...] = ()
) -> ForecastPlan:
    return ForecastPlan(TAILS, names, [1, 0], 3, ForecastOptions(levels=(0.5,)), seasons, source)


def test_plan_counts_the_numbers_of_the_answer() -> None:
    assert plan(None).count == 12


@pytest.mark.parametrize(
    ("names", "expected"), [(None, [[2, 4, 6], [1, 3, 5]]), (["a", "b"], {"a": [2, 4, 6], "b": [1, 3, 5]})]
)
def test_answer_has_the_order_and_the_names_of_the_request(names: list[str] | None, expected: object) -> None:
    coverages = [SeriesCoverage(2, 2, 0, 4), SeriesCoverage(3, 2, 1, 4)]
    assert Forecast(plan(names), VALUES, {0.5: VALUES}, True, coverages).as_json() == {
        "forecast": expected,
        "quantiles": {"0.5": expected},
        "quantiles_reliable": True,
        "coverage": {"observations_total": 5, "observations_used": 4, "imputed": 1, "context_length": 4},
    }


@pytest.mark.parametrize(
    ("names", "source", "expected"),
    [
        (None, "request", [24, 168]),
        (["a", "b"], "frequency", [24, 168]),
        (["a", "b"], "data", {"a": 1, "b": [24, 168]}),
        (None, "data", [1, [24, 168]]),
    ],
)
def test_seasons_in_the_data_are_those_of_each_series(
    names: list[str] | None, source: SeasonSource, expected: object
) -> None:
    made = plan(names, source, ((24, 168), (1,) if source == "data" else (24, 168)))
    answer = Forecast(made, VALUES, {}, True, [SeriesCoverage(2, 2, 0, 4)]).as_json()
    assert (answer["season"], answer["season_from"]) == (expected, source)
