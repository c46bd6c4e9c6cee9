"""What is loaded at the start, and what of it is refused."""

import logging
from pathlib import Path

import pytest

from artifact.errors import BadExport
from artifact.loading import LoadedModel
from service.engine import loading
from service.engine.loading import load_models
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import classifier, forecaster

MODELS = {"mood": classifier(), "naive": forecaster()}
DAMAGED = 50


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of exports; those that are not among MODELS, and versions from DAMAGED on, are damaged."""

    def load_export(folder: Path, **options: object) -> LoadedModel:
        assert options == {"format": "torchscript", "device": "cpu"}
        if (name := folder.parent.name) not in MODELS or int(folder.name) >= DAMAGED:
            raise BadExport(f"{name}/{folder.name}: model.onnx has another hash", "hash")
        return MODELS[name]

    monkeypatch.setattr(loading, "load_export", load_export)
    return tmp_path


def add(exports: Path, *places: str) -> None:
    for place in places:
        (exports / place).mkdir(parents=True)


def settings(exports: Path, **changes: object) -> Settings:
    return Settings.model_validate({"exports": exports, "backend": "torchscript", "device": "cpu", **changes})


def test_newest_version_of_every_export_is_loaded(exports: Path) -> None:
    add(exports, "naive/1", "mood/9", "mood/10")
    models, refused = load_models(settings(exports), Metrics())
    assert (models, refused) == ([MODELS["mood"], MODELS["naive"]], [])


def test_damaged_export_is_refused_and_counted(exports: Path) -> None:
    add(exports, "mood/1", "damaged/3")
    metrics = Metrics()
    with pytest.raises(BadExport, match=r"damaged/3: model\.onnx has another hash"):
        load_models(settings(exports), metrics)
    labels = {"model": "damaged", "reason": "hash"}
    assert metrics.registry.get_sample_value("longdoc_exports_refused_total", labels) == 1


def test_rest_is_loaded_when_asked_to(exports: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/1", "damaged/3")
    with caplog.at_level(logging.ERROR):
        models, refused = load_models(settings(exports, skip_bad_exports=True), Metrics())
    assert (models, refused) == ([MODELS["mood"]], [exports / "damaged/3"])
    assert "refused: damaged/3: model.onnx has another hash" in caplog.text


def test_at_least_one_export_has_to_be_sound(exports: Path) -> None:
    add(exports, "damaged/3")
    with pytest.raises(BadExport, match="damaged/3"):
        load_models(settings(exports, skip_bad_exports=True), Metrics())


def test_default_has_to_be_among_them(exports: Path) -> None:
    add(exports, "mood/1")
    with pytest.raises(BadExport, match="default_classifier 'other' is not among"):
        load_models(settings(exports, default_classifier="other"), Metrics())


SKIP = {"skip_bad_exports": True}


@pytest.mark.parametrize(("changes", "served"), [(SKIP, None), ({}, {"mood"}), (SKIP, {"mood"})])
def test_version_before_a_damaged_one_is_taken(
    exports: Path, changes: dict[str, object], served: set[str] | None
) -> None:
    """When asked to, and by a server that is started again: while it ran, it had refused that version as well."""
    add(exports, "mood/2", "mood/3", "mood/50", "mood/51")
    models, refused = load_models(settings(exports, **changes), Metrics(), served)
    assert models == [MODELS["mood"]]
    assert refused == [exports / "mood/51", exports / "mood/50"]


def test_first_start_takes_no_version_before_a_damaged_one(exports: Path) -> None:
    add(exports, "mood/2", "mood/50")
    with pytest.raises(BadExport, match="mood/50"):
        load_models(settings(exports), Metrics())


def test_server_that_is_started_again_serves_the_names_it_has_served(exports: Path) -> None:
    """A damaged name that is new was refused while it ran; one that was served is asked for."""
    add(exports, "mood/1", "damaged/3")
    models, refused = load_models(settings(exports), Metrics(), {"mood"})
    assert (models, refused) == ([MODELS["mood"]], [exports / "damaged/3"])
    with pytest.raises(BadExport, match="damaged/3"):
        load_models(settings(exports), Metrics(), {"mood", "damaged"})
