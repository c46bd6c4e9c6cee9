"""Which exports are loaded at the start, and which are rejected."""

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import artifact.loading
from artifact.errors import BadExport
from artifact.exports import versions_of
from artifact.loading import LoadedModel
from service.engine import loading
from service.engine.folder import state_of
from service.engine.loading import RefusedExport, load_models
from service.metrics import Metrics
from service.settings import Settings
from tests.support.models import classifier, forecaster
from tests.support.waiting import wait_until

DAMAGED = 50
"""Versions from this one on are damaged."""
BROKEN, FORECASTER = 8, 7
"""Loading this version raises an unexpected error; this one has another task than the others."""


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of exports."""

    def load_export(folder: Path, **options: object) -> LoadedModel:
        assert options == {"format": "torchscript", "device": "cpu", "precision": "float32"}
        name, version = folder.parent.name, int(folder.name)
        if version >= DAMAGED:
            (folder / "model.onnx").write_text("a file that is copied during the load")
            raise BadExport(f"{name}/{version}: model.onnx has another hash", "hash")
        if version == BROKEN:
            raise RuntimeError("a fault of ours")
        return (forecaster if version == FORECASTER else classifier)(name, version)

    monkeypatch.setattr(loading, "load_export", load_export)
    return tmp_path


def add(exports: Path, *places: str) -> None:
    for place in places:
        (exports / place).mkdir(parents=True)


def load(
    exports: Path, required: set[str] | None = None, **changes: Any
) -> tuple[list[str], dict[Path, RefusedExport], Metrics]:
    """Load the models; return them as `name/version`, the refused exports and the metrics."""
    metrics = Metrics()
    given = {"exports": exports, "backend": "torchscript", "device": "cpu", **changes}
    models, refused = load_models(Settings.model_validate(given), metrics, required)
    return [f"{model.manifest.name}/{model.manifest.version}" for model in models], refused, metrics


def counted(metrics: Metrics, model: str, reason: str) -> float | None:
    labels = {"model": model, "reason": reason}
    return metrics.registry.get_sample_value("longdoc_exports_refused_total", labels)


SKIP: dict[str, Any] = {"skip_bad_exports": True}
DAMAGE = r"^mood/50: model\.onnx has another hash$"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest", ["mood/10", "other/3"]),
        ("all", ["mood/10", "mood/9", "mood/2", "other/3", "other/1"]),
        ("mood:2,9", ["mood/9", "mood/2", "other/3"]),
        ("mood:2,10;other:1", ["mood/10", "mood/2", "other/1"]),
    ],
)
def test_versions_of_the_policy_are_loaded(exports: Path, policy: str, expected: list[str]) -> None:
    add(exports, "mood/2", "mood/9", "mood/10", "other/1", "other/3")
    assert load(exports, version_policy=policy)[:2] == (expected, {})


def test_memory_of_several_versions_is_logged(exports: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/2", "mood/10", "other/1")
    caplog.set_level(logging.INFO)
    load(exports)
    assert caplog.messages == []
    load(exports, version_policy="all")
    assert caplog.messages == ["mood: serving versions 10, 2, each with its own memory"]


@pytest.mark.parametrize("policy", ["latest", "all", "mood:1,50"])
def test_first_start_refuses_a_damaged_version(exports: Path, policy: str, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/1", "mood/2", "mood/50")
    with pytest.raises(BadExport, match=DAMAGE):
        load(exports, version_policy=policy)
    assert caplog.messages == [], "the command prints the error"


@pytest.mark.parametrize(("changes", "required"), [(SKIP, None), ({}, {"mood"}), (SKIP, {"mood"})])
def test_damaged_versions_are_skipped_on_request_and_at_a_restart(
    exports: Path, changes: dict[str, Any], required: set[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A restarted server had refused them while it ran."""
    add(exports, "mood/1", "mood/2", "mood/50", "mood/51", "damaged/53")
    found, refused, metrics = load(exports, required, **changes)
    assert found == ["mood/2"]
    assert list(refused) == [exports / place for place in ("damaged/53", "mood/51", "mood/50")]
    assert counted(metrics, "mood", "hash") == 2
    assert "refused: mood/50: model.onnx has another hash" in caplog.messages
    error = refused[exports / "mood/50"].error
    assert error.__traceback__ is None, "its frames would keep the loaded model alive"
    assert load(exports, required, version_policy="all", **changes)[0] == ["mood/2", "mood/1"]
    assert load(exports, required, version_policy="mood:1,50", **changes)[0] == ["mood/1"]


