"""A small model: trained, resumed, exported, loaded, evaluated."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import artifact
from artifact.tasks.any_series import AnySeriesManifest, season_class
from artifact.univariate.features import HORIZON, LEVELS, MEDIAN, prepare
from model.config.recipes import find_recipe, load_recipe
from model.config.run import AnySeriesRun
from model.data.own import DataFiles
from model.data.synthetic_univariate import KINDS, Draw, Group, draw_groups
from model.errors import UserError
from model.runs.load import load_trained
from model.tasks import any_series, task_of
from model.tasks.any_series import (
    BUCKETS,
    AnySeriesLearner,
    AnySeriesTask,
    Evaluated,
    SeriesBatch,
    errors,
    evaluate,
    examples,
    golden_series,
    pinball,
    predicted,
)
from model.tasks.graphs import GraphFunction
from model.training.checkpoint import BEST, LAST, load
from tests.support.commands import call, export, train

SMALL = (
    *("model.encoder.dim=16", "model.encoder.num_heads=2", "model.encoder.num_layers=1", "model.encoder.ffn_dim=16"),
    *(
        "model.encoder.options.num_segments=4",
        "model.encoder.options.num_rows=4",
        "model.encoder.options.num_columns=4",
    ),
    *("training.epochs=2", "training.batch_size=16", "training.examples_per_epoch=64", "training.warmup_steps=2"),
)


@pytest.fixture(autouse=True)
def _few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_series, "BATCHES", 6)
    monkeypatch.setattr(any_series, "BATCH", 16)


def _task(*overrides: str) -> AnySeriesTask:
    config = load_recipe(find_recipe("any-series"), [*SMALL, *overrides])
    assert isinstance(config, AnySeriesRun)
    task = task_of(config)
    assert isinstance(task, AnySeriesTask)
    return task


def _evaluated(quantiles: float, theta: float, kind: str = "counts", rows: int = 2) -> Evaluated:
    """Forecasts of a truth of 0."""
    shape = (rows, HORIZON)
    spread = np.full((rows, len(LEVELS), HORIZON), quantiles) + np.linspace(-0.1, 0.1, len(LEVELS))[:, None]
    return Evaluated(spread, np.zeros(shape), np.full(shape, theta), np.full(shape, 3.0), (kind,) * rows)


def test_model_is_trained_exported_loaded_and_evaluated(tmp_path: Path) -> None:
    run = train("any-series", tmp_path / "runs", *SMALL)
    folder = export(run, tmp_path / "exports")
    model: Any = artifact.load(folder)  # an array is a sequence at run time, but not for the type checker
    manifest = model.manifest
    assert isinstance(manifest, AnySeriesManifest)
    assert {"all", "components"} <= {result.condition for result in manifest.results} <= {"all", *KINDS}
    assert json.loads((tmp_path / "exports" / "defaults.json").read_text()) == {"forecasting": "any-series"}
    series = 20 + np.random.default_rng(0).standard_normal(90).cumsum()
    answer = model.forecast(series, season=7, horizon=30, quantiles=LEVELS)

    task = _task()
    eager = task.build()
    eager.load_state_dict(load(run / BEST).state["model"])
    prepared = prepare(series[None], (7,))
    with torch.no_grad():
        raw = eager.eval()(torch.from_numpy(prepared.tokens), torch.tensor([prepared.tokens.shape[1]]))
    expected = prepared.restore(raw.numpy().astype(float), manifest.theta_shares[2])[0, :, :30]
    found = np.array([answer["quantiles"][str(level)] for level in LEVELS])
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    script: Any = artifact.load(folder, format="torchscript")
    assert script.forecast(series, season=7, horizon=30)["forecast"] == pytest.approx(answer["forecast"], rel=1e-4)

    assert call("evaluate", folder, "--out", tmp_path / "results.json", "--device", "cpu") == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert [result["value"] for result in results] == pytest.approx([r.value for r in manifest.results], abs=1e-3)


def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = train("any-series", tmp_path / "whole", *SMALL)
    words = [word for setting in SMALL for word in ("--set", setting)]

    def interrupted(stream: tuple[int, ...], index: int, size: int, *draw: Draw) -> Iterator[Group]:
        if stream[0] == any_series.TRAINING and index == 6:
            raise KeyboardInterrupt
        return draw_groups(stream, index, size, *draw)

    command = ("train", "any-series", "--runs", tmp_path / "parts", "--device", "cpu", *words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(any_series, "draw_groups", interrupted)
        assert call(*command) == 130
    assert load(tmp_path / "parts" / whole.name / LAST).progress.epoch == 1
    assert call(*command, "--resume") == 0
    first, second = (load(folder / LAST).state["model"] for folder in (whole, tmp_path / "parts" / whole.name))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Two years of the months of four series: a column for each."""
    path = tmp_path / "months.csv"
    values = 100 + np.random.default_rng(0).standard_normal((24, 4)).cumsum(axis=0)
    rows = [f"2020-{month:02}-01" for month in range(1, 13)] + [f"2021-{month:02}-01" for month in range(1, 13)]
    lines = [",".join([stamp, *map(str, row)]) for stamp, row in zip(rows, values.tolist(), strict=True)]
    path.write_text("\n".join(["month,a,b,c,d", *lines]) + "\n")
    return path


