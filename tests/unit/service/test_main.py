"""`python -m service`: which command runs with which settings, and how errors are printed."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifact.errors import BadExport, InputError
from artifact.loading import LoadedModel
from service import __main__ as module
from service import log as logs
from service.__main__ import main
from service.offline.compute import PredictOptions
from service.offline.predict import PredictFiles
from service.settings import Settings
from tests.support.models import classifier


class Commands:
    """Records the calls that replace running a server or predicting files."""

    def __init__(self) -> None:
        self.called: list[tuple[str, Any]] = []
        self.error: BaseException | None = None

    def stand_in(self, name: str, code: int) -> Callable[..., int]:
        def command(*given: Any) -> int:
            self.called.append((name, given if len(given) > 1 else given[0]))
            if self.error is not None:
                raise self.error
            return code

        return command


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands()
    for code, name in enumerate(("serve", "supervise", "predict"), 10):
        monkeypatch.setattr(module, name, made.stand_in(name, code))
    monkeypatch.setattr(logs, "configure", made.stand_in("configure", 0))
    monkeypatch.setattr(module, "require_one_runtime", lambda: made.called.append(("runtime", None)))
    monkeypatch.setattr(module, "find_exports", lambda exports: made.called.append(("find", exports)))
    return made


def settings_of(commands: Commands, name: str) -> Settings:
    (found,) = [given for called, given in commands.called if called == name]
    assert isinstance(found, Settings)
    return found


def test_flags_are_settings(commands: Commands) -> None:
    assert main(["--port", "1", "--log-format", "json", "--skip-bad-exports", "--exports", "a/b"]) == 10
    found = settings_of(commands, "serve")
    assert (found.port, found.skip_bad_exports, found.exports) == (1, True, Path("a/b"))
    assert [called for called in commands.called if called[0] != "serve"] == [
        ("runtime", None),
        ("find", Path("a/b")),
        ("configure", "json"),
    ]


def test_flags_override_variables_and_variables_override_defaults(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several workers start the supervisor; TorchScript needs no ONNX Runtime."""
    monkeypatch.setenv("LONGDOC_PORT", "2")
    monkeypatch.setenv("LONGDOC_MAX_DOCUMENTS", "3")
    assert main(["--port", "1", "--workers", "2", "--backend", "torchscript"]) == 11
    found = settings_of(commands, "supervise")
    assert (found.port, found.max_documents, found.workers) == (1, 3, 2)
    assert ("runtime", None) not in commands.called


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "65536"], "error: setting port = '65536': "),
        (["--workers", "0"], "error: setting workers = '0': "),
        (["--api-keys", "secret,,b"], "error: setting api_keys: "),
        (["--api-keys", "secret,schlüssel"], "error: setting api_keys: a key may hold visible ASCII"),
        (["--api-keys", "secret\x7f"], "error: setting api_keys: "),
        *(
            ([f"--{name.replace('_', '-')}", number], f"error: setting {name} = '{number}': ")
            for name in ("deadline_s", "drain_delay_s", "drain_timeout_s", "reload_s")
            for number in ("inf", "nan")
        ),
    ],
)
def test_error_about_a_setting_is_one_line(
    commands: Commands, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message)
    assert "secret" not in line
    assert commands.called == []


def test_unknown_variable_is_reported(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("LONGDOC_PROT", "LONGDOC_DATA", "LONGDOC_HOST"):
        monkeypatch.setenv(name, "x")
    with caplog.at_level(logging.WARNING):
        main([])
    assert caplog.messages == ["LONGDOC_PROT is not a setting; docs/operate/settings.md lists all settings"]
    assert settings_of(commands, "serve").host == "x"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BadExport("mood/1: no", "hash"), 2, "error: mood/1: no"),
        (InputError("a:1: no"), 2, "error: a:1: no"),
        (OSError("cannot listen"), 2, "error: cannot listen"),
        (OSError(2, "No such file"), 2, "error: No such file"),
        (OSError(2, "No such file", "a/b.txt"), 2, "error: a/b.txt: No such file"),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_error_is_one_line(
    commands: Commands, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str | None
) -> None:
    commands.error = error
    assert main(["predict", "exports/m", "a"]) == code
    assert capsys.readouterr().err.splitlines() == ([] if line is None else [line])


