"""Which model a request is for."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from artifact.defaults import TaskName
from artifact.errors import BadExport, InvalidInput
from artifact.loading import LoadedModel
from service.engine.engine import Engine
from service.engine.selection import SETTINGS, Default, Models, check_defaults
from service.errors import ModelNotFound
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import classifier, forecaster, matcher

LISTED: Mapping[TaskName, str] = {"text-classification": "other"}


def served(*models: LoadedModel, listed: Mapping[TaskName, str] = MappingProxyType({}), **defaults: str) -> Models:
    """Models behind batchers that compute nothing."""
    engine = Engine(models, Settings.model_validate(defaults), Metrics(), listed)
    engine.close()
    return engine.models


@pytest.fixture
def models() -> Models:
    """Two of a task, one each of the others."""
    return served(classifier(), classifier("other", version=2), matcher(), forecaster())


def test_model_is_found_by_name_and_version(models: Models) -> None:
    assert models.named("other").manifest.version == 2
    assert models.named("other", "2") is models.named("other")
    with pytest.raises(ModelNotFound, match="model other is served in version 2 only"):
        models.named("other", "1")
    with pytest.raises(ModelNotFound, match="there are: mood, other, twins, naive"):
        models.named("none")


def test_only_model_of_a_task_needs_no_name(models: Models) -> None:
    assert models.matcher(None).manifest.name == "twins"
    assert models.forecaster(None).manifest.name == "naive"


def test_one_of_several_has_to_be_named(models: Models) -> None:
    assert models.classifier("other").manifest.name == "other"
    with pytest.raises(InvalidInput, match="name a model; for this route there are: mood, other") as caught:
        models.classifier(None)
    assert caught.value.errors == [("model", "missing")]


def test_default_is_taken_unless_another_one_is_named() -> None:
    models = served(classifier(), classifier("other"), default_classifier="other")
    assert models.classifier(None).manifest.name == "other"
    assert models.classifier("mood").manifest.name == "mood"


def test_default_of_the_file_is_taken_unless_a_setting_names_one() -> None:
    models = served(classifier(), classifier("other"), listed=LISTED)
    assert models.default("text-classification") == Default("other", "defaults.json")
    assert models.classifier(None).manifest.name == "other"
    models = served(classifier(), classifier("other"), listed=LISTED, default_classifier="mood")
    assert models.default("text-classification") == Default("mood", "default_classifier")
    assert models.classifier(None).manifest.name == "mood"


def test_default_of_the_file_that_is_not_served_is_ignored() -> None:
    assert served(classifier(), listed=LISTED).classifier(None).manifest.name == "mood"
    with pytest.raises(InvalidInput, match="name a model"):
        served(classifier("a"), classifier("b"), listed=LISTED).classifier(None)
    with pytest.raises(InvalidInput, match="name a model"):
        served(classifier("a"), classifier("b"), matcher("other"), listed=LISTED).classifier(None)


def test_model_that_was_the_only_one_stays_the_default_when_others_come() -> None:
    engine = Engine([classifier()], Settings(), Metrics(), LISTED)
    engine.put(classifier("third"))
    assert engine.models.default("text-classification") == Default("mood", "the only one when it was loaded")
    engine.put(classifier("other"))
    assert engine.models.default("text-classification") == Default("other", "defaults.json")
    engine.close()


def test_model_of_another_task_is_refused(models: Models) -> None:
    with pytest.raises(InvalidInput, match="mood does text-classification; for this route there are: twins") as caught:
        models.matcher("mood")
    assert caught.value.errors == [("model", "of another task")]
    with pytest.raises(ModelNotFound):
        models.matcher("none")


def test_task_without_a_model_is_refused() -> None:
    with pytest.raises(InvalidInput, match="for this route there are: none"):
        served(classifier()).forecaster(None)


def test_channels_choose_the_forecaster_before_the_default_does() -> None:
    models = served(
        forecaster("a", channels=["x", "y"]),
        forecaster("b", channels=["x", "z"]),
        forecaster("c", channels=["x", "z"]),
        default_forecaster="c",
    )
    assert models.forecaster(None, ["y", "x"]).manifest.name == "a"
    assert models.forecaster(None, ["x", "z"]).manifest.name == "c"
    assert models.forecaster("b", ["y", "x"]).manifest.name == "b"


@pytest.mark.parametrize("setting", SETTINGS)
def test_default_that_is_not_served_is_refused(setting: str) -> None:
    models = [classifier(), matcher(), forecaster()]
    with pytest.raises(BadExport, match=f"{setting} 'none' is not among the exports for {SETTINGS[setting]}: "):
        check_defaults(models, Settings.model_validate({setting: "none"}))


def test_default_of_another_task_is_refused() -> None:
    with pytest.raises(BadExport, match="default_matcher 'mood' is not among the exports for text-matching: twins"):
        check_defaults([classifier(), matcher()], Settings(default_matcher="mood"))


def test_defaults_that_are_served_are_allowed() -> None:
    settings = Settings(default_classifier="mood", default_matcher="twins", default_forecaster="naive")
    check_defaults([classifier(), matcher(), forecaster()], settings)
    check_defaults([], Settings())
