"""`python -m service predict`: the server's answers without a server."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import EXPORTS, ROOT

TEXTS = ["A short one.", "long " * 1000, "Ünïcödé, with a comma and\na line break"]
EXPORT = str(EXPORTS / "imdb-s3")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service", "predict", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_files_jsonl_and_csv_give_the_servers_answers(client: httpx.Client, tmp_path: Path) -> None:
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


def test_more_rows_than_a_server_would_queue_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the queue of the server nor its variables limit offline scoring."""
    monkeypatch.setenv("LONGDOC_MAX_QUEUE_ROWS", "1")
    monkeypatch.setenv("LONGDOC_DEFAULT_CLASSIFIER", "another")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": "long " * 300}) + "\n" for _ in range(20)))
    done = run(EXPORT, "--jsonl", tmp_path / "in.jsonl")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 20


def test_bad_document_becomes_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": ""}\n{"text": "fine"}\n')
    done = run(EXPORT, "--jsonl", tmp_path / "in.jsonl")
    assert done.returncode == 1
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["error"]["code"] == "invalid_input"
    assert "label" in second


def test_bad_arguments_are_one_line_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "fine"}\n{"text": 5}\n')
    (tmp_path / "in.csv").write_text("id,body\n1,x\n")
    cases = [
        ([EXPORT, tmp_path / "none.txt"], "none.txt"),
        ([EXPORT, "--jsonl", tmp_path / "in.jsonl"], "in.jsonl:2"),
        ([EXPORT, "--csv", tmp_path / "in.csv"], "in.csv:1"),
        ([tmp_path, tmp_path / "in.csv"], "not an export"),
        ([EXPORT], "--jsonl"),
    ]
    for arguments, words in cases:
        done = run(*arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr.strip().splitlines()[-1]
        assert "Traceback" not in done.stderr
