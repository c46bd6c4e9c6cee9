"""Starting the server: flags, backends, `check`; failures print one line that names the cause and exit with 2."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from artifact.exports import read_manifest, version_folder
from artifact.loading import find_exports
from artifact.tasks.classification import ClassifierManifest
from service.__main__ import main
from service.settings import Settings
from tests.support.offline import OfflineForecaster, same_score
from tests.support.oversized import LIMITED, make_endless, make_sparse
from tests.support.paths import EXPORTS, ROOT
from tests.support.refusals import check_last_line, check_refusal, run
from tests.support.server import Server
from tests.support.versions import edit_manifest, flip_byte
from tests.support.waiting import wait_until

VERSION = version_folder(EXPORTS / "imdb-s3").name
PLACE = f"imdb-s3/{VERSION}"


DAMAGE: list[tuple[Callable[[Path], object], tuple[str, ...]]] = [
    (lambda folder: flip_byte(folder / "model.onnx"), (PLACE, "model.onnx", "sha256")),
    (lambda folder: flip_byte(folder / "model.ts"), (PLACE, "model.ts", "sha256")),
    (lambda folder: flip_byte(folder / "model.float16.onnx"), (PLACE, "model.float16.onnx", "sha256")),
    (lambda folder: flip_byte(folder / "golden.npz"), (PLACE, "golden.npz", "sha256")),
    (lambda folder: (folder / "model.onnx").unlink(), (PLACE, "model.onnx", "missing")),
    (lambda folder: (folder / "manifest.json").unlink(), (PLACE, "manifest.json", "missing")),
    (lambda folder: (folder / "manifest.json").write_text("{"), (PLACE, "manifest.json", "JSON")),
    (lambda folder: edit_manifest(folder, schema_version=3), (PLACE, "schema version 3")),
    (lambda folder: edit_manifest(folder, schema_version="new"), (PLACE, "schema_version")),
    (lambda folder: edit_manifest(folder, labels=["one"]), (PLACE, "labels")),
    (lambda folder: edit_manifest(folder, future=1), (PLACE, "future")),
    (lambda folder: edit_manifest(folder, name="other"), (PLACE, f"other/{VERSION}")),
    (lambda folder: edit_manifest(folder, tolerance=1e-30), (PLACE, "golden")),
    (lambda folder: edit_manifest(folder, tolerance=1e300), (PLACE, "tolerance")),
    (lambda folder: edit_manifest(folder, max_length=5000), (PLACE, "max_length 5000")),
    (lambda folder: edit_manifest(folder, window_overlap=4096), (PLACE, "window_overlap 4096")),
    (lambda folder: edit_manifest(folder, labels=["a", "b", "c"]), (PLACE, "3 labels")),
    (lambda folder: edit_manifest(folder, labels=["a", "a"]), (PLACE, "labels must differ")),
    (lambda folder: edit_manifest(folder, inputs=[]), (PLACE, "inputs")),
    (lambda folder: (folder / "manifest.json").write_text("[" * 100_000), (PLACE, "manifest.json")),
    (lambda folder: make_sparse(folder / "model.onnx", 20 * 2**30), (PLACE, "model.onnx has 21474836480 bytes")),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_damaged_export_is_rejected(
    exports_copy: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], object],
    words: tuple[str, ...],
) -> None:
    damage(exports_copy / "imdb-s3" / VERSION)
    assert main(["check", str(exports_copy)]) == 2
    check_last_line(capsys.readouterr().err, *words)


def test_server_and_check_print_the_same_error_for_a_damaged_export(exports_copy: Path) -> None:
    flip_byte(exports_copy / "imdb-s3" / VERSION / "model.onnx")
    for arguments in (("--port", "0", "--exports", str(exports_copy)), ("check", str(exports_copy))):
        check_refusal(run(*arguments), PLACE, "model.onnx", "sha256")


def test_missing_or_empty_exports_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, words in ((tmp_path / "none", "not a folder"), (tmp_path, "holds no export")):
        assert main(["check", str(folder)]) == 2
        check_last_line(capsys.readouterr().err, str(folder), words)
    for folder, words in ((tmp_path / "none", "not a folder"), (tmp_path, "holds no export")):
        done = run("--exports", str(folder))
        check_refusal(done, str(folder), words, "give --exports FOLDER", "python -m model export")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "variables", "words"),
    [
        (["--port", "high"], {}, ("port", "high")),
        ([], {"LONGDOC_MAX_QUEUE_ROWS": "-1"}, ("max_queue_rows", "-1")),
        ([], {"LONGDOC_BACKEND": "caffe"}, ("backend", "caffe")),
    ],
)
def test_bad_settings_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    variables: dict[str, str],
    words: tuple[str, ...],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(flags) == 2
    check_last_line(capsys.readouterr().err, *words)


def test_unknown_flag_is_rejected() -> None:
    check_refusal(run("--colour", "red"), "--colour")


def test_port_in_use_is_rejected(server: Server) -> None:
    check_refusal(run("--port", server.url.rsplit(":", 1)[1]), "port", "in use")


def test_missing_device_is_rejected() -> None:
    first = find_exports(EXPORTS)[0]
    check_refusal(run("--port", "0", "--device", "cuda"), f"{first.parent.name}/{first.name}", "cuda")


def test_valid_exports_are_served_when_damaged_ones_are_skipped(
    exports_copy: Path, start: Callable[..., Server]
) -> None:
    shutil.copytree(exports_copy / "imdb-s3", exports_copy / "broken")
    server = start("--exports", str(exports_copy), "--skip-bad-exports", "--reload-s", "0")
    assert [m["name"] for m in server.get("/v1/models").json()["models"]] == ["imdb-s3"]
    refused = 'longdoc_exports_refused_total{model="broken",reason="manifest"} 1.0'
    assert refused in server.get("/metrics").text
    assert f"broken/{VERSION}" in server.text()


def test_model_that_never_ends_is_refused_at_the_start(exports_copy: Path, start: Callable[..., Server]) -> None:
    shutil.copytree(exports_copy / "imdb-s3", exports_copy / "endless")
    folder = exports_copy / "endless" / VERSION
    edit_manifest(folder, name="endless")
    make_endless(folder)
    program = ("-c", LIMITED)
    why = f"endless/{VERSION}: golden.npz: computing the golden inputs takes more than 0.2 s"
    for arguments in (("--port", "0", "--exports", str(exports_copy)), ("check", str(exports_copy))):
        check_refusal(run(*arguments, program=program), why)
    server = start("--exports", str(exports_copy), "--skip-bad-exports", "--drain-delay-s", "0", program=program)
    assert [model["name"] for model in server.get("/v1/models").json()["models"]] == ["imdb-s3"]
    assert server.metric("longdoc_exports_refused_total", model="endless", reason="timeout") == 1
    assert f"refused: {why}" in server.text()


def test_highest_version_is_served(exports_copy: Path, start: Callable[..., Server]) -> None:
    for version in (99, 100):
        shutil.copytree(exports_copy / "imdb-s3" / VERSION, exports_copy / "imdb-s3" / str(version))
        edit_manifest(exports_copy / "imdb-s3" / str(version), version=version)
    (exports_copy / "imdb-s3" / ".partial-x").mkdir()
    server = start("--exports", str(exports_copy))
    assert server.post("/v1/classify", json={"inputs": "x"}).json()["version"] == 100


def test_several_models_need_a_name_or_a_default(exports_copy: Path, start: Callable[..., Server]) -> None:
    shutil.copytree(exports_copy / "imdb-s3", exports_copy / "second")
    edit_manifest(exports_copy / "second" / VERSION, name="second")
    server = start("--exports", str(exports_copy))
    unnamed = server.post("/v1/classify", json={"inputs": "x"})
    assert unnamed.status_code == 422
    assert "imdb-s3, second" in unnamed.json()["detail"]
    named = server.post("/v1/classify?model=second", content=b"x", headers={"content-type": "text/plain"})
    assert named.json()["model"] == "second"
    other = start("--exports", str(exports_copy), "--default-classifier", "second")
    assert other.post("/v1/classify", json={"inputs": "x"}).json()["model"] == "second"
    check_refusal(run("--exports", str(exports_copy), "--default-classifier", "third"), "third")


def test_torchscript_backend_gives_the_same_answers(
    server: Server, start: Callable[..., Server], forecaster: OfflineForecaster
) -> None:
    other = start("--backend", "torchscript", "--default-forecaster", "ettm2")

    def both(route: str, body: object) -> tuple[Any, Any]:
        ours, theirs = (s.post(route, json=body).json() for s in (server, other))
        return ours, theirs

    for text in ("short", "long " * 1000):
        ours, theirs = both("/v1/classify", {"inputs": text})
        for a, b in zip(ours["results"][0]["scores"], theirs["results"][0]["scores"], strict=True):
            assert a["score"] == pytest.approx(b["score"], abs=1e-5)
    ours, theirs = both("/v1/score", {"pairs": [["one text", "and another " * 1000]]})
    assert same_score(ours["results"][0]["score"], theirs["results"][0]["score"])
    ours, theirs = both("/v1/forecast", {"series": forecaster.series(forecaster.manifest.context_length)})
    assert forecaster.agree(ours["forecast"], theirs["forecast"])
    assert "Warning" not in other.text()


def test_float16_is_served_where_an_export_has_it(server: Server, start: Callable[..., Server]) -> None:
    """The scores differ from those in float32, by less than the export's tolerance."""
    other = start("--models", "imdb-s3,scotus,aan", "--precision", "float16")
    labels = {"task": "text-classification", "format": "onnx", "device": "cpu"}
    for name, precision in (("imdb-s3", "float16"), ("scotus", "float32")):
        manifest = read_manifest(version_folder(EXPORTS / name)).in_precision("float16")
        assert isinstance(manifest, ClassifierManifest)
        assert manifest.precision == precision
        version, sha256 = str(manifest.version), manifest.files_of("onnx")[manifest.max_length].sha256
        label = {**labels, "model": name, "version": version, "precision": precision, "sha256": sha256}
        assert other.metric("longdoc_model_info", **label) == 1
    text = "It was slow at first, and then it was wonderful. " * 20
    for name, are_equal in (("imdb-s3", False), ("scotus", True)):
        ours, theirs = (s.post("/v1/classify", json={"inputs": text, "model": name}).json() for s in (server, other))
        scores = [{one["label"]: one["score"] for one in found["results"][0]["scores"]} for found in (ours, theirs)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-2)
        assert (scores[0] == scores[1]) == are_equal
    ours, theirs = (s.post("/v1/score", json={"pairs": [[text, "A film. " * 99]]}).json() for s in (server, other))
    assert ours["results"][0]["score"] == pytest.approx(theirs["results"][0]["score"], abs=1e-2)
    refused = run("--backend", "torchscript", "--precision", "float16")
    assert refused.stderr == (
        "error: setting precision = 'float16': torchscript computes in float32 only; set backend to onnx\n"
    )


