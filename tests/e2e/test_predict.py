"""`python -m service predict` gives the answers of the server without a server."""

import bz2
import csv
import gzip
import json
import lzma
import pickle
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow
import pytest
from pyarrow import parquet

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
    (tmp_path / "in.csv").write_text("id,body\n1,x\n")
    cases: list[tuple[list[str | Path], str]] = [
        ([EXPORT, tmp_path / "none.txt"], "none.txt"),
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
    assert m.step is not None
    paths, expected = [], []
    for seed in range(2):
        series = forecaster.series(m.context_length + 3, seed)
        series[0][-2] = None
        body = {"series": dict(zip(m.channels, series, strict=True)), "horizon": 3, "quantiles": [0.1, 0.9]}
        expected.append(client.post("/v1/forecast", json={**body, "model": m.name}).json())
        rows = [
            [datetime(2016, 7, 1) + number * m.step.time, *("" if value is None else value for value in step[::-1])]
            for number, step in enumerate(zip(*series, strict=True))
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


CONTAINERS = {
    "parquet.txt": b"PAR1" + bytes(40),
    "book.xlsx": b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml",
    "letter.docx": b"PK\x03\x04" + bytes(26) + b"word/document.xml",
    "page.pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3",
    "review.txt.gz": gzip.compress(b"A good film."),
    "review.txt.xz": lzma.compress(b"A good film."),
    "review.txt.bz2": bz2.compress(b"A good film."),
    "rows.db": b"SQLite format 3\x00" + bytes(80),
    "rows.pkl": pickle.dumps(["A good film."]),
    "photo.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "rows.json": json.dumps([{"text": "A good film."}, {"text": "A bad film."}]).encode(),
    "row.json": json.dumps({"text": "A good film."}).encode(),
    "lines.json": b'{"text": "A good film."}\n{"text": "A bad film."}\n',
    "rows.csv": b"PK\x03\x04" + bytes(26) + b"xl/workbook.xml",
    "rows.csv.gz": gzip.compress(bz2.compress(b"text\n")),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_container_is_no_document(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    path = tmp_path / name
    path.write_bytes(CONTAINERS[name])
    check_refusal(call(EXPORT, path), capsys, f"{path}: expected ")


def test_parquet_file_has_many_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rows = tmp_path / "a.parquet", tmp_path / "a.jsonl"
    texts = ["A good film.", "A dull film.", "", "A fine film."]
    parquet.write_table(pyarrow.table({"id": range(4), "text": texts}), path)
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    answers = []
    for given in (path, rows):
        assert call(EXPORT, given) == 1
        answers.append([{**line, "source": ""} for line in lines_of(capsys.readouterr().out)])
    assert answers[0] == answers[1]
    assert [line.get("label") for line in answers[0]][2] is None


def test_every_line_of_a_tsv_file_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('text\tid\n"Good" film\t1\n"Awful. Really\t2\nbad "acting" here"\t3\n')
    assert call(EXPORT, path) == 0
    assert [line["source"] for line in lines_of(capsys.readouterr().out)] == [f"{path}:{line}" for line in (2, 3, 4)]


@pytest.mark.parametrize(
    ("name", "content", "lines", "words"),
    [
        ("a.csv", 'text,id\nfine,1\n"he said \\"no\\"",2\nlast,3\n', (2, 3, 4), 'must be written twice ("")'),
        ("a.csv", 'text,id\nfine,1\n"never closed,2\nlast,3\n', (2, 3, 4), "a quote opens a cell and is never closed"),
        ("a.csv", "text,id\nfine,1\nno, quotes,2\nlast,3\n", (2, 3, 4), "expected 2 columns, not 3; cells with comm"),
        ("a.csv", b"text,id\nfine,1\ncaf\xe9,2\n\nlast,3\n", (2, 3, 5), "byte 4 of line 3 is not UTF-8"),
        ("a.csv", "text;id\nfine;1\n;2\nlast, one;3\n", (2, 3, 4), "the document is empty"),
        ("a.tsv", "text\tid\nfine\t1\ntwo\nlast\t3\n", (2, 3, 4), "expected 2 columns, not 1"),
        ("a.jsonl", '{"text": "fine"}\n{"body": "x"}\n{"text": "last"}\n', (1, 2, 3), "no column 'text'; columns: "),
        ("a.jsonl", '{"text": "fine"}\n{"text": 5}\n{"text": "last"}\n', (1, 2, 3), "text must be a string, not a num"),
        ("a.jsonl", '{"text": "fine"}\n\n{\n{"text": "last"}\n', (1, 3, 4), "not JSON: "),
    ],
)  # fmt: skip
def test_bad_row_gets_an_error_in_its_place(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str | bytes,
    lines: tuple[int, ...],
    words: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert call(EXPORT, path) == 1
    found = lines_of(capsys.readouterr().out)
    assert [line["source"] for line in found] == [f"{path}:{line}" for line in lines]
    assert ["error" in line for line in found] == [False, True, False]
    assert found[1]["error"]["code"] == "invalid_input"
    assert words in found[1]["error"]["detail"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": "x"}', "no column 'b'; columns: a; --text-column names another one"),
        ('{"a": "x", "b": 5}', "b must be a string, not a number"),
        ('{"a": "x", "b": "\\ud800"}', "b is not valid Unicode"),
        ('["x", "y"]', "expected an object, not a list"),
        ("{", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
    ],
)
def test_bad_lines_of_pairs_get_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    good = '{"a": "A parser", "b": "Parsing"}\n'
    (tmp_path / "in.jsonl").write_text(good + content + "\n" + good)
    assert call(MATCHER, "--jsonl", tmp_path / "in.jsonl") == 1
    first, bad, last = lines_of(capsys.readouterr().out)
    assert first["score"] == pytest.approx(last["score"])
    assert words in bad["error"]["detail"]
    assert bad["source"].endswith("in.jsonl:2")


def test_bad_tables_of_pairs_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_csv(tmp_path / "in.csv", ["a"], [["x"]])
    check_refusal(call(MATCHER, "--csv", table), capsys, "in.csv:1: no column 'b'; columns: a; --text-column names")
    write_csv(table, ["a", "b", "b"], [["x", "y", "z"]])
    check_refusal(call(MATCHER, "--csv", table), capsys, "in.csv:1: two columns 'b'")
    check_refusal(call(MATCHER, table.rename(tmp_path / "in.txt")), capsys, "pairs are read from files that end in")


def test_missing_values_of_series_have_many_words(
    forecaster: OfflineForecaster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = forecaster.manifest
    rows: list[list[object]] = [list(step) for step in zip(*forecaster.series(m.context_length), strict=True)]
    answers = []
    for words in (("", "", "", ""), ("NA", "NaN", "null", " n/a ")):
        for row, word in zip(rows, words, strict=False):
            row[1] = word
        table = write_csv(tmp_path / "in.csv", m.channels, rows)
        table.write_text(table.read_text().replace(",", ";") + "\n;;\n")
        assert call(FORECASTER, table, "--horizon", 2) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert json.loads(answers[0])["coverage"]["imputed"] == 4


@pytest.mark.parametrize(
    ("cell", "words"),
    [("abc", "'abc'"), ("1,5", "'1,5'"), ("x" * 1000, "x" * 40 + "'"), ("inf", "'inf'"), ("1e999", "'1e999'")],
)
def test_bad_cells_of_series_are_rejected(
    forecaster: OfflineForecaster, tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str, words: str
) -> None:
    m = forecaster.manifest
    rows: list[list[object]] = [list(step) for step in zip(*forecaster.series(m.context_length), strict=True)]
    rows[3][1] = cell
    table = write_csv(tmp_path / "in.csv", m.channels, rows)
    told = f"in.csv: cells that are not finite numbers (1): line 5 column {m.channels[1]} {words}"
    check_refusal(call(FORECASTER, table), capsys, told if len(cell) < 40 else words)


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
        (["--quantiles", "0.5", "0.5"], "--quantiles: at most 20 levels, each once"),
        (["--quantiles", "half"], "--quantiles"),
    ):
        check_refusal(call(FORECASTER, table, *arguments), capsys, words)
    check_refusal(call(FORECASTER, "--jsonl", table), capsys, "forecasts series")
    check_refusal(call(FORECASTER, tmp_path / "none.csv"), capsys, "none.csv does not exist")
    check_refusal(call(FORECASTER, tmp_path), capsys, f"{tmp_path} is a folder")
    ragged = write_csv(tmp_path / "ragged.csv", m.channels, [*rows[:2], rows[2][1:]])
    check_refusal(call(FORECASTER, ragged), capsys, f"ragged.csv:4: expected {len(rows[2])} columns, not ")
    missing = write_csv(tmp_path / "missing.csv", m.channels[1:], [row[1:] for row in rows])
    check_refusal(call(FORECASTER, missing), capsys, f"missing.csv:1: no column '{m.channels[0]}'")
    (tmp_path / "empty.csv").write_text("")
    check_refusal(call(FORECASTER, tmp_path / "empty.csv"), capsys, "empty.csv has no rows")
