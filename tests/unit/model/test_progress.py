"""Progress in a log file, and in a terminal."""

import re

import pytest
from tqdm import tqdm

from model import progress as module
from model.progress import progress


def test_lines_tell_how_much_is_done_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    assert list(progress(range(4), desc="folds", unit="fold", leave=False)) == [0, 1, 2, 3]
    with progress(total=2, initial=1, desc="epoch 1/1") as bar:
        bar.update()
        bar.set_postfix(loss="0.5", refresh=False)
    found = capsys.readouterr()
    lines = [line for line in found.out.splitlines() if ": 0%" not in line]
    assert [line.partition(" after ")[0] for line in lines] == [
        *(f"folds: {share}%" for share in (25, 50, 75, 100)),
        "epoch 1/1: 50%",
        "epoch 1/1: 100%",
    ]
    assert all(re.fullmatch(r".*% after 00:00, about (00:00|\?) left", line) for line in lines)
    assert found.err == ""


def test_short_loops_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(range(3), unit="batch")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar = progress(range(3), desc="folds")
    assert type(bar) is tqdm
    assert list(bar) == [0, 1, 2]
    found = capsys.readouterr()
    assert "folds: 100%|" in found.err
    assert found.out == ""
