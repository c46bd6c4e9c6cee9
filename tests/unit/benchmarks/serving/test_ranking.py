"""Time of a ranking: its requests and its report."""

import re

import numpy as np
import orjson
import pytest

from benchmarks.serving.ranking import LENGTHS, ranking, report
from tests.support.records import made_up


@pytest.mark.parametrize("length", LENGTHS)
def test_documents_of_a_request_are_new_and_of_full_length(length: int) -> None:
    generator = np.random.default_rng(0)
    first, second = (orjson.loads(ranking(generator, 3, length)) for _ in range(2))
    assert [len(text) for text in (first["query"], *first["documents"])] == [length] * 4
    assert len({*first["documents"], *second["documents"], first["query"], second["query"]}) == 8


def test_ratios_are_to_new_documents_of_the_last_version() -> None:
    rows = [
        ("aan 7", 4096, "new", [30.0, 33.0]),
        ("aan 7", 4096, "cached", [5.0, 5.5]),
        ("aan 7", 256, "new", [3.0]),
        ("aan 6", 4096, "new", [20.0, 22.0]),
        ("aan 6", 256, "new", [4.0]),
    ]
    found = [{"version": version, "bytes": length, "documents": kind, "ms": ms} for version, length, kind, ms in rows]
    text = re.sub(" +", " ", report(made_up({"milliseconds": found}, documents=100, rounds=2)))
    assert "| 4,096 | aan 7 | new | 31.5 (30.0 to 33.0) | 1.50 |" in text
    assert "| 4,096 | aan 7 | cached | 5.2 (5.0 to 5.5) | 0.25 |" in text
    assert "| 256 | aan 7 | new | 3.0 (3.0 to 3.0) | 0.75 |" in text
