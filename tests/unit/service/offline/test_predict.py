"""Files -> JSON lines, without a server."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import artifact
from artifact.backends.base import Array, Tensors
from artifact.loading import LoadedModel
from artifact.local import Model
from service.offline import predict as module
from service.offline.files import InputError
from service.offline.predict import predict
from tests.support.models import backend_of, classifier, forecaster, matcher

DEFAULTS = {
    "export": Path("exports/m"),
    "files": [],
    "jsonl": None,
    "csv": None,
    "on_overflow": "windows",
    "detail": False,
    "horizon": None,
    "quantiles": [],
}


class Command:
    """`predict` with a model in memory."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._capsys = capsys

    def run(self, model: LoadedModel, **options: object) -> tuple[int, list[dict[str, Any]]]:
        """Exit code and lines."""
        self._patch.setattr(artifact, "load", {DEFAULTS["export"]: Model(model)}.__getitem__)
        code = predict(argparse.Namespace(**{**DEFAULTS, **options}))
        written = self._capsys.readouterr().out.splitlines()
        return code, [json.loads(line, parse_float=lambda text: round(float(text), 6)) for line in written]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_file_is_a_document(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"++-")
    (tmp_path / "b").write_bytes(b"-\xff")
    code, (a, b) = command.run(classifier(), files=[tmp_path / "a", tmp_path / "b"])
    assert code == 0
    scores = [{"label": "positive", "score": 0.6}, {"label": "negative", "score": 0.4}]
    coverage = {"bytes_total": 3, "bytes_used": 3, "strategy": "whole", "windows": 1}
    assert a == {"source": str(tmp_path / "a"), **scores[0], "scores": scores, "coverage": coverage}
    assert (b["source"], b["label"]) == (str(tmp_path / "b"), "negative")


def test_options_are_those_of_the_command(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"+++" + 22 * b"." + b"---")
    _, (line,) = command.run(classifier(), files=[tmp_path / "a"], on_overflow="head", detail=True)
    assert (line["label"], line["coverage"]["strategy"]) == ("positive", "head")
    assert [(window["start"], window["end"]) for window in line["windows"]] == [(0, 16)]


def test_document_of_a_pair_has_the_name_of_its_field(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("a,b\n++,--\n++,+\n,++\n")
    code, lines = command.run(matcher(), csv=path)
    assert code == 1
    assert "score" in lines[0]
    assert [line["error"]["detail"].partition(":")[0] for line in lines[1:]] == ["b", "a"]


def test_input_on_which_the_backend_fails_is_an_error_in_its_place(command: Command, tmp_path: Path) -> None:
    for name, content in (("a", b"+"), ("b", b"!"), ("c", b"-")):
        (tmp_path / name).write_bytes(content)
    model = classifier()
    answer = backend_of(model).run

    def run(inputs: Tensors) -> dict[str, Array]:
        if (inputs["bytes"] == ord("!")).any():
            raise RuntimeError("broken")
        return answer(inputs)

    backend_of(model).run = run  # type: ignore[method-assign]  # one that fails
    code, lines = command.run(model, files=[tmp_path / name for name in "abc"])
    assert code == 1
    assert [line.get("label") for line in lines] == ["positive", None, "negative"]
    assert lines[1]["error"]["code"] == "inference_failed"


def test_bad_input_is_an_error_in_its_place(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answered together, three inputs fail because of one; then each is asked alone."""
    monkeypatch.setattr(module, "CHUNK", 3)
    path = tmp_path / "lines"
    path.write_text("".join(f'{{"text":"{text}"}}\n' for text in ("+", "", "-", "++")))
    model = classifier()
    code, lines = command.run(model, jsonl=path)
    assert code == 1
    assert [line["source"] for line in lines] == [f"{path}:{number}" for number in range(1, 5)]
    assert [line.get("label") for line in lines] == ["positive", None, "negative", "positive"]
    error = {"code": "invalid_input", "detail": "input 0: the document is empty; at least 1 byte is needed"}
    assert lines[1]["error"] == error
    assert sum(backend_of(model).batches) == 3


def test_pairs_come_from_lines_or_tables(command: Command, tmp_path: Path) -> None:
    lines, table = tmp_path / "lines", tmp_path / "table"
    lines.write_text('{"a":"++","b":"+-"}\n')
    table.write_text("b,a\n+-,++\n")
    for options in ({"jsonl": lines}, {"csv": table}):
        code, (line,) = command.run(matcher(), **options)
        assert (code, line["score"]) == (0, 0.75)
    with pytest.raises(InputError, match="twins scores pairs: give --jsonl or --csv with the fields a and b"):
        command.run(matcher(), files=[lines])


def test_series_come_from_tables(command: Command, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("heat,load\n" + "".join(f"{step + 4},{step}\n" for step in range(1, 5)))
    for options in ({"files": [table]}, {"csv": table}):
        code, (line,) = command.run(forecaster(), horizon=1, quantiles=[0.9], **options)
        assert (code, line["source"]) == (0, str(table))
        assert line["forecast"] == {"load": [4], "heat": [8]}
        assert line["quantiles"] == {"0.9": {"load": [8], "heat": [12]}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jsonl": Path("x")}, "naive forecasts series: give CSV files with its channels as columns"),
        ({"horizon": 4}, "--horizon: must be at most 3, the steps that naive forecasts"),
        ({"quantiles": [0.01]}, "--quantiles: level 0.01 is outside"),
    ],
)
def test_options_that_fit_no_series_are_refused(command: Command, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        command.run(forecaster(), **{"csv": Path("none"), **options})