def test_options_of_predict_are_read(commands: Commands) -> None:
    assert main(["predict", "exports/m", "a", "b", "--on-overflow", "head", "--quantiles", "0.1", "0.9"]) == 12
    files, options = PredictFiles([Path("a"), Path("b")]), PredictOptions(on_overflow="head", quantiles=(0.1, 0.9))
    assert commands.called == [("predict", (Path("exports/m"), files, options))]


@pytest.mark.parametrize(
    "arguments",
    [
        ["exports/m"],
        ["exports/m", "a", "--jsonl", "b"],
        ["exports/m", "--jsonl", "a", "--csv", "b"],
        ["exports/m", "a", "--horizon", "0"],
        ["exports/m", "a", "--horizon", "²"],
    ],
)
def test_wrong_options_of_predict_are_rejected(
    commands: Commands, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["predict", *arguments])
    assert caught.value.code == 2
    assert "usage: python -m service predict" in capsys.readouterr().err
    assert commands.called == []


def test_options_of_batch_are_read(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "service.scale.batch", SimpleNamespace(batch=commands.stand_in("batch", 1)))
    files = ["--input", "a.csv", "s3://b/*.parquet", "--output", "out"]
    assert (
        main(["batch", "exports/m", *files, "--task", "rank", "--format", "csv", "--workers", "3", "--top", "2"]) == 1
    )
    assert main(["batch", "exports/m", *files]) == 1
    inputs = ["a.csv", "s3://b/*.parquet"]
    assert commands.called == [
        ("batch", (Path("exports/m"), inputs, "out", "rank", "csv", 3, PredictOptions(top=2))),
        ("batch", (Path("exports/m"), inputs, "out", None, "jsonl", None, PredictOptions())),
    ]


def test_batch_names_the_extra_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["batch", "exports/m", "--input", "a.csv", "--output", "out"]) == 2
    assert "pip install '.[ray]'" in capsys.readouterr().err


def test_check_loads_every_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = list[Path]()

    def load_export(folder: Path, **options: object) -> LoadedModel:
        assert options == {"format": "onnx", "device": "cpu", "precision": "float16"}
        loaded.append(folder)
        return classifier(folder.parent.name, int(folder.name))

    monkeypatch.setattr(module, "load_export", load_export)
    for place in ("a/1", "a/2", "b/7"):
        (tmp_path / place).mkdir(parents=True)
    options = ["--backend", "onnx", "--device", "cpu", "--precision", "float16"]
    assert main(["check", str(tmp_path), *options]) == 0
    assert loaded == [tmp_path / "a/2", tmp_path / "a/1", tmp_path / "b/7"]
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()] == [
        ["a", "2", "text-classification,", "float32"],
        ["a", "1", "text-classification,", "float32"],
        ["b", "7", "text-classification,", "float32"],
    ]
    assert main(["check", str(tmp_path / "a"), *options]) == 0
    assert loaded[3:] == [tmp_path / "a/2", tmp_path / "a/1"]
    (tmp_path / "a/1/manifest.json").touch()
    assert main(["check", str(tmp_path / "a/1"), *options]) == 0
    assert loaded[5:] == [tmp_path / "a/1"]


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two versions of a classifier, the first one damaged."""

    def load_export(folder: Path, **_: object) -> LoadedModel:
        if (folder / "damaged").exists():
            raise BadExport(f"{folder.parent.name}/{folder.name}: model.onnx has another hash", "hash")
        return classifier(folder.parent.name, int(folder.name))

    monkeypatch.setattr(module, "load_export", load_export)
    for place in ("a/1/damaged", "a/2"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path


def test_check_fails_on_a_lower_version_that_is_damaged(exports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (exports, exports / "a"):
        assert main(["check", str(folder)]) == 2
        assert capsys.readouterr().err == "error: a/1: model.onnx has another hash\n"


def test_check_fails_on_a_default_that_is_no_model(exports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (exports / "a/1/damaged").rmdir()
    defaults = exports / "defaults.json"
    for name in ("a", "a@1"):
        defaults.write_text(json.dumps({"text-classification": name}))
        assert main(["check", str(exports)]) == 0
    capsys.readouterr()
    defaults.write_text(json.dumps({"text-classification": "b", "text-matching": "a"}))
    assert main(["check", str(exports / "a")]) == 0, "the file is not of this model"
    assert main(["check", str(exports)]) == 2
    said = capsys.readouterr().err
    assert f"{defaults}: text-classification: there is no model 'b'" in said
    assert "text-matching: there is no model 'a'" in said
    defaults.write_text("{")
    assert main(["check", str(exports)]) == 2
    assert str(defaults) in capsys.readouterr().err
