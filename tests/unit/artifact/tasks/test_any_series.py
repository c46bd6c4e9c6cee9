"""Forecasts of any series by a model that always gives the same quantiles, so that answers can be computed by hand."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from artifact.arrays import Array, Doubles
from artifact.errors import InvalidInput
from artifact.exports import parse_manifest
from artifact.loading import LoadedModel
from artifact.local import Model
from artifact.series import Tails
from artifact.tasks import CLASSES, TASKS
from artifact.tasks.any_series import MAX_HORIZON, SEASON_CLASSES, AnySeries, AnySeriesManifest, season_class
from artifact.tasks.base import Answer, RunModel, advance
from artifact.tasks.forecaster import ForecastOptions
from artifact.univariate.features import CONTEXT, FUTURE, HORIZON, LEVELS, MEDIAN, PATCH, WIDTH, prepare
from tests.support.models import forecaster

BUCKETS = (29, 1 + FUTURE + CONTEXT // PATCH)
QUANTILES = np.linspace(-1, 1, len(LEVELS))[:, None] * np.sqrt(np.arange(1, HORIZON + 1))
WALK = 50 + np.random.default_rng(0).standard_normal(700).cumsum()
SHARES = (0.0, 0.25, 0.5, 1.0)


def fields(**changed: Any) -> dict[str, Any]:
    """A manifest, as JSON."""
    file = {"path": "model.onnx", "sha256": 64 * "0", "format": "onnx", "precision": "float32"}
    common = forecaster().manifest.model_dump(
        mode="json",
        include={"schema_version", "task", "name", "version", "golden", "tolerance", "training", "results"}
        | {"data_terms", "non_commercial"},
    )
    return {
        **common,
        "kind": "any-series",
        "files": [{**file, "bucket": bucket} for bucket in BUCKETS],
        "inputs": [
            {"name": "tokens", "datatype": "FP32", "shape": [-1, -1, WIDTH]},
            {"name": "lengths", "datatype": "INT32", "shape": [-1]},
        ],
        "outputs": [{"name": "quantiles", "datatype": "FP32", "shape": [-1, -1, HORIZON]}],
        "context_length": CONTEXT,
        "horizon": HORIZON,
        "levels": LEVELS,
        "theta_shares": SHARES,
        "quantiles_reliable": True,
        **changed,
    }


class Fixed:
    """A backend that gives QUANTILES for every row, and keeps its inputs."""

    device = "cpu"

    def __init__(self) -> None:
        self.inputs = list[dict[str, Array]]()

    def run(self, inputs: Any, limit_s: float | None = None) -> dict[str, Array]:
        del limit_s
        self.inputs.append(dict(inputs))
        rows = len(inputs["tokens"])
        return {"quantiles": np.broadcast_to(QUANTILES.astype(np.float32), (rows, *QUANTILES.shape))}


@pytest.fixture
def backend() -> Fixed:
    return Fixed()


@pytest.fixture
def model(backend: Fixed) -> Model:
    task = AnySeries(AnySeriesManifest.model_validate(fields()))
    return Model(LoadedModel(task, backend, "onnx", 0.0), threads=1)  # type: ignore[arg-type]  # a test double


def expected(values: Doubles, *seasons: int) -> Doubles:
    """Quantiles (levels, HORIZON) of one series."""
    share = SHARES[season_class(seasons or (1,))]
    (quantiles,) = prepare(values[None], seasons or (1,)).restore(QUANTILES[None], share)
    return np.array(quantiles)


def test_answer_is_the_restored_output_of_the_model(model: Model) -> None:
    answer = model.forecast(WALK[:100], season=12, horizon=HORIZON, quantiles=LEVELS)
    found = np.array([answer["quantiles"][str(level)] for level in LEVELS])
    assert found == pytest.approx(expected(WALK[:100], 12), rel=1e-6)
    assert answer["forecast"] == answer["quantiles"]["0.5"]
    assert answer["coverage"] == {
        "observations_total": 100,
        "observations_used": 100,
        "imputed": 0,
        "context_length": CONTEXT,
    }


def test_series_are_forecast_alone_and_answered_as_they_came(model: Model) -> None:
    columns: list[Any] = [WALK[:30], [3, None, 4], WALK[:30] + 1, WALK[:600].tolist()]
    by_position = model.forecast(columns, season=4, horizon=10)
    assert [model.forecast(column, season=4, horizon=10)["forecast"] for column in columns] == by_position["forecast"]
    by_name = model.forecast(dict(zip("abcd", columns, strict=True)), season=4, horizon=10)
    assert list(by_name["forecast"]) == list("abcd")
    assert list(by_name["forecast"].values()) == by_position["forecast"]
    assert by_name["coverage"] == {
        "observations_total": 662,
        "observations_used": 62 + CONTEXT,
        "imputed": 1,
        "context_length": CONTEXT,
    }


def test_rows_are_padded_to_the_next_bucket_with_their_length(model: Model, backend: Fixed) -> None:
    model.forecast([WALK[:20], WALK[:300]], season=1)
    shapes = {inputs["tokens"].shape[1]: inputs["lengths"].tolist() for inputs in backend.inputs}
    assert shapes == {29: [1 + FUTURE + 3], BUCKETS[1]: [1 + FUTURE + 38]}
    short = next(inputs for inputs in backend.inputs if inputs["tokens"].shape[1] == 29)
    assert (short["tokens"][0, :16] == prepare(WALK[None, :20], (1,)).tokens[0]).all()
    assert not short["tokens"][0, 16:].any()


def test_only_the_context_counts_and_gaps_at_its_start_are_dropped(model: Model) -> None:
    assert model.forecast(WALK)["forecast"] == model.forecast(WALK[-CONTEXT:])["forecast"]
    gap = np.r_[np.full(40, np.nan), WALK[:50]]
    assert model.forecast(gap)["forecast"] == model.forecast(WALK[:50])["forecast"]


@pytest.mark.parametrize("horizon", [1, HORIZON - 1, HORIZON, HORIZON + 1, 250, MAX_HORIZON])
def test_longer_horizons_continue_the_medians_with_wider_bands(model: Model, horizon: int) -> None:
    answer = model.forecast(WALK[:100], season=1, horizon=horizon, quantiles=LEVELS)
    found = np.array([answer["quantiles"][str(level)] for level in LEVELS])
    assert found.shape == (len(LEVELS), horizon)
    assert found[:, :HORIZON] == pytest.approx(expected(WALK[:100])[:, :horizon], rel=1e-6)
    width = found[-1] - found[0]
    assert (width[HORIZON:] >= width[HORIZON - 1 : HORIZON]).all()
    if horizon > HORIZON:
        first = expected(WALK[:100])
        second = expected(np.r_[WALK[:100], first[MEDIAN]])
        assert found[MEDIAN, HORIZON : 2 * HORIZON] == pytest.approx(second[MEDIAN, : horizon - HORIZON], rel=1e-6)
        distance = np.hypot(first[-1, -1] - first[MEDIAN, -1], second[-1, 0] - second[MEDIAN, 0])
        assert found[-1, HORIZON] - found[MEDIAN, HORIZON] == pytest.approx(distance, rel=1e-5)


def test_line_goes_on_over_any_horizon(model: Model) -> None:
    answer = model.forecast(np.arange(20), horizon=MAX_HORIZON, quantiles=[0.1, 0.9])
    assert answer["forecast"] == pytest.approx(np.arange(20, 20 + MAX_HORIZON), rel=1e-9)
    assert answer["quantiles"]["0.1"] == answer["quantiles"]["0.9"]


def test_levels_between_those_of_the_model_are_interpolated(model: Model) -> None:
    found = model.forecast(WALK[:100], season=1, horizon=5, quantiles=[0.1, 0.15, 0.2, 0.9])["quantiles"]
    low, between, high, _ = (np.array(values) for values in found.values())
    assert between == pytest.approx((low + high) / 2)


def test_forecasts_are_not_negative_if_asked(model: Model) -> None:
    sales = np.random.default_rng(0).poisson(0.7, 60)
    free, bound = (model.forecast(sales, quantiles=[0.1], non_negative=flag) for flag in (False, True))
    assert min(free["quantiles"]["0.1"]) < 0
    assert bound["quantiles"]["0.1"] == np.maximum(free["quantiles"]["0.1"], 0).tolist()


@pytest.mark.parametrize(
    ("series", "options", "message"),
    [
        ([], {}, "series: at least 1 is needed"),
        ([[1.0, 2.0], []], {}, "series.1: at least 1 of the last 512 values is needed; 0 are missing"),
        ({"a": [None, None]}, {}, "series.a: at least 1 of the last 512 values is needed; 2 are missing"),
        ([[1.0, float("inf")]], {}, "series.0.1: must be a finite number or missing"),
        ([["1", "2"]], {}, "series.0: must contain numbers or None, not str"),
        ([1.0], {"season": 0}, "season: must be at least 1, not 0"),
        ([1.0], {"season": 1.5}, "season: must be an integer, not float"),
        ([1.0], {"season": (7, 30, 365)}, "season: must be a number or 2, not 3"),
        ([1.0], {"season": ()}, "season: must be a number or 2, not 0"),
        ([1.0], {"season": (24, 7)}, "season: the shorter season comes first, not 24 and 7"),
        ([1.0], {"season": 10**6}, "season: must be from 1 to 100,000 steps, not 1000000"),
        ([1.0], {"horizon": 0}, "horizon: must be at least 1, not 0"),
        ([1.0], {"horizon": 961}, "horizon: must be from 1 to 960, not 961"),
        ([1.0], {"quantiles": [0.5, 0.95]}, "quantiles: levels must be from 0.1 to 0.9, not 0.95"),
    ],
)
def test_wrong_input_is_named(model: Model, series: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        model.forecast(series, **options)
    assert str(caught.value) == message


def test_tensors_give_all_quantiles(model: Model) -> None:
    task = model.task
    windows = np.stack([WALK[:50], np.r_[np.full(20, np.nan), WALK[:30]]]).astype(np.float32)
    answer = model._run(task.infer({"series": windows, "season": np.array([4.0], np.float32)}, "windows"))
    assert answer.outputs["quantiles"].shape == (2, len(LEVELS), HORIZON)
    assert answer.outputs["quantiles"][0] == pytest.approx(expected(windows[0].astype(np.float64), 4), abs=1e-4)
    assert answer.parameters == {"observations_total": 80, "observations_used": 80, "imputed": 20}


@pytest.mark.parametrize(
    ("options", "season", "source", "horizon"),
    [
        ({"season": 4}, 4, "request", 4),
        ({"season": (24, 168)}, [24, 168], "request", 24),
        ({"season": 100_000}, 100_000, "request", MAX_HORIZON),
        ({"frequency": "1mo", "horizon": 5}, 12, "frequency", 5),
        ({"frequency": "1y"}, 1, "frequency", 24),
        ({}, 1, "data", 24),
    ],
)
def test_season_and_horizon_have_defaults(
    model: Model, options: dict[str, Any], season: object, source: str, horizon: int
) -> None:
    answer = model.forecast(WALK[:100], **options)
    assert (answer["season"], answer["season_from"], len(answer["forecast"])) == (season, source, horizon)


def test_horizon_is_the_longest_season_of_the_series(model: Model) -> None:
    month = 10 * np.sin(np.arange(180) * 2 * np.pi / 30) + np.random.default_rng(0).standard_normal(180)
    answer = model.forecast({"month": month, "walk": WALK[:100]})
    assert (answer["season"], answer["season_from"]) == ({"month": 30, "walk": 1}, "data")
    assert [len(forecast) for forecast in answer["forecast"].values()] == [30, 30]


def test_requests_are_computed_together_but_for_many_series(model: Model) -> None:
    task = model.task
    assert isinstance(task, AnySeries)
    plans = [
        task.plan(None, Tails.of([WALK[: 20 + number % 3].tolist()] * 100, CONTEXT), ForecastOptions(2))
        for number in range(6)
    ]
    computation = task.forecast(plans)
    step, sizes = advance(computation), list[int]()
    while isinstance(step, RunModel):
        sizes.append(len(step.rows))
        step = advance(computation, [QUANTILES.astype(np.float32)] * len(step.rows))
    assert isinstance(step, Answer)
    assert sizes == [256, 256, 88]
    assert [forecast.values.shape for forecast in step.value] == [(2, 100)] * 6
    assert len(step.coverages) == 600


def test_manifest_with_a_kind_is_of_any_series() -> None:
    manifest = parse_manifest(fields())
    assert isinstance(manifest, AnySeriesManifest)
    assert CLASSES[type(manifest)] is AnySeries
    assert CLASSES[type(forecaster().manifest)] is TASKS["forecasting"]
    assert AnySeries.name in TASKS


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"horizon": 48}, "context_length, horizon and levels must be"),
        ({"levels": (0.1, 0.5, 0.9)}, "context_length, horizon and levels must be"),
        ({"theta_shares": (0.5,)}, f"theta_shares must be {len(SEASON_CLASSES) + 1} numbers, not 1"),
        ({"outputs": fields()["inputs"]}, "inputs and output have shapes"),
        ({"files": fields()["files"][:1]}, "the longest bucket must be 77 tokens, not 29"),
        ({"kind": "some-series"}, "Input should be 'any-series'"),
        ({"task": "text-matching"}, "task must be forecasting, not text-matching"),
    ],
)
def test_manifest_of_another_preparation_is_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse_manifest(fields(**changed))


@pytest.mark.parametrize(("seasons", "place"), [((1,), 0), ((2,), 1), ((4,), 1), ((7,), 2), ((12,), 2), ((24, 168), 3)])
def test_season_class_is_that_of_the_shorter_season(seasons: tuple[int, ...], place: int) -> None:
    assert season_class(seasons) == place
