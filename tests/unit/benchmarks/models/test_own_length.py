"""A run on a few made-up arguments, and the report of made-up results."""

import json
import lzma
from pathlib import Path

import pytest

from benchmarks.models import own_length
from model.data.lines import TRAIN_VALIDATION_TEST
from model.data.long_documents import SCOTUS
from tests.support.commands import run_command

WORDS = {0: "police arrest", 5: "state powers"}
"""What arguments of a label are about."""


def write_arguments(folder: Path) -> None:
    """Write arguments of two labels; one of them is the most frequent in no term."""
    rows = [
        {
            "split": split,
            "term": 10 * place + number % 3,
            "label": (label := 5 * (number % 4 == 0)),
            "text": f"Argument {number} of {split} about {WORDS[label]}. ",
        }
        for place, split in enumerate(TRAIN_VALIDATION_TEST)
        for number in range(24)
    ]
    (folder / SCOTUS.file).write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def test_documents_of_a_set_are_written_learned_and_classified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arguments(tmp_path)
    monkeypatch.setattr(own_length, "run_command", run_command)
    found = own_length.measure_length("scotus", 4096, tmp_path / "runs", tmp_path)
    assert (found["documents"], found["bytes"], found["correct"]) == ("scotus", 4096, "1" * 24)
    assert min(found["seconds"], found["peak_mib"]) > 0
    rows = [json.loads(line) for line in (tmp_path / "runs/scotus-4096/documents.jsonl").read_text().splitlines()]
    assert len(rows) == 72
    assert rows[0] == {
        "text": "Argument 0 of train about state powers. ",
        "label": "Federalism",
        "split": "train",
        "group": "0",
    }
