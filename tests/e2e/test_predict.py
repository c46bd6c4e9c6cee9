"""`python -m service predict` gives the answers of the server without a server."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.__main__ import main
from tests.support.offline import OfflineForecaster, same_score
from tests.support.paths import EXPORTS, ROOT
from tests.support.waiting import PATIENCE_S

TEXTS = ["A short one.", "long " * 1000, "Ünïcödé, with a comma and\na line break"]
EXPORT = str(EXPORTS / "imdb-s3")
MATCHER, FORECASTER = EXPORTS / "aan", EXPORTS / "ettm2"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service", "predict", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_text_files_jsonl_and_csv_get_the_servers_answers(client: httpx.Client, tmp_path: Path) -> None:
    expected = client.post("/v1/classify", json={"inputs": TEXTS}).json()["results"]
    files = [tmp_path / f"{i}.txt" for i in range(len(TEXTS))]
    for path, text in zip(files, TEXTS, strict=True):
        path.write_bytes(text.encode())
    (tmp_path / "all.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    with (tmp_path / "all.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "text"], *([i, text] for i, text in enumerate(TEXTS))])
    for arguments in (files, ["--jsonl", tmp_path / "all.jsonl"], ["--csv", tmp_path / "all.csv"]):
        done = run(EXPORT, *arguments)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for line, answer in zip(lines, expected, strict=True):
            source = line.pop("source")
            assert str(tmp_path) in source
            assert {k: line[k] for k in ("label", "coverage")} == {k: answer[k] for k in ("label", "coverage")}
            assert abs(line["score"] - answer["score"]) < 1e-5


def test_more_rows_than_the_queue_limit_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the queue limit nor the environment variables of the server apply to offline scoring."""
    monkeypatch.setenv("LONGDOC_MAX_QUEUE_ROWS", "1")
    monkeypatch.setenv("LONGDOC_DEFAULT_CLASSIFIER", "another")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": "long " * 300}) + "\n" for _ in range(20)))
    done = run(EXPORT, "--jsonl", tmp_path / "in.jsonl")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 20


def test_reader_that_closes_the_output_ends_predict_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "many.jsonl").write_text('{"text": "a film"}\n' * 3000)  # more than a pipe holds
    command = [sys.executable, "-m", "service", "predict", EXPORT, str(tmp_path / "many.jsonl")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["label"] in ("positive", "negative")
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) == 1


def test_bad_document_gets_an_error_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": ""}\n{"text": "fine"}\n')
    done = run(EXPORT, "--jsonl", tmp_path / "in.jsonl")
    assert done.returncode == 1
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["error"]["code"] == "invalid_input"
    assert "label" in second


def test_bad_arguments_print_one_line_and_exit_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "fine"}\n{"text": 5}\n')
    (tmp_path / "in.csv").write_text("id,body\n1,x\n")
    cases: list[tuple[list[str | Path], str]] = [
        ([EXPORT, tmp_path / "none.txt"], "none.txt"),
        ([EXPORT, "--jsonl", tmp_path / "in.jsonl"], "in.jsonl:2"),
        ([EXPORT, "--csv", tmp_path / "in.csv"], "in.csv:1"),
        ([tmp_path, tmp_path / "in.csv"], "not an export"),
        ([EXPORT], "--jsonl"),
    ]
    for arguments, words in cases:
        assert call(*arguments) == 2
        written = capsys.readouterr().err
        assert words in written.strip().splitlines()[-1]
        assert "Traceback" not in written


