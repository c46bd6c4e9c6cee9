"""The benchmark of many short documents: what is sent, and the check that every line has an answer."""

import itertools
from pathlib import Path

import pytest

from benchmarks.lib.record import Record
from benchmarks.models import bulk


def test_documents_are_the_beginnings_of_long_ones_in_turns() -> None:
    texts = [b"a" * bulk.SIZE + b"rest", b"short", b"b" * (bulk.SIZE - 1) + b"\xff"]
    first, second, third = bulk.parts_of(texts, 3)
    assert (first, third) == ("a" * bulk.SIZE,) * 2
    assert second == "b" * (bulk.SIZE - 1) + "\ufffd"
    assert sorted(itertools.chain(*bulk.shares([first, second, third]))) == sorted([first, second, third])


def test_line_without_an_answer_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    path.write_bytes(b"{}\n{}\n")
    bulk.check(b'{"label": "a"}\n{"label": "b"}\n', path)
    for answers in (b'{"label": "a"}\n', b'{"label": "a"}\n{"error": "b"}\n'):
        with pytest.raises(RuntimeError, match="2 lines have"):
            bulk.check(answers, path)


def test_report_compares_with_one_request_each() -> None:
    rates = {bulk.SINGLE: [100.0, 110.0, 90.0], bulk.NDJSON: [400.0, 420.0, 390.0]}
    report = bulk.report(Record("bulk", "p", "c", "d", "r", {}, {}, {"rounds": 3}, {"rates": rates}))
    assert [line.split("|")[-2].strip() for line in report.splitlines() if line.startswith(("| one", "| NDJSON"))] == [
        "1.00",
        "4.00",
    ]
