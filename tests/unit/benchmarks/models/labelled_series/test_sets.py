from pathlib import Path

import numpy as np

from benchmarks.models.labelled_series.sets import packed, read_split, sets_of, unpacked


def test_packed_answers_are_unpacked() -> None:
    correct = np.arange(21) % 3 == 0
    assert (unpacked(packed(correct), 21) == correct).all()


def test_sets_are_composed_of_their_parts(data_dir: Path) -> None:
    assert sets_of(data_dir) == ["BasicMotions", "EOG", "JapaneseVowels", "Pig"]
    part, composed = (read_split(name, "TEST", data_dir) for name in ("EOGVerticalSignal", "EOG"))
    assert composed.channels == ("0-c1", "0-c2", "1-c1", "1-c2")
    assert composed.recordings[3].label == part.recordings[3].label
    assert (composed.recordings[3].values[:, 2:] == part.recordings[3].values).all()
