"""Which exports are loaded at the start, and which are rejected."""

import errno
import logging
import os
from pathlib import Path

import pytest

import artifact.loading
from artifact.errors import BadExport
from artifact.exports import versions_of
from artifact.loading import LoadedModel
from service.engine import loading
from service.engine.folder import state_of
from service.engine.loading import load_models
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import classifier, forecaster
from tests.support.waiting import wait_until

MODELS = {"mood": classifier(), "naive": forecaster()}
DAMAGED = 50


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of exports; those that are not in MODELS, and versions from DAMAGED on, are damaged."""

    def load_export(folder: Path, **options: object) -> LoadedModel:
        assert options == {"format": "torchscript", "device": "cpu", "precision": "float32"}
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
    assert (models, refused) == ([MODELS["mood"], MODELS["naive"]], {})


def test_damaged_export_is_rejected_and_counted(exports: Path) -> None:
    add(exports, "mood/1", "damaged/3")
    metrics = Metrics()
    with pytest.raises(BadExport, match=r"damaged/3: model\.onnx has another hash"):
        load_models(settings(exports), metrics)
    labels = {"model": "damaged", "reason": "hash"}
    assert metrics.registry.get_sample_value("longdoc_exports_refused_total", labels) == 1


def test_valid_exports_are_loaded_when_damaged_ones_are_skipped(
    exports: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(exports, "mood/1", "damaged/3")
    with caplog.at_level(logging.ERROR):
        models, refused = load_models(settings(exports, skip_bad_exports=True), Metrics())
    assert (models, list(refused)) == ([MODELS["mood"]], [exports / "damaged/3"])
    assert str(refused[exports / "damaged/3"].error) == "damaged/3: model.onnx has another hash"
    assert refused[exports / "damaged/3"].error.__traceback__ is None, "its frames would keep the loaded model alive"
    assert "refused: damaged/3: model.onnx has another hash" in caplog.text


def test_state_of_a_rejected_export_is_taken_before_it_is_loaded(
    exports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file copied during the load changes the state, so that the export is tried again."""
    add(exports, "mood/1", "damaged/3")
    before = state_of(exports / "damaged/3")

    def load_export(folder: Path, **_: object) -> LoadedModel:
        if folder.parent.name != "mood":
            (folder / "model.onnx").write_text("complete")
            raise BadExport("damaged/3: model.onnx is missing", "hash")
        return MODELS["mood"]

    monkeypatch.setattr(loading, "load_export", load_export)
    _, refused = load_models(settings(exports, skip_bad_exports=True), Metrics())
    assert refused[exports / "damaged/3"].state == before != state_of(exports / "damaged/3")