def test_check_accepts_the_exports_of_the_repository() -> None:
    done = run("check", str(EXPORTS))
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == [folder.parent.name for folder in find_exports(EXPORTS)]
    assert run("check", str(EXPORTS / "imdb-s3")).stdout.split()[0] == "imdb-s3"


def test_help_describes_every_setting() -> None:
    text = run("--help").stdout
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert "".join(str(field.description).split()) in "".join(text.split()), name
    for command in ("check", "predict"):
        assert command in text


def test_service_imports_neither_torch_nor_the_training_code() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'model', 'onnx', 'onnxscript', 'matplotlib'): sys.modules[name] = None\n"
        "from service.__main__ import main\n"
        "sys.exit(main(['check', 'exports']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_misspelt_default_is_told_until_it_is_right(exports_copy: Path, start: Callable[..., Server]) -> None:
    defaults = exports_copy / "defaults.json"
    defaults.write_text('{"text-classification": "imdb-s4"}')
    server = start("--exports", str(exports_copy), "--reload-s", "0.1", "--drain-delay-s", "0")
    problem = f"{defaults}: text-classification: there is no model 'imdb-s4' for this task; there are: imdb-s3"
    assert server.text().count(problem) == 1
    check_refusal(run("check", str(exports_copy)), problem)
    defaults.write_text('{"text-classification": "imdb-s3"}')
    wait_until(lambda: "requests without a model go to imdb-s3 (defaults.json)" in server.text())
    assert server.text().count(problem) == 1


