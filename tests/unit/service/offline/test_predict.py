"""Predictions for files as JSON lines, without a server."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import artifact
from artifact.arrays import Array
from artifact.backends.base import Tensors
from artifact.errors import InputError
from artifact.loading import LoadedModel
from artifact.local import Model
from artifact.series import PLAIN, Layout
from service.offline import compute
from service.offline.compute import PredictOptions
from service.offline.predict import PredictFiles, predict
from tests.support import recordings as reference
from tests.support.models import backend_of, classifier, forecaster, matcher, series_classifier

EXPORT = Path("exports/m")


class Command:
    """The `predict` command with a model in memory."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._capsys = capsys
        self.errors = ""
        """Standard error of the last run."""

    def run(
        self,
        model: LoadedModel,
        *,
        files: Sequence[Path] = (),
        jsonl: Path | None = None,
        csv: Path | None = None,
        layout: Layout = PLAIN,
        **options: Any,
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit code and the lines."""
        self._patch.setattr(artifact, "load", {EXPORT: Model(model)}.__getitem__)
        code = predict(EXPORT, PredictFiles(files, jsonl, csv, layout), PredictOptions(**options))
        written, self.errors = self._capsys.readouterr()
        return code, [json.loads(line, parse_float=lambda text: round(float(text), 6)) for line in written.splitlines()]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_file_is_a_document(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"++-")
    (tmp_path / "b").write_bytes(b"-\xff")
    code, (a, b) = command.run(classifier(), files=[tmp_path / "a", tmp_path / "b"])
    assert code == 0
    scores = [{"label": "positive", "score": 0.6}, {"label": "negative", "score": 0.4}]
    coverage = {"bytes_total": 3, "bytes_used": 3, "strategy": "whole", "windows": 1, "known": None}
    assert a == {"source": str(tmp_path / "a"), **scores[0], "scores": scores, "coverage": coverage}
    assert (b["source"], b["label"]) == (str(tmp_path / "b"), "negative")


def test_options_of_the_command_apply(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"+++" + 22 * b"." + b"---")
    _, (line,) = command.run(classifier(), files=[tmp_path / "a"], on_overflow="head", detail=True)
    assert (line["label"], line["coverage"]["strategy"]) == ("positive", "head")
    assert [(window["start"], window["end"]) for window in line["windows"]] == [(0, 16)]


def test_error_in_a_pair_names_the_field(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("a,b\n++,--\n++,\n,++\n")
    code, lines = command.run(matcher(), csv=path)
    assert code == 1
    assert "score" in lines[0]
    assert [line["error"]["detail"].partition(":")[0] for line in lines[1:]] == ["b", "a"]


def test_backend_failure_gives_an_error_line_in_its_position(command: Command, tmp_path: Path) -> None:
    for name, content in (("a", b"+"), ("b", b"!"), ("c", b"-")):
        (tmp_path / name).write_bytes(content)
    model = classifier()
    answer = backend_of(model).run

    def run(inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        if (inputs["bytes"] == ord("!")).any():
            raise RuntimeError("broken")
        return answer(inputs, limit_s)

    backend_of(model).run = run  # type: ignore[method-assign]
    code, lines = command.run(model, files=[tmp_path / name for name in "abc"])
    assert code == 1
    assert [line.get("label") for line in lines] == ["positive", None, "negative"]
    assert lines[1]["error"]["code"] == "inference_failed"


def test_bad_input_gives_an_error_line_in_its_position(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad input fails its batch of three; then each input is computed on its own."""
    monkeypatch.setattr(compute, "CHUNK", 3)
    path = tmp_path / "lines"
    path.write_text("".join(f'{{"text":"{text}"}}\n' for text in ("+", "", "-", "++")))
    model = classifier()
    code, lines = command.run(model, jsonl=path)
    assert code == 1
    assert [line["source"] for line in lines] == [f"{path}:{number}" for number in range(1, 5)]
    assert [line.get("label") for line in lines] == ["positive", None, "negative", "positive"]
    error = {"code": "invalid_input", "detail": "text: the document is empty; at least 1 byte is needed"}
    assert lines[1]["error"] == error
    assert sum(backend_of(model).batches) == 3


def test_pairs_are_read_from_lines_or_tables(command: Command, tmp_path: Path) -> None:
    lines, table = tmp_path / "lines", tmp_path / "table"
    lines.write_text('{"a":"++","b":"+-"}\n')
    table.write_text("b,a\n+-,++\n")
    cases: tuple[dict[str, Any], ...] = ({"jsonl": lines}, {"csv": table})
    for options in cases:
        code, (line,) = command.run(matcher(), **options)
        assert (code, line["score"]) == (0, 0.75)
    with pytest.raises(InputError, match=f"{lines}: pairs are read from files that end in"):
        command.run(matcher(), files=[lines])


def test_columns_may_have_other_names(command: Command, tmp_path: Path) -> None:
    lines, table = tmp_path / "lines", tmp_path / "table"
    lines.write_text('{"body":"++","more":"+-"}\n')
    table.write_text("more,body\n+-,++\n,++\n")
    cases: tuple[dict[str, Any], ...] = ({"jsonl": lines}, {"csv": table})
    for options in cases:
        assert command.run(classifier(), text_column=("body",), **options)[1][0]["label"] == "positive"
        _, (line, *bad) = command.run(matcher(), text_column=("body", "more"), **options)
        assert line["score"] == 0.75
    assert bad[0]["error"]["detail"].startswith("more: ")
    for model, given, needed in ((classifier(), ("a", "b"), 1), (matcher(), ("a",), 2)):
        with pytest.raises(
            InputError, match=rf"^--text-column: \w+ needs {needed}, not {len(given)}: {' '.join(given)}$"
        ):
            command.run(model, csv=table, text_column=given)
    with pytest.raises(InputError, match="forecasts series"):
        command.run(forecaster(), csv=table, text_column=("body",))


def test_files_of_rows_need_no_option(command: Command, tmp_path: Path) -> None:
    lines, table = tmp_path / "in.jsonl", tmp_path / "table.CSV"
    lines.write_text('{"text":"+","a":"++","b":"+-"}\n{"text":"-","a":"++","b":"+-"}\n')
    table.write_text("text\n++\n")
    code, found = command.run(classifier(), files=[lines, table])
    assert code == 0
    assert [(line["source"], line["label"]) for line in found] == [
        (f"{lines}:1", "positive"),
        (f"{lines}:2", "negative"),
        (f"{table}:2", "positive"),
    ]
    _, found = command.run(matcher(), files=[lines])
    assert [line["score"] for line in found] == [0.75, 0.75]


def test_documents_are_decoded_for_models_of_words(command: Command, tmp_path: Path) -> None:
    for name, content in (("a", "++-".encode("utf-16")), ("b", "+é".encode("latin-1")), ("c", b"\xef\xbb\xbf-")):
        (tmp_path / name).write_bytes(content)
    files = [tmp_path / name for name in "abc"]
    _, lines = command.run(classifier(), files=files)
    assert [line["coverage"]["bytes_total"] for line in lines] == [3, 2, 1]
    told = f"1 texts are not UTF-8, the first is {tmp_path}/b; --encoding names their encoding, such as cp1252\n"
    assert command.errors == told
    _, lines = command.run(classifier(), files=files, encoding="latin_1")
    assert [line["coverage"]["bytes_total"] for line in lines] == [3, 3, 1]
    assert command.errors == ""
    _, lines = command.run(classifier(kind="bytes"), files=files)
    assert [line["coverage"]["bytes_total"] for line in lines] == [8, 2, 4]
    assert command.errors == ""


def test_tables_are_decoded(command: Command, tmp_path: Path) -> None:
    for name, encoding in (("a.csv", "utf-16"), ("b.csv", "latin-1"), ("c.tsv", "utf-8")):
        (tmp_path / name).write_text("text\n+é\n", encoding=encoding)
    code, lines = command.run(classifier(), files=[tmp_path / name for name in ("a.csv", "b.csv", "c.tsv")])
    assert code == 1
    assert lines[1]["error"]["detail"].startswith("byte 2 of line 2 is not UTF-8; --encoding names the encoding")
    code, lines = command.run(classifier(), files=[tmp_path / "a.csv", tmp_path / "b.csv"], encoding="latin_1")
    assert (code, [line["label"] for line in lines]) == (0, ["positive", "positive"])


def test_series_are_read_from_tables(command: Command, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("heat,load\n" + "".join(f"{step + 4},{step}\n" for step in range(1, 5)))
    cases: tuple[dict[str, Any], ...] = ({"files": [table]}, {"csv": table})
    for options in cases:
        code, (line,) = command.run(forecaster(), horizon=1, quantiles=(0.9,), **options)
        assert (code, line["source"]) == (0, str(table))
        assert line["forecast"] == {"load": [4], "heat": [8]}
        assert line["quantiles"] == {"0.9": {"load": [8], "heat": [12]}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jsonl": Path("x")}, "naive forecasts series: give CSV files with its channels as columns"),
        ({"horizon": 4}, "--horizon: must be at most 3, the steps that naive forecasts"),
        ({"quantiles": (0.01,)}, "--quantiles: level 0.01 is outside"),
    ],
)
def test_options_that_do_not_apply_to_series_are_rejected(
    command: Command, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        command.run(forecaster(), **{"csv": Path("none"), **options})


def hours(count: int = 12, first: int = 1) -> list[str]:
    """Lines of hours whose load counts from `first`; heat is three higher."""
    start = datetime(2024, 1, 1)
    return [f"{start + timedelta(hours=i)},{first + i + 3},{first + i}" for i in range(count)]


def table_of(folder: Path, rows: Sequence[str], header: str = "time,heat,load") -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_series_that_is_newest_first_is_refused(command: Command, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        command.run(forecaster(), files=[table_of(tmp_path, hours()[::-1])])
    assert "time stamps before that of an earlier line (11): line 3 '2024-01-01 10:00:00'" in str(caught.value)
    assert str(caught.value).endswith("sort the rows, oldest first")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [*rows, rows[-1]], "repeated time stamps (1): line 14 '2024-01-01 11:00:00' as in line 13"),
        (lambda rows: [*rows[:-1], "soon,1,2"], "time stamps that cannot be read (1): line 13 'soon'"),
        (lambda rows: [*rows, "2024-01-01 12:30:00,1,2"], "not a whole number of 1h after the first (1): line 14"),
        (lambda rows: [*rows[:2], rows[-1]], "9 missing time stamps at a step of 1h, gaps (1): 9 after line 3"),
    ],
)
def test_time_stamps_of_series_are_checked(
    command: Command, tmp_path: Path, change: Callable[[list[str]], list[str]], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        command.run(forecaster(), files=[table_of(tmp_path, change(hours()))])
    assert words in str(caught.value)


def test_gaps_of_series_are_filled_and_told(command: Command, tmp_path: Path) -> None:
    rows = hours()
    del rows[9:11]
    rows[3] = rows[3].replace(":00:00", ":00:02")
    table = table_of(tmp_path, rows)
    code, (line,) = command.run(forecaster(), files=[table], horizon=1)
    assert (code, line["forecast"]) == (0, {"load": [12], "heat": [15]})
    assert line["coverage"]["imputed"] == 4
    assert command.errors.splitlines() == [
        f"{table}: 1 time stamp was rounded to the step of 1h, by up to 0:00:02; the first in line 5 "
        "'2024-01-01 03:00:02'",
        f"{table}: filled 4 values, 16.7% of all; 2 rows were missing",
    ]


def test_irregular_model_reads_rows_as_equally_spaced(command: Command, tmp_path: Path) -> None:
    rows = hours()
    del rows[5:11]
    code, (line,) = command.run(forecaster(frequency="irregular"), files=[table_of(tmp_path, rows)], horizon=1)
    assert (code, line["coverage"]["imputed"]) == (0, 0)


def test_tables_are_read_as_in_training(command: Command, tmp_path: Path) -> None:
    long = [
        f"{row.split(',')[0]},{name},{i + k}"
        for k, name in enumerate(("load", "heat", "rain"))
        for i, row in enumerate(hours())
    ]
    table = table_of(tmp_path, long, "when,unit,value")
    model = forecaster(layout={"id_column": "unit", "target_column": "value"})
    code, (line,) = command.run(model, files=[table], horizon=1)
    assert (code, line["forecast"]) == (0, {"load": [11], "heat": [12]})
    with pytest.raises(InputError, match="no column 'load'; columns: when, unit, value"):
        command.run(forecaster(), files=[table])
    code, (line,) = command.run(
        forecaster(), files=[table], layout=Layout(id_column="unit", target_column="value"), horizon=1
    )
    assert (code, line["forecast"]) == (0, {"load": [11], "heat": [12]})


def test_time_column_is_that_of_training_or_the_option(command: Command, tmp_path: Path) -> None:
    rows = [f"{row},{stamp.split(',')[0]}" for row, stamp in zip(hours(), hours()[::-1], strict=True)]
    table = table_of(tmp_path, rows, "start,heat,load,end")
    assert command.run(forecaster(), files=[table])[0] == 0
    for model, layout in (
        (forecaster(layout={"time_column": "end"}), PLAIN),
        (forecaster(), Layout(time_column="end")),
    ):
        with pytest.raises(InputError, match="before that of an earlier line"):
            command.run(model, files=[table], layout=layout)
    days = [f"{i + 1:02}/02/2024,{i},{i}" for i in range(12)]
    table = table_of(tmp_path, days)
    with pytest.raises(InputError, match="--day-first reads dates that begin with the day"):
        command.run(forecaster(frequency="1d"), files=[table])
    assert command.run(forecaster(frequency="1d"), files=[table], layout=Layout(day_first=True))[0] == 0
    assert command.run(forecaster(frequency="1d", layout={"day_first": True}), files=[table])[0] == 0


def test_options_of_series_are_refused_by_other_models(command: Command, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reads no tables of series: --time-column"):
        command.run(classifier(), files=[table_of(tmp_path, ["x"], "text")], layout=Layout(time_column="t"))


LONG_TABLE = """id,time,x,y,label
a,0,10,10,wave
a,0.1,,12,wave
a,0.2,12,14,wave
a,0.3,13,9,wave
b,0,8,9,
b,0.1,8,9,
"""
RECORDING: dict[str, list[float | None]] = {"x": [10, None, 12, 13], "y": [10, 12, 14, 9]}


def test_recordings_of_a_table_are_classified(command: Command, tmp_path: Path) -> None:
    (path := tmp_path / "gestures.csv").write_text(LONG_TABLE)
    for given in ({"files": [path]}, {"csv": path}):
        code, (wave, rest) = command.run(series_classifier(), **given)
        assert code == 0
        assert (wave["recording"], wave["label"]) == ("a", "wave")
        assert wave["score"] == pytest.approx(reference.score(RECORDING["x"], RECORDING["y"]), abs=1e-6)
        assert (wave["coverage"]["imputed"], wave["coverage"]["resampled"]) == (1, False)
        assert (rest["recording"], rest["label"]) == ("b", "rest")
        assert [line["source"].partition(":")[0] for line in (wave, rest)] == [str(path)] * 2
    assert f"{path}: 2 recordings of 2 to 4 steps" in command.errors


def test_columns_of_training_are_known(command: Command, tmp_path: Path) -> None:
    """They are not needed: a file with the usual names is read, too."""
    model = series_classifier(rate=None, id_column="trial", time_column="when", day_first=True)
    (tmp_path / "usual.csv").write_text(LONG_TABLE)
    rows = "".join(f"{name},0{day}/01/2024,{x},1\n" for name in "ab" for day, x in ((2, 1), (1, 5), (3, 2)))
    (tmp_path / "own.csv").write_text("trial,when,x,y\n" + rows)
    for name in ("usual", "own"):
        code, found = command.run(model, files=[tmp_path / f"{name}.csv"])
        assert (code, [line["recording"] for line in found]) == (0, ["a", "b"])
    assert "own.csv: rate: 1.15741e-05 steps per second, from the times" in command.errors


def test_recordings_at_another_rate_are_resampled(command: Command, tmp_path: Path) -> None:
    (path := tmp_path / "slow.csv").write_text("time,x,y\n" + "".join(f"{at},{at % 3},{at % 4}\n" for at in range(20)))
    code, (line,) = command.run(series_classifier(), files=[path])
    x, y = ([float(at % size) for at in range(20)] for size in (3, 4))
    expected = reference.score([*x], [*y], steps=200)
    scores = {score["label"]: score["score"] for score in line["scores"]}
    assert (code, line["coverage"]["resampled"]) == (0, True)
    assert scores["wave"] == pytest.approx(expected, abs=1e-6)
    _, (line,) = command.run(series_classifier(rate=None), files=[path])
    assert not line["coverage"]["resampled"]


@pytest.mark.parametrize(("step", "is_resampled"), [(0.0995, False), (0.1005, False), (0.098, True), (0.102, True)])
def test_recordings_at_about_the_rate_are_read_as_they_are(
    step: float, is_resampled: bool, command: Command, tmp_path: Path
) -> None:
    rows = "".join(f"{at * step:.6f},{at % 3},{at % 4}\n" for at in range(200))
    (path := tmp_path / "near.csv").write_text(f"time,x,y\n{rows}")
    _, (line,) = command.run(series_classifier(), files=[path])
    assert line["coverage"]["resampled"] == is_resampled


def test_folder_holds_a_recording_in_each_table(command: Command, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("x,y,other\n10,10,5\n,12,5\n12,14,5\n13,9,5\n")
    code, found = command.run(series_classifier(), files=[tmp_path], top=1)
    assert code == 0
    assert [line["recording"] for line in found] == ["one.csv", "two.csv"]
    assert {line["score"] for line in found} == {round(reference.score(RECORDING["x"], RECORDING["y"]), 6)}
    assert {len(line["scores"]) for line in found} == {1}
    assert "left out 'other'" in command.errors


def test_recordings_of_lines_are_classified(command: Command, tmp_path: Path) -> None:
    columns = list(RECORDING.values())
    rows = [{"series": RECORDING}, {"series": columns}, {"series": {"x": [1]}}, {"series": [RECORDING]}, {"text": "+"}]
    (path := tmp_path / "lines").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, (named, positional, missing, several, other) = command.run(series_classifier(), jsonl=path, rate=20)
    assert code == 1
    assert named["score"] == positional["score"]
    assert named["score"] == pytest.approx(reference.score(RECORDING["x"], RECORDING["y"], steps=2), abs=1e-6)
    assert missing["error"]["detail"] == "series: the model needs the channels x, y; y is missing"
    assert several["error"]["detail"] == "series: must be one recording, not a list of several"
    assert "no column 'series'" in other["error"]["detail"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_column": ("a",)}, "gestures classifies series: --text-column is for --jsonl"),
        ({"layout": Layout(target_column="x")}, "gestures classifies series: --target-column is for forecasts"),
        ({"layout": Layout(frequency="1h")}, "gestures classifies series: --frequency is for forecasts"),
        ({"rate": -1.0}, "--rate must be a positive number of steps per second, not -1"),
        ({"rate": 5.0}, "--rate 5 is for recordings without times"),
    ],
)
def test_options_that_recordings_do_not_have_are_refused(
    command: Command, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (path := tmp_path / "gestures.csv").write_text(LONG_TABLE)
    with pytest.raises(InputError, match=message):
        command.run(series_classifier(), files=[path], **options)


def test_rate_needs_a_model_that_has_one(command: Command, tmp_path: Path) -> None:
    (path := tmp_path / "lines").write_text(json.dumps({"series": RECORDING, "text": "+"}))
    for model, name in ((series_classifier(rate=None), "gestures"), (classifier(), "mood")):
        with pytest.raises(InputError, match=f"--rate: {name} has no rate; leave it out"):
            command.run(model, jsonl=path, rate=5.0)