def test_series_of_the_user_are_trained_on_but_not_needed_afterwards(
    tmp_path: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for setting in (*SMALL, "data.series_share=0.5") for word in ("--set", setting)]
    command = ("train", "any-series", "--runs", tmp_path / "runs", "--device", "cpu", *words)
    assert call(*command, "--series", series) == 0
    assert "added: 4 series of 24 to 24 steps; seasons: 4 of 12" in capsys.readouterr().out
    run = tmp_path / "runs" / "any-series-seed0"
    plain = train("any-series", tmp_path / "plain", *SMALL)
    first, second = (load(folder / BEST).state["model"] for folder in (run, plain))
    assert not all(torch.equal(first[name], second[name]) for name in first)
    series.write_text(series.read_text().replace("2020-01-01,", "2020-01-01,1"))
    assert call(*command, "--series", series, "--resume") == 2
    assert "months.csv: other series than those that this run began with" in capsys.readouterr().err
    series.unlink()
    assert call("evaluate", run, "--device", "cpu") == 0
    assert load_trained(run, DataFiles()).task.terms() == ("Generated, and own data.", False)


@pytest.mark.parametrize("words", [("--series", "x.csv"), ("--set", "data.series_share=0.5")])
def test_series_of_the_user_need_a_share(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", "any-series", "--runs", tmp_path, "--device", "cpu", *words) == 2
    assert "--series and data.series_share above 0 need each other" in capsys.readouterr().err


def test_batch_size_must_hold_whole_groups() -> None:
    task = _task("training.batch_size=12")
    with pytest.raises(UserError, match=r"training.batch_size must be a multiple of 8, not 12"):
        task.load(())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.encoder.seq_len=64", r"model.encoder.seq_len must be 76, not 64"),
        ("model.encoder.mode=paper", r"model.encoder.mode must be 'length-aware'.*not 'paper'"),
        ("data.name=ettm2", r"data.name must be 'synthetic-univariate', not 'ettm2'"),
        ("model.context_length=96", r"unknown key model.context_length"),
    ],
)
def test_wrong_recipe_names_the_key(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _task(override)


@pytest.mark.parametrize(
    "overrides",
    [
        ("model.encoder.attention=softmax",),
        ("model.encoder.attention=dba",),
        (
            *("model.encoder.options.use_fourier=false", "model.encoder.options.use_rows=false"),
            *("model.encoder.options.use_columns=false", "model.encoder.options.kernel_size=11"),
        ),
        ("model.encoder.num_layers=0",),
    ],
    ids=["softmax", "dba", "convolution", "no blocks"],
)
def test_ablations_are_options_of_the_encoder(overrides: tuple[str, ...]) -> None:
    kept = [key for key in SMALL if "attention=" not in overrides[0] or "options" not in key]
    config = load_recipe(find_recipe("any-series"), [*kept, *overrides])
    model = task_of(config).build().eval()
    inputs = [torch.from_numpy(array) for array in golden_series().values()]
    assert model(*inputs).shape == (8, len(LEVELS), HORIZON)


def test_golden_series_fill_every_bucket() -> None:
    lengths = golden_series()["lengths"]
    assert lengths.max() == BUCKETS[-1]
    for low, high in zip((0, *BUCKETS), BUCKETS, strict=False):
        assert ((low < lengths) & (lengths <= high)).any()


def test_training_and_validation_do_not_share_series() -> None:
    task = _task()
    data = task.load(())
    tokens, *_ = next(iter(AnySeriesLearner(task, data).batches(0)))
    assert not any(np.array_equal(tokens[0, 0], batch.prepared[0].tokens[0, 0]) for batch in data.validation)


def test_batches_of_an_epoch_are_reproducible_and_differ_between_epochs() -> None:
    task = _task()
    learner = AnySeriesLearner(task, task.load(()))
    first, again, other = ([batch[0] for batch in learner.batches(epoch)] for epoch in (0, 0, 1))
    assert len(first) == 4
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0][0, 0], other[0][0, 0])


def test_other_processes_generate_the_same_batches() -> None:
    tasks = [_task(f"data.workers={workers}") for workers in (0, 2)]
    alone, shared = ([*AnySeriesLearner(task, task.load(())).batches(1)] for task in tasks)
    assert len(alone) == len(shared) == 4
    for expected, found in zip(alone, shared, strict=True):
        for one, other in zip(expected, found, strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())


def test_steps_far_ahead_of_a_short_past_do_not_count() -> None:
    batch = SeriesBatch.of(draw_groups((5,), 0, 64))
    targets, learned = batch.targets(), batch.learned()
    for row, steps in enumerate(np.repeat([group.past.shape[1] for group in batch.groups], 8)):
        counted = min(HORIZON, 8 + 2 * steps)
        assert np.array_equal(learned[row, :counted], targets[row, :counted], equal_nan=True)
        assert np.isnan(learned[row, counted:]).all()


