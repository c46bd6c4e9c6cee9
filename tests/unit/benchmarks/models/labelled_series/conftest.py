"""Small sets."""

import gzip
from pathlib import Path

import pytest

from tests.support.waves import write_ts


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The sets BasicMotions and EOG, the latter in two files, and JapaneseVowels."""
    (tmp_path / "series").mkdir()
    for name in ("BasicMotions", "EOGHorizontalSignal", "EOGVerticalSignal"):
        for split, first in (("TRAIN", 0), ("TEST", 100)):
            plain = write_ts(tmp_path / "plain.ts", 6, first)
            (tmp_path / "series" / f"{name}_{split}.ts.gz").write_bytes(gzip.compress(plain.read_bytes()))
    return tmp_path
