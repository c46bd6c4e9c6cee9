"""Which model a request selects."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from artifact.errors import BadExport, InvalidInput
from artifact.loading import LoadedModel
from artifact.manifest import ExportManifest
from artifact.series import Step, parse_frequency
from artifact.tasks.classification import Classification
from artifact.tasks.forecasting import Forecasting
from artifact.tasks.matching import Matching
from service.engine.engine import Engine
from service.engine.selection import (
    DEFAULT_SETTINGS,
    Default,
    Models,
    check_aliases,
    check_defaults,
    check_task,
    unknown_defaults,
)
from service.engine.served import AnyModel
from service.errors import ModelNotFound
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import CONTEXT, classifier, forecaster, matcher

LISTED: Mapping[str, str] = {"text-classification": "other"}


def served(*models: LoadedModel, listed: Mapping[str, str] = MappingProxyType({}), **settings: str) -> Models:
    """Return models with batchers that compute nothing."""
    engine = Engine(models, Settings.model_validate(settings), Metrics(), listed)
    engine.close()
    return engine.models


@pytest.fixture
def models() -> Models:
    """Two models of one task and one of each other task."""
    return served(classifier(), classifier("other", version=2), matcher(), forecaster())


def test_model_is_found_by_name_and_version(models: Models) -> None:
    assert models.named("other").manifest.version == 2
    assert models.named("other", "2") is models.named("other")
    with pytest.raises(ModelNotFound, match="model other is served in version 2 only"):
        models.named("other", "1")
    with pytest.raises(ModelNotFound, match="there are: mood, other, twins, naive"):
        models.named("none")


def test_model_is_found_by_an_alias_unless_it_is_the_name_of_a_model() -> None:
    aliases = "gpt=mood,old=mood@1,twins=mood,lost=none,again=gpt,a@b=mood"
    models = served(classifier(), classifier(version=2), matcher(), aliases=aliases)
    assert models.named("gpt") is models.asked("text-classification", "gpt") is models["mood"]
    assert models.choose(Classification, "old").manifest.version == 1
    assert models.choose(Matching, "twins") is models["twins"]
    assert models.aliases == {"gpt": models["mood"], "old": models.named("mood", "1"), "a@b": models["mood"]}
    for unknown in ("lost", "again", "gpt@2"):
        with pytest.raises(ModelNotFound, match="there are: mood, twins"):
            models.named(unknown)
    models.discard("twins", 1)
    assert models.named("twins") is models["mood"]


@pytest.fixture
def versions() -> Models:
    """Three versions of a model in no particular order, and another model."""
    return served(classifier(version=2), matcher(), classifier(version=10), classifier(version=9))


def test_name_alone_means_the_highest_version(versions: Models) -> None:
    assert versions["mood"].manifest.version == 10
    assert versions.named("mood") is versions.choose(Classification, "mood") is versions["mood"]
    assert [model.manifest.version for model in versions.versions("mood")] == [10, 9, 2]
    assert versions.versions("none") == []
    assert list(versions) == ["mood", "twins"]
    served_versions = [(model.manifest.name, model.manifest.version) for model in versions.served]
    assert served_versions == [("mood", 10), ("mood", 9), ("mood", 2), ("twins", 1)]


def test_version_is_pinned_by_name_and_version(versions: Models) -> None:
    for number in (2, 9, 10):
        model = versions.choose(Classification, f"mood@{number}")
        assert model.manifest.version == number
        assert versions.named(f"mood@{number}") is versions.named("mood", str(number)) is model


@pytest.mark.parametrize("name", ["mood@3", "mood@", "mood@02", "mood@x", "mood@2@2", "mood@ 2"])
def test_unserved_version_is_rejected_with_the_served_ones(versions: Models, name: str) -> None:
    for ask in (versions.named, lambda name: versions.choose(Classification, name)):
        with pytest.raises(ModelNotFound, match=r"^model mood is served in versions 10, 9, 2 only$"):
            ask(name)


@pytest.mark.parametrize("name", ["none@2", "@2", "", "@"])
def test_unserved_pinned_model_is_rejected_with_the_served_ones(versions: Models, name: str) -> None:
    with pytest.raises(ModelNotFound, match="there are: mood, twins"):
        versions.named(name)


def test_pinned_model_of_another_task_is_rejected(versions: Models) -> None:
    with pytest.raises(InvalidInput, match="mood is for text-classification; models for text-matching: twins"):
        versions.choose(Matching, "mood@2")


def test_discarding_a_version_keeps_the_others(versions: Models) -> None:
    assert versions.discard("mood", 10).manifest.version == 10
    assert versions.choose(Classification, None).manifest.version == 9
    assert versions.discard("mood", 2).manifest.version == 2
    assert [model.manifest.version for model in versions.versions("mood")] == [9]
    versions.discard("mood", 9)
    assert list(versions) == ["twins"]
    assert [model.manifest.name for model in versions.served] == ["twins"]
    versions.discard("twins", 1)
    with pytest.raises(ModelNotFound, match="there are: none"):
        versions.named("mood")


def forecaster_of(
    models: Models, name: str | None, channels: Sequence[str] | None = None, step: Step | None = None
) -> AnyModel:
    """Return the forecaster of a request with these channels and this step."""
    return models.choose(Forecasting, name, lambda task: task.fits(channels, step))


def test_longest_context_is_that_of_any_version() -> None:
    """A pinned version may read more steps than the highest one."""
    old, new = forecaster(version=1), forecaster(version=2)
    assert isinstance(old.task, Forecasting)
    task = Forecasting(old.task.manifest.model_copy(update={"context_length": 100}), old.task.calibration)
    assert served(new).longest_context == CONTEXT
    assert served(dataclasses.replace(old, task=task), new).longest_context == 100


def test_default_may_be_pinned() -> None:
    two = (classifier(version=1), classifier(version=2))
    models = served(*two, default_classifier="mood@1")
    assert models.choose(Classification, None).manifest.version == 1
    assert models.choose(Classification, "mood").manifest.version == 2
    assert models.default("text-classification") == Default("mood@1", "default_classifier")
    models = served(*two, listed={"text-classification": "mood@1"})
    assert models.choose(Classification, None).manifest.version == 1
    assert models.default("text-classification") == Default("mood@1", "defaults.json")


def test_unserved_pinned_default_of_the_file_is_ignored() -> None:
    listed: Mapping[str, str] = {"text-classification": "mood@1"}
    assert served(classifier(version=2), listed=listed).choose(Classification, None).manifest.version == 2
    with pytest.raises(InvalidInput, match="name a model"):
        served(classifier(version=2), classifier("other"), listed=listed).choose(Classification, None)


def test_series_select_among_the_highest_versions() -> None:
    models = served(
        forecaster("a", version=1, channels=["x"]),
        forecaster("a", version=2, channels=["y"]),
        forecaster("b", channels=["z"]),
    )
    assert forecaster_of(models, None, ["y"]).manifest.version == 2
    with pytest.raises(InvalidInput, match="name a model"):
        forecaster_of(models, None, ["x"])
    assert forecaster_of(models, "a@1", ["x"]).manifest.version == 1


def test_only_model_of_a_task_needs_no_name(models: Models) -> None:
    assert models.choose(Matching, None).manifest.name == "twins"
    assert forecaster_of(models, None).manifest.name == "naive"


def test_one_of_several_models_must_be_named(models: Models) -> None:
    assert models.choose(Classification, "other").manifest.name == "other"
    with pytest.raises(InvalidInput, match="name a model; models for text-classification: mood, other") as caught:
        models.choose(Classification, None)
    assert caught.value.errors == [("model", "missing")]


def test_default_is_used_unless_another_model_is_named() -> None:
    models = served(classifier(), classifier("other"), default_classifier="other")
    assert models.choose(Classification, None).manifest.name == "other"
    assert models.choose(Classification, "mood").manifest.name == "mood"


def test_default_of_the_file_is_used_unless_a_setting_names_one() -> None:
    models = served(classifier(), classifier("other"), listed=LISTED)
    assert models.default("text-classification") == Default("other", "defaults.json")
    assert models.choose(Classification, None).manifest.name == "other"
    models = served(classifier(), classifier("other"), listed=LISTED, default_classifier="mood")
    assert models.default("text-classification") == Default("mood", "default_classifier")
    assert models.choose(Classification, None).manifest.name == "mood"


def test_unserved_default_of_the_file_is_ignored() -> None:
    assert served(classifier(), listed=LISTED).choose(Classification, None).manifest.name == "mood"
    with pytest.raises(InvalidInput, match="name a model"):
        served(classifier("a"), classifier("b"), listed=LISTED).choose(Classification, None)
    with pytest.raises(InvalidInput, match="name a model"):
        served(classifier("a"), classifier("b"), matcher("other"), listed=LISTED).choose(Classification, None)


def test_only_model_stays_the_default_when_others_are_added() -> None:
    engine = Engine([classifier()], Settings(), Metrics(), LISTED)
    engine.put(classifier("third"))
    assert engine.models.default("text-classification") == Default("mood", "it was the only model of its task")
    engine.put(classifier("other"))
    assert engine.models.default("text-classification") == Default("other", "defaults.json")
    engine.close()


def test_model_of_another_task_is_rejected(models: Models) -> None:
    with pytest.raises(
        InvalidInput, match="mood is for text-classification; models for text-matching: twins"
    ) as caught:
        models.choose(Matching, "mood")
    assert caught.value.errors == [("model", "of another task")]
    with pytest.raises(ModelNotFound):
        models.choose(Matching, "none")


def test_task_without_a_model_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="no model for forecasting is served"):
        forecaster_of(served(classifier()), None)


def test_channels_take_precedence_over_the_default_forecaster() -> None:
    models = served(
        forecaster("a", channels=["x", "y"]),
        forecaster("b", channels=["x", "z"]),
        forecaster("c", channels=["x", "z"]),
        default_forecaster="c",
    )
    assert forecaster_of(models, None, ["y", "x"]).manifest.name == "a"
    assert forecaster_of(models, None, ["x", "z"]).manifest.name == "c"
    assert forecaster_of(models, "b", ["y", "x"]).manifest.name == "b"


def test_pinned_default_forecaster_is_preferred_to_its_other_versions() -> None:
    two = (forecaster("a", version=2, channels=["x"]), forecaster("a", version=3, channels=["x"]))
    models = served(*two, default_forecaster="a@2")
    assert forecaster_of(models, None).manifest.version == 2
    assert forecaster_of(models, None, ["x"], HOUR).manifest.version == 2
    assert forecaster_of(models, "a").manifest.version == 3
    models = served(*two, forecaster("b", channels=["y"]), listed={"forecasting": "a@2"})
    assert forecaster_of(models, None, ["x"]).manifest.version == 2
    assert forecaster_of(models, None, ["y"]).manifest.name == "b"


def test_fitting_version_is_used_if_the_pinned_default_does_not_fit() -> None:
    models = served(
        forecaster("a", version=2, channels=["x"]),
        forecaster("a", version=3, channels=["y"]),
        forecaster("b", channels=["x"]),
        default_forecaster="a@2",
    )
    assert forecaster_of(models, None, ["y"]).manifest.version == 3
    assert forecaster_of(models, None, ["x"]).manifest.version == 2, (
        "both models have these channels: the default is used"
    )


HOUR, DAY = parse_frequency("1h"), parse_frequency("1d")


def test_step_takes_precedence_over_the_default_forecaster() -> None:
    models = served(
        forecaster("a", frequency="1h"),
        forecaster("b", frequency="1d"),
        forecaster("c", frequency="1d", channels=["x"]),
        default_forecaster="a",
    )
    assert forecaster_of(models, None, step=HOUR).manifest.name == "a"
    assert forecaster_of(models, None, ["x"], DAY).manifest.name == "c"
    assert forecaster_of(models, "b", step=DAY).manifest.name == "b"
    assert forecaster_of(models, "b").manifest.name == "b"
    assert forecaster_of(models, None, step=DAY).manifest.name == "a", "two forecast days: the default is used"


def test_model_of_an_irregular_series_accepts_any_step() -> None:
    models = served(forecaster("a", frequency="irregular"))
    assert forecaster_of(models, None, step=HOUR).manifest.name == "a"


def manifests(*models: LoadedModel) -> list[ExportManifest]:
    return [model.manifest for model in models]


@pytest.mark.parametrize(("task", "setting"), DEFAULT_SETTINGS.items())
def test_default_that_is_not_served_is_refused(task: str, setting: str) -> None:
    models = manifests(classifier(), matcher(), forecaster())
    with pytest.raises(BadExport, match=f"{setting} 'none' is not among the exports for {task}: "):
        check_defaults(models, Settings.model_validate({setting: "none"}))


def test_alias_of_a_model_that_is_not_served_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    manifests = [classifier(version=2).manifest, matcher().manifest]
    check_aliases(manifests, Settings(aliases={"gpt": "mood", "old": "mood@2"}))
    assert not caplog.messages
    with pytest.raises(BadExport, match=r"aliases: gpt is for 'none', which is not among the exports: mood, twins$"):
        check_aliases(manifests, Settings(aliases={"gpt": "none"}))
    with pytest.raises(BadExport, match=r"'mood@1', which is not among the exports: mood, mood@2, twins, twins@1$"):
        check_aliases(manifests, Settings(aliases={"gpt": "mood@1"}))
    check_aliases(manifests, Settings(aliases={"twins": "mood"}))
    assert caplog.messages == ["aliases: twins is the name of a model, which answers instead of mood"]


def test_default_of_another_task_is_rejected() -> None:
    with pytest.raises(BadExport, match="default_matcher 'mood' is not among the exports for text-matching: twins"):
        check_defaults(manifests(classifier(), matcher()), Settings(default_matcher="mood"))


def test_pinned_default_that_is_not_served_is_refused_with_the_versions_that_are() -> None:
    models = manifests(classifier(version=1), classifier(version=2))
    for default in ("mood", "mood@1", "mood@2"):
        check_defaults(models, Settings(default_classifier=default))
    with pytest.raises(BadExport, match=r"'mood@3' is not among the exports for text-classification: mood@1, mood@2$"):
        check_defaults(models, Settings(default_classifier="mood@3"))
    with pytest.raises(BadExport, match=r"'none' is not among the exports for text-classification: mood$"):
        check_defaults(models, Settings(default_classifier="none"))


def test_default_of_the_file_that_is_no_model_of_its_task_is_unknown() -> None:
    served_models = manifests(classifier(version=1), classifier(version=2), classifier("other"), matcher())
    known: dict[str, str] = {"text-classification": "mood@2", "text-matching": "twins"}
    assert list(unknown_defaults(known, served_models)) == []
    unknown: dict[str, str] = {
        "text-classification": "moood",
        "text-matching": "mood",
        "forecasting": "naive",
    }
    assert list(unknown_defaults(unknown, served_models)) == [
        "text-classification: there is no model 'moood' for this task; there are: mood, other",
        "text-matching: there is no model 'mood' for this task; there are: twins",
        "forecasting: there is no model 'naive' for this task; there are: none",
    ]
    assert list(unknown_defaults({"text-classification": "mood@3"}, served_models)) == [
        "text-classification: there is no model 'mood@3' for this task; there are: mood@1, mood@2, other@1",
    ]


def test_versions_of_a_model_do_the_same_task() -> None:
    check_task(classifier().manifest, None)
    check_task(classifier(version=2).manifest, classifier().manifest)
    with pytest.raises(BadExport, match="mood/2 is for forecasting; mood is served for text-classification") as caught:
        check_task(forecaster("mood", version=2).manifest, classifier().manifest)
    assert caught.value.reason == "task"


def test_served_defaults_are_accepted() -> None:
    settings = Settings(default_classifier="mood", default_matcher="twins", default_forecaster="naive")
    check_defaults(manifests(classifier(), matcher(), forecaster()), settings)
    check_defaults([], Settings())