def test_batches_have_few_shapes() -> None:
    learner = AnySeriesLearner(task := _task("training.examples_per_epoch=640"), task.load(()))
    assert {tokens.shape[1] for tokens, *_ in learner.batches(0)} <= {*BUCKETS}


def test_pinball_equals_its_definition() -> None:
    generator = np.random.default_rng(0)
    quantiles, truth = generator.standard_normal((3, len(LEVELS), HORIZON)), generator.standard_normal((3, HORIZON))
    truth[1] = np.nan
    weight = [1 / (1 + step / 8) for step in range(HORIZON)]
    total = sum(
        weight[step] * 2 * max(level * error, (level - 1) * error)
        for row in (0, 2)
        for step in range(HORIZON)
        for place, level in enumerate(LEVELS)
        for error in (truth[row, step] - quantiles[row, place, step],)
    )
    found = pinball(torch.from_numpy(quantiles), torch.from_numpy(truth))
    assert float(found) == pytest.approx(total / (2 * sum(weight) * len(LEVELS)))


def test_errors_are_means_of_each_kind() -> None:
    found = errors([_evaluated(0.5, 0.0, kind="counts"), _evaluated(0.0, 1.0, kind="waves", rows=6)])
    assert found["counts"] == pytest.approx(
        {"series": 2, "mae": 0.5, "Theta": 0, "seasonal naive": 3, "naive": 0, "coverage_80": 0}
    )
    assert found["all"]["series"] == 8
    assert found["all"]["mae"] == pytest.approx(0.125)


def test_quantiles_are_mixed_with_the_share_of_their_season() -> None:
    batches = [SeriesBatch.of(draw_groups((5,), index, 16)) for index in range(4)]
    shares = (0.5, 0.0, 0.25, 1.0)
    zero: GraphFunction = lambda inputs: np.zeros((len(inputs["tokens"]), len(LEVELS), HORIZON), np.float32)  # noqa: E731
    for batch, found in zip(batches, evaluate(zero, batches, shares), strict=True):
        medians = [
            shares[season_class(group.seasons)] * prepared.theta * ~prepared.is_sparse[:, None]
            for group, prepared in zip(batch.groups, batch.prepared, strict=True)
        ]
        kept = ~np.isnan(batch.targets()).any(axis=1)
        assert found.quantiles[:, MEDIAN] == pytest.approx(np.concatenate(medians)[kept])


def test_seasonal_naive_repeats_the_last_season_in_units_of_the_model() -> None:
    groups = [group for index in range(20) for group in draw_groups((5,), index, 16)]
    group = next(g for g in groups if 4 <= max(g.seasons) <= g.past.shape[1] and not np.isnan(g.past).any())
    batch = SeriesBatch.of([group])
    season, (prepared,) = max(group.seasons), batch.prepared
    repeated = np.stack([np.resize(row[-season:], HORIZON) for row in group.past])
    expected = np.clip(prepared.targets(repeated), -any_series.FARTHEST, any_series.FARTHEST)
    assert batch.seasonal_naive() == pytest.approx(expected, nan_ok=True)


def test_report_shows_a_forecast_of_each_kind_in_the_units_of_its_series() -> None:
    def function(inputs: Any) -> Any:
        return np.tile(np.linspace(-1, 1, len(LEVELS), dtype=np.float32)[:, None], (len(inputs["lengths"]), 1, HORIZON))

    batches = tuple(SeriesBatch.of(draw_groups((7,), index, 64)) for index in range(6))
    found = predicted(function, batches, (0.0,) * 4)
    shown = list(examples(batches))
    assert list(found.channels) == [title for title, _, _ in shown]
    assert {title.partition(",")[0] for title in found.channels} == set(KINDS)
    naive = next(rival.scores for rival in found.rivals if rival.name == "seasonal naive")
    compared = 0
    for channel, (_, batch, place) in enumerate(shown):
        group = batch.groups[place]
        past, season = group.past[0], max(group.seasons)
        known = found.past[0, :, channel][-len(past) :]
        np.testing.assert_array_equal(known, past[-2 * HORIZON :])
        np.testing.assert_array_equal(found.truth[0, :, channel], group.future[0])
        assert (found.low[0, :, channel] <= found.high[0, :, channel]).all()
        repeated = past[-season:] if season <= len(past) else past[-1:]
        size = np.abs(prepare(past[None], group.seasons).targets(np.resize(repeated, (1, HORIZON))))
        if not np.isnan(past).any() and size.max() < any_series.FARTHEST:  # beyond, the baselines are cut
            np.testing.assert_allclose(naive[0, :, channel], np.resize(repeated, HORIZON), rtol=1e-6, atol=1e-9)
            compared += 1
    assert compared > len(KINDS) / 2
    assert not found.is_one_series