def test_any_error_in_loading_rejects_the_export(
    exports: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(exports, "mood/1", "broken/3")

    def load_export(folder: Path, **_: object) -> LoadedModel:
        if folder.parent.name != "mood":
            raise RuntimeError("a fault of ours")
        return MODELS["mood"]

    monkeypatch.setattr(loading, "load_export", load_export)
    with pytest.raises(BadExport, match="broken/3: loading failed: RuntimeError"):
        load_models(settings(exports), Metrics())
    caplog.clear()
    metrics = Metrics()
    models, refused = load_models(settings(exports, skip_bad_exports=True), metrics)
    assert (models, list(refused)) == ([MODELS["mood"]], [exports / "broken/3"])
    assert caplog.text.count("RuntimeError: a fault of ours") == 1, "expected one traceback"
    labels = {"model": "broken", "reason": "failed"}
    assert metrics.registry.get_sample_value("longdoc_exports_refused_total", labels) == 1


def test_slow_load_is_told(exports: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/1")

    def load_export(folder: Path, **_: object) -> LoadedModel:
        wait_until(lambda: f"{folder.parent.name}/1: loading takes longer than 0.01 s" in caplog.text)
        return MODELS["mood"]

    monkeypatch.setattr(loading, "load_export", load_export)
    monkeypatch.setattr(loading, "LOAD_LIMIT_S", 0.01)
    assert load_models(settings(exports), Metrics()) == ([MODELS["mood"]], {})


def test_unreadable_folder_of_a_model_is_rejected(
    exports: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(exports, "mood/1", "locked/3")

    def list_versions(folder: Path) -> list[Path]:
        if folder.name == "locked":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return versions_of(folder)

    monkeypatch.setattr(artifact.loading, "versions_of", list_versions)
    why = "locked: its folder cannot be listed: Permission denied"
    for required in (None, {"mood", "locked"}):
        with pytest.raises(BadExport, match=f"^{why}$"):
            load_models(settings(exports), Metrics(), required)
    caplog.clear()
    metrics = Metrics()
    for required in ({"mood"}, None):
        models, refused = load_models(settings(exports, skip_bad_exports=required is None), metrics, required)
        assert (models, refused) == ([MODELS["mood"]], {})
    assert caplog.messages == [why] * 2
    labels = {"model": "locked", "reason": "unreadable"}
    assert metrics.registry.get_sample_value("longdoc_exports_refused_total", labels) == 2


def test_at_least_one_export_must_be_valid(exports: Path) -> None:
    add(exports, "damaged/3")
    with pytest.raises(BadExport, match="damaged/3"):
        load_models(settings(exports, skip_bad_exports=True), Metrics())


def test_default_must_be_a_loaded_model(exports: Path) -> None:
    add(exports, "mood/1")
    with pytest.raises(BadExport, match="default_classifier 'other' is not among"):
        load_models(settings(exports, default_classifier="other"), Metrics())


SKIP = {"skip_bad_exports": True}


@pytest.mark.parametrize(("changes", "required"), [(SKIP, None), ({}, {"mood"}), (SKIP, {"mood"})])
def test_version_before_a_damaged_one_is_loaded(
    exports: Path, changes: dict[str, object], required: set[str] | None
) -> None:
    """On request, and in a restarted server: it had rejected the damaged version while it ran."""
    add(exports, "mood/2", "mood/3", "mood/50", "mood/51")
    models, refused = load_models(settings(exports, **changes), Metrics(), required)
    assert models == [MODELS["mood"]]
    assert list(refused) == [exports / "mood/51", exports / "mood/50"]


def test_first_start_does_not_fall_back_to_an_older_version(exports: Path) -> None:
    add(exports, "mood/2", "mood/50")
    with pytest.raises(BadExport, match="mood/50"):
        load_models(settings(exports), Metrics())


def test_restarted_server_needs_the_names_it_served_before(exports: Path) -> None:
    """A damaged new name had been rejected while the server ran and is skipped; a served name is required."""
    add(exports, "mood/1", "damaged/3")
    models, refused = load_models(settings(exports), Metrics(), {"mood"})
    assert (models, list(refused)) == ([MODELS["mood"]], [exports / "damaged/3"])
    with pytest.raises(BadExport, match="damaged/3"):
        load_models(settings(exports), Metrics(), {"mood", "damaged"})


FORECASTER = 7
"""This version has another task than the others, whatever its name."""


@pytest.fixture
def several(exports: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose exports are loaded by name; versions from DAMAGED on are damaged."""

    def load_export(folder: Path, **_: object) -> LoadedModel:
        name, version = folder.parent.name, int(folder.name)
        if version >= DAMAGED:
            raise BadExport(f"{name}/{version}: model.onnx has another hash", "hash")
        return (forecaster if version == FORECASTER else classifier)(name, version)

    monkeypatch.setattr(loading, "load_export", load_export)
    return exports


def loaded(exports: Path, policy: str, required: set[str] | None = None, **changes: object) -> list[str]:
    models, _ = load_models(settings(exports, version_policy=policy, **changes), Metrics(), required)
    return [f"{model.manifest.name}/{model.manifest.version}" for model in models]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest", ["mood/10", "other/3"]),
        ("all", ["mood/10", "mood/9", "mood/2", "other/3", "other/1"]),
        ("mood:2,9", ["mood/9", "mood/2", "other/3"]),
        ("mood:2,10;other:1", ["mood/10", "mood/2", "other/1"]),
    ],
)
def test_versions_of_the_policy_are_loaded(several: Path, policy: str, expected: list[str]) -> None:
    add(several, "mood/2", "mood/9", "mood/10", "other/1", "other/3")
    assert loaded(several, policy) == expected


def test_memory_of_several_versions_is_logged(several: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(several, "mood/2", "mood/10", "other/1")
    caplog.set_level(logging.INFO)
    loaded(several, "latest")
    assert caplog.messages == []
    loaded(several, "all")
    assert caplog.messages == ["mood: serving versions 10, 2, each with its own memory"]


@pytest.mark.parametrize("policy", ["all", "mood:1,50"])
def test_first_start_rejects_any_damaged_version_of_the_policy(several: Path, policy: str) -> None:
    add(several, "mood/1", "mood/2", "mood/50")
    with pytest.raises(BadExport, match="mood/50"):
        loaded(several, policy)


@pytest.mark.parametrize(("changes", "required"), [(SKIP, None), ({}, {"mood"})])
def test_valid_versions_are_loaded_despite_a_damaged_one(
    several: Path, changes: dict[str, object], required: set[str] | None
) -> None:
    add(several, "mood/1", "mood/2", "mood/50")
    assert loaded(several, "all", required, **changes) == ["mood/2", "mood/1"]
    assert loaded(several, "mood:1,50", required, **changes) == ["mood/1"]


def test_version_of_another_task_is_rejected_and_the_others_are_loaded(several: Path) -> None:
    add(several, f"mood/{FORECASTER}", "mood/9")
    assert loaded(several, "latest") == ["mood/9"]
    with pytest.raises(BadExport, match="mood/7 is for forecasting; mood is served for text-classification"):
        loaded(several, "all")
    assert loaded(several, "all", skip_bad_exports=True) == ["mood/9"]


def test_listed_version_must_exist(several: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(several, "mood/1", "mood/2")
    with pytest.raises(
        BadExport, match=f"^version_policy lists mood/3, which is not in {several}; versions there: 2, 1$"
    ):
        loaded(several, "mood:2,3")
    with pytest.raises(BadExport, match=r"lists none/1, .* versions there: none$"):
        loaded(several, "none:1")
    assert loaded(several, "mood:2,3;none:1", skip_bad_exports=True) == ["mood/2"]
    assert [message.split(",")[0] for message in caplog.messages] == [
        "version_policy lists mood/3",
        "version_policy lists none/1",
    ]
    assert loaded(several, "mood:2,3", {"mood"}) == ["mood/2"]


def test_only_the_selected_models_are_loaded(several: Path) -> None:
    add(several, "mood/1", "mood/2", "other/50", "third/3")
    assert loaded(several, "latest", models=("third", "mood")) == ["mood/2", "third/3"]
    assert loaded(several, "all", models=("mood",)) == ["mood/2", "mood/1"]


def test_selected_models_must_exist(several: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(several, "mood/1", "other/1")
    message = f"models lists none, which is not in {several}; models there: mood, other"
    with pytest.raises(BadExport, match=f"^{message}$"):
        loaded(several, "latest", models=("mood", "none"))
    assert loaded(several, "latest", models=("mood", "none"), skip_bad_exports=True) == ["mood/1"]
    assert caplog.messages == [message]
    with pytest.raises(BadExport, match=message):
        loaded(several, "latest", models=("none",), skip_bad_exports=True)


def test_at_least_one_listed_version_must_exist(several: Path) -> None:
    add(several, "mood/1")
    with pytest.raises(BadExport, match="lists mood/3"):
        loaded(several, "mood:3", skip_bad_exports=True)