def call(*arguments: object) -> int:
    """Run `predict` inside the test process, which is faster than starting a new one."""
    try:
        return main(["predict", *map(str, arguments)])
    except SystemExit as error:
        return int(str(error.code))


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def test_pairs_get_the_servers_scores(client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(TEXTS[0], TEXTS[2]), ("long " * 2000, TEXTS[0]), (TEXTS[1], TEXTS[1])]
    expected = client.post("/v1/score", json={"pairs": pairs, "on_overflow": "head"}).json()["results"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"a": a, "b": b, "id": 1}) + "\n\n" for a, b in pairs))
    table = write_csv(tmp_path / "in.csv", ["b", "id", "a"], [(b, 1, a) for a, b in pairs])
    for arguments in (["--jsonl", tmp_path / "in.jsonl"], ["--csv", table]):
        assert call(MATCHER, *arguments, "--on-overflow", "head") == 0
        found = lines_of(capsys.readouterr().out)
        for line, result in zip(found, expected, strict=True):
            assert line["source"].startswith(f"{arguments[1]}:")
            assert line["coverage"] == result["coverage"]
            assert same_score(line["score"], result["score"])


def test_series_get_the_servers_forecasts(
    client: httpx.Client, forecaster: OfflineForecaster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several files with columns in another order, an extra column, an empty cell and a byte order mark."""
    m = forecaster.manifest
    paths, expected = [], []
    for seed in range(2):
        series = forecaster.series(m.context_length + 3, seed)
        series[0][-2] = None
        body = {"series": dict(zip(m.channels, series, strict=True)), "horizon": 3, "quantiles": [0.1, 0.9]}
        expected.append(client.post("/v1/forecast", json={**body, "model": m.name}).json())
        rows = [
            ["2016-07-01", *("" if value is None else value for value in step[::-1])]
            for step in zip(*series, strict=True)
        ]
        path = write_csv(tmp_path / f"{seed}.csv", ["\ufefftime", *m.channels[::-1]], rows)
        paths.append(path)
    for arguments in ([*paths], ["--csv", paths[0]]):
        assert call(FORECASTER, *arguments, "--horizon", 3, "--quantiles", 0.1, 0.9) == 0
        found = lines_of(capsys.readouterr().out)
        for line, answer in zip(found, expected[: len(found)], strict=True):
            assert line["source"] in map(str, paths)
            for name in ("coverage", "quantiles_reliable"):
                assert line[name] == answer[name]
            pairs = [(line["forecast"], answer["forecast"])]
            pairs += [(line["quantiles"][level], answer["quantiles"][level]) for level in ("0.1", "0.9")]
            for ours, theirs in pairs:
                assert forecaster.agree([ours[c] for c in m.channels], [theirs[c] for c in m.channels])


def test_bad_pair_or_series_gets_an_error_line(
    forecaster: OfflineForecaster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text('{"a": "", "b": "x"}\n{"a": "one", "b": "two"}\n')
    assert call(MATCHER, "--jsonl", tmp_path / "in.jsonl") == 1
    bad, good = lines_of(capsys.readouterr().out)
    assert bad["error"]["code"] == "invalid_input"
    assert 0 < good["score"] < 1
    m = forecaster.manifest
    good_table = write_csv(tmp_path / "good.csv", m.channels, zip(*forecaster.series(m.context_length), strict=True))
    short_table = write_csv(tmp_path / "short.csv", m.channels, zip(*forecaster.series(1), strict=True))
    assert call(FORECASTER, short_table, good_table) == 1
    bad, good = lines_of(capsys.readouterr().out)
    assert str(m.min_observations) in bad["error"]["detail"]
    assert set(good["forecast"]) == set(m.channels)


def check_refusal(code: int, capsys: pytest.CaptureFixture[str], words: str) -> None:
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert words in printed.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": "x"}', "in.jsonl:2: expected a JSON object with a string `a` and `b`"),
        ('{"a": "x", "b": 5}', "in.jsonl:2"),
        ('{"a": "x", "b": "\\ud800"}', "in.jsonl:2"),
        ('["x", "y"]', "in.jsonl:2"),
        ("{", "in.jsonl:2"),
        ("[" * 100_000, "in.jsonl:2"),
    ],
)
def test_bad_lines_of_pairs_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    (tmp_path / "in.jsonl").write_text('{"a": "x", "b": "y"}\n' + content + "\n")
    check_refusal(call(MATCHER, "--jsonl", tmp_path / "in.jsonl"), capsys, words)


def test_bad_tables_of_pairs_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[tuple[Sequence[str], Sequence[str], str]] = [
        (["a"], ["x"], "in.csv:1: no column `b`"),
        (["a", "b", "b"], ["x", "y", "z"], "in.csv:1: two columns `b`"),
        (["a", "b"], ["x", "y", "z"], "in.csv:2: 3 cells under 2 columns"),
        (["a", "b"], ["x"], "in.csv:2: 1 cells under 2 columns"),
    ]
    for header, row, words in cases:
        table = write_csv(tmp_path / "in.csv", header, [row])
        check_refusal(call(MATCHER, "--csv", table), capsys, words)
    (tmp_path / "in.csv").write_bytes(b"a,b\n\xff,y\n")
    check_refusal(call(MATCHER, "--csv", tmp_path / "in.csv"), capsys, "in.csv:2: the text is not valid UTF-8")
    check_refusal(call(MATCHER, table.rename(tmp_path / "in.txt")), capsys, "pairs are read from files that end in")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("abc", "not a number: 'abc'"),
        ("1,5", "not a number"),
        ("x" * 1000, "x" * 40 + "'"),
        ("NaN", "not a finite number: 'NaN'; leave the cell of a missing value empty"),
        ("1e999", "not a finite number"),
    ],
)
def test_bad_cells_of_series_are_rejected(
    forecaster: OfflineForecaster, tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str, words: str
) -> None:
    m = forecaster.manifest
    rows: list[list[object]] = [list(step) for step in zip(*forecaster.series(m.context_length), strict=True)]
    rows[3][1] = cell
    table = write_csv(tmp_path / "in.csv", m.channels, rows)
    assert call(FORECASTER, table) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    last = printed.err.strip().splitlines()[-1]
    assert f"in.csv:5: column {m.channels[1]}: " in last
    assert words in last


def test_bad_tables_and_options_of_series_are_rejected(
    forecaster: OfflineForecaster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = forecaster.manifest
    rows = list(zip(*forecaster.series(m.context_length), strict=True))
    table = write_csv(tmp_path / "in.csv", m.channels, rows)
    for arguments, words in (
        (["--horizon", "0"], "--horizon: not a positive integer: '0'"),
        (["--horizon", "-3"], "--horizon: not a positive integer: '-3'"),
        (["--horizon", "two"], "--horizon"),
        (["--horizon", m.horizon + 1], f"--horizon: must be at most {m.horizon}"),
        (["--quantiles", "0"], "--quantiles: level 0.0 is outside"),
        (["--quantiles", "1.5"], "--quantiles: level 1.5 is outside"),
        (["--quantiles", "nan"], "--quantiles: level nan is outside"),
        (["--quantiles", "0.5", "0.5"], "--quantiles: at most 20 different levels"),
        (["--quantiles", "half"], "--quantiles"),
    ):
        check_refusal(call(FORECASTER, table, *arguments), capsys, words)
    check_refusal(call(FORECASTER, "--jsonl", table), capsys, "forecasts series")
    check_refusal(call(FORECASTER, tmp_path / "none.csv"), capsys, "none.csv: No such file or directory")
    check_refusal(call(FORECASTER, tmp_path), capsys, f"{tmp_path}: Is a directory")
    ragged = write_csv(tmp_path / "ragged.csv", m.channels, [*rows[:2], rows[2][1:]])
    check_refusal(call(FORECASTER, ragged), capsys, f"ragged.csv:4: {len(rows[2]) - 1} cells under {len(rows[2])}")
    missing = write_csv(tmp_path / "missing.csv", m.channels[1:], [row[1:] for row in rows])
    check_refusal(call(FORECASTER, missing), capsys, f"missing.csv:1: no column `{m.channels[0]}`")
    (tmp_path / "empty.csv").write_text("")
    check_refusal(call(FORECASTER, tmp_path / "empty.csv"), capsys, "empty.csv:1: no column")