def test_misspelt_variable_is_told(tmp_path: Path) -> None:
    variables = {"LONGDOC_API_KEY": "secret", "LONGDOC_DATA": "elsewhere", "LONGDOC_RELOAD_S": "0"}
    with Server(tmp_path / "log", "--drain-delay-s", "0", variables=variables) as server:
        warnings = [line for line in server.text().splitlines() if "WARNING" in line and "is not a setting" in line]
        assert len(warnings) == 1
        assert "LONGDOC_API_KEY is not a setting" in warnings[0]
        assert "secret" not in server.text()


EARLIER = """
from prometheus_client import CollectorRegistry, Counter

names = ("route", "method", "code")
counter = Counter("longdoc_http_requests", "HTTP responses.", names, registry=CollectorRegistry())
counter.labels("/v1/classify", "POST", 200).inc(7)
"""
"""A program that leaves its counts in the folder that it inherits."""


@pytest.mark.parametrize(
    ("variable", "content", "workers"),  # each two of their values together
    [
        ("PROMETHEUS_MULTIPROC_DIR", "missing", "1"),
        ("PROMETHEUS_MULTIPROC_DIR", "earlier counts", "2"),
        ("prometheus_multiproc_dir", "missing", "2"),
        ("prometheus_multiproc_dir", "earlier counts", "1"),
    ],
)
def test_inherited_folder_of_metrics_is_ignored(
    start: Callable[..., Server], tmp_path: Path, variable: str, content: str, workers: str
) -> None:
    folder = tmp_path / "metrics"
    if content == "earlier counts":
        folder.mkdir()
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
        subprocess.run([sys.executable, "-c", EARLIER], env=environment, check=True)
        assert list(folder.iterdir())
    before = {path: path.read_bytes() for path in folder.glob("*")}
    flags = ("--drain-delay-s", "0", "--models", "imdb-s3", "--workers", workers)
    server = start(*flags, variables={variable: str(folder)})
    assert server.post("/v1/classify", json={"inputs": "Dull."}).status_code == 200
    assert wait_until(lambda: server.metric("longdoc_http_requests_total", route="/v1/classify")) == 1
    assert server.stop() == 0
    assert {path: path.read_bytes() for path in folder.glob("*")} == before
    assert server.text().count(f"{variable} is ignored") == 1


def test_predict_ignores_an_inherited_folder_of_metrics(tmp_path: Path) -> None:
    done = run("predict", str(EXPORTS / "imdb-s3"), "docs/review.txt", PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "none"))
    assert (done.returncode, done.stderr) == (0, "")