def test_state_of_a_refused_export_is_that_before_its_load(exports: Path) -> None:
    """A file copied during the load changes it, so that the export is tried again."""
    add(exports, "mood/1", "damaged/50")
    before = state_of(exports / "damaged/50")
    _, refused, _ = load(exports, **SKIP)
    assert refused[exports / "damaged/50"].state == before != state_of(exports / "damaged/50")


def test_unexpected_error_refuses_the_export(exports: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/1", f"broken/{BROKEN}")
    with pytest.raises(BadExport, match=r"^broken/8: loading failed: RuntimeError$"):
        load(exports)
    caplog.clear()
    found, refused, metrics = load(exports, **SKIP)
    assert (found, list(refused)) == (["mood/1"], [exports / f"broken/{BROKEN}"])
    assert caplog.text.count("RuntimeError: a fault of ours") == 1, "expected one traceback"
    assert counted(metrics, "broken", "failed") == 1


def test_version_of_another_task_is_refused(exports: Path) -> None:
    add(exports, f"mood/{FORECASTER}", "mood/9")
    assert load(exports)[0] == ["mood/9"]
    with pytest.raises(BadExport, match="mood/7 is for forecasting; mood is served for text-classification"):
        load(exports, version_policy="all")
    assert load(exports, version_policy="all", **SKIP)[0] == ["mood/9"]


def test_slow_load_is_told(exports: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/1")

    def load_export(folder: Path, **_: object) -> LoadedModel:
        wait_until(lambda: f"{folder.parent.name}/1: loading takes longer than 0.01 s" in caplog.text)
        return classifier()

    monkeypatch.setattr(loading, "load_export", load_export)
    monkeypatch.setattr(loading, "SLOW_LOAD_S", 0.01)
    assert load(exports)[0] == ["mood/1"]


def test_model_folder_that_cannot_be_listed_is_refused(
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
            load(exports, required)
    caplog.clear()
    for required in ({"mood"}, None):
        found, refused, metrics = load(exports, required, skip_bad_exports=required is None)
        assert (found, refused, counted(metrics, "locked", "unreadable")) == (["mood/1"], {}, 1)
    assert caplog.messages == [why] * 2


@pytest.mark.parametrize("changes", [SKIP, {**SKIP, "version_policy": "mood:3"}])
def test_at_least_one_version_must_be_valid(exports: Path, changes: dict[str, Any]) -> None:
    add(exports, "mood/50")
    with pytest.raises(BadExport, match=r"mood/50: model|lists mood/3"):
        load(exports, **changes)


def test_default_must_be_a_loaded_model(exports: Path) -> None:
    add(exports, "mood/1")
    with pytest.raises(BadExport, match="default_classifier 'other' is not among"):
        load(exports, default_classifier="other")


def test_restarted_server_needs_the_names_it_served_before(exports: Path) -> None:
    """A damaged new name had been refused while the server ran and is skipped; a served name is required."""
    add(exports, "mood/1", "damaged/50")
    assert load(exports, {"mood"})[0] == ["mood/1"]
    with pytest.raises(BadExport, match="damaged/50"):
        load(exports, {"mood", "damaged"})
    assert load(exports, {"mood", "removed"}, version_policy="removed:1")[0] == ["mood/1"]


def test_listed_version_must_exist(exports: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/1", "mood/2")
    message = f"version_policy lists mood/3, which is not in {exports}; versions there: 2, 1"
    with pytest.raises(BadExport, match=f"^{message}$"):
        load(exports, version_policy="mood:2,3")
    with pytest.raises(BadExport, match=r"lists none/1, .* versions there: none$"):
        load(exports, version_policy="none:1")
    assert load(exports, version_policy="mood:2,3;none:1", **SKIP)[0] == ["mood/2"]
    assert caplog.messages[0] == message
    assert caplog.messages[1].startswith("version_policy lists none/1")
    assert load(exports, {"mood"}, version_policy="mood:2,3")[0] == ["mood/2"]


def test_only_the_selected_models_are_loaded(exports: Path) -> None:
    add(exports, "mood/1", "mood/2", "other/50", "third/3")
    assert load(exports, models=("third", "mood"))[0] == ["mood/2", "third/3"]
    assert load(exports, models=("mood",), version_policy="all")[0] == ["mood/2", "mood/1"]


def test_selected_models_must_exist(exports: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(exports, "mood/1", "other/1")
    message = f"models lists none, which is not in {exports}; models there: mood, other"
    with pytest.raises(BadExport, match=f"^{message}$"):
        load(exports, models=("mood", "none"))
    assert load(exports, models=("mood", "none"), **SKIP)[0] == ["mood/1"]
    assert caplog.messages == [message]
    with pytest.raises(BadExport, match=message):
        load(exports, models=("none",), **SKIP)
