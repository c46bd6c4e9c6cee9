"""Labelled recordings and their splits."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from artifact.tables.recordings import LabelledRecording, RecordingFile
from model.data.recordings import RecordingSplits, split_recordings
from model.errors import UserError


def row(value: float, label: str = "a", group: str = "", split: str = "", steps: int = 3) -> LabelledRecording:
    values = np.full((steps, 2), float(value))
    values[:, 1] += 0.5
    return LabelledRecording(f"a.csv:{value:g}", f"r{value:g}", values, label, group, split)


def file(
    rows: Sequence[LabelledRecording],
    path: str = "a.csv",
    channels: tuple[str, ...] = ("x", "y"),
    rate: float | None = None,
    notes: tuple[str, ...] = (),
) -> RecordingFile:
    return RecordingFile(Path(path), channels, rate, tuple(rows), notes)


def many(labels: str = "ab", count: int = 20, groups: int = 0) -> list[LabelledRecording]:
    return [
        row(100 * index + number, label, f"g{(100 * index + number) % groups}" if groups else "")
        for index, label in enumerate(labels)
        for number in range(count)
    ]


def split(
    rows: Sequence[LabelledRecording], test: Sequence[LabelledRecording] | None = None, seed: int = 0
) -> RecordingSplits:
    return split_recordings(file(rows), test=None if test is None else file(test, "test.csv"), seed=seed)


def names(rows: Sequence[LabelledRecording]) -> list[str]:
    return [one.name for one in rows]


def error(rows: Sequence[LabelledRecording], test: Sequence[LabelledRecording] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        split(rows, test)
    return str(caught.value)


def test_a_fifth_of_each_label_is_held_out() -> None:
    rows = many(count=20) + many("cd", count=5)[5:]
    found = split(rows)
    assert found.labels == ["a", "b", "d"]
    assert Counter(one.label for one in found.test) == {"a": 4, "b": 4, "d": 1}
    assert sorted(names(found.train) + names(found.test)) == sorted(names(rows))
    assert (found.channels, found.rate) == (("x", "y"), None)
    assert (len(found.train), len(found.test)) == (36, 9)


def test_held_out_recordings_depend_on_values_and_seed_alone() -> None:
    rows = many()
    assert set(names(split(rows).test)) == set(names(split(rows[::-1]).test))
    assert set(names(split(rows, seed=1).test)) != set(names(split(rows).test))


@pytest.mark.parametrize(("groups", "held_out"), [(10, 2), (5, 1), (3, 1), (2, 1)])
def test_groups_are_held_out_whole(groups: int, held_out: int) -> None:
    rows = many(count=2 * groups, groups=groups)  # each group has two recordings of each label
    found = split(rows)
    parts = [{one.group for one in part} for part in (found.train, found.test)]
    assert len(parts[1]) == held_out
    assert parts[0].isdisjoint(parts[1])
    assert Counter(one.label for one in found.test) == {"a": 2 * held_out, "b": 2 * held_out}
    if groups > 3:
        assert {one.group for seed in range(20) for one in split(rows, seed=seed).test} == {one.group for one in rows}


def test_groups_of_one_label_are_held_out_by_their_sizes() -> None:
    sizes = {"p": ("a", 6), "q": ("a", 2), "r": ("a", 2), "s": ("b", 5), "t": ("b", 4), "u": ("c", 3)}
    numbers = iter(range(100))
    rows = [row(next(numbers), label, name) for name, (label, size) in sizes.items() for _ in range(size)]
    rows += [row(next(numbers), label, "v") for label in "bd"]  # the only group of d
    rows += [row(next(numbers), "d", "v")]
    found = split(rows)
    assert {one.group for one in found.test} in ({"q", "t"}, {"r", "t"})
    assert "labels without a recording in the test split: c, d" in found.notes


def test_copies_are_in_one_split() -> None:
    rows = many()
    found = split([*rows, *rows, row(3, "b")])
    assert {one.digest for one in found.train}.isdisjoint(one.digest for one in found.test)
    assert any(note.endswith("training recordings have the values of another") for note in found.notes)


def test_copies_with_another_label_are_noted() -> None:
    test = [row(900, "a")]
    found = split([row(1), row(2), row(3, "b"), row(4, "b"), row(1, "b")], test)
    assert found.notes == (
        "1 training recordings have the values of another",
        "1 of them with another label, the first at a.csv:1",
        "labels without a recording in the test split: b",
    )


def test_test_file_and_split_column_tell_the_test_split() -> None:
    rows = [
        row(number, label, split=name)
        for number, (label, name) in enumerate(zip("aabbaab", ["train"] * 4 + ["Test", "dev", "training"], strict=True))
    ]
    found = split(rows)
    assert (names(found.train), names(found.test)) == (["r0", "r1", "r2", "r3", "r5", "r6"], ["r4"])
    found = split(rows, [row(9)])
    assert names(found.test) == ["r4", "r9"]
    found = split([*rows[:4], *rows[5:]])
    assert Counter(one.label for one in found.test) == {"a": 1, "b": 1}


def test_groups_in_both_splits_of_the_files_are_noted() -> None:
    rows = [row(number, "ab"[number % 2], f"g{number // 4}", "test" if number > 5 else "train") for number in range(8)]
    note = "warning: 1 groups are in training and in the test split, such as 'g1'"
    assert note in split(rows).notes
    assert not any("groups" in text for text in split(many(groups=4)).notes)


def test_test_recordings_are_left_out_of_training() -> None:
    rows = many(count=4)
    found = split(rows, [row(2), row(-0.0), row(901, "b")])
    assert names(found.train) == ["r1", "r3", "r100", "r101", "r102", "r103"]
    assert "2 recordings are left out of training: they are also in the test split" in found.notes


def test_recordings_without_a_label_are_left_out() -> None:
    found = split([*many(count=4), row(7, ""), row(8, "")], [row(9), row(10, "")])
    assert len(found.train) == 8
    assert names(found.test) == ["r9"]
    assert "3 recordings without a label are left out, the first is r7 at a.csv:7" in found.notes


def test_test_file_may_have_its_channels_in_another_order() -> None:
    other = file([row(9)], "test.csv", ("y", "x"), notes=("1 recordings",))
    found = split_recordings(file(many(count=4), notes=("8 recordings",)), test=other, seed=0)
    np.testing.assert_array_equal(found.test[0].values, [[9.5, 9]] * 3)
    assert found.notes[:2] == ("8 recordings", "test.csv: 1 recordings")


def test_test_file_is_resampled_to_the_rate_of_training() -> None:
    rows = many(count=4)
    found = split_recordings(file(rows, rate=20), test=file([row(9)], "test.csv", rate=10), seed=0)
    assert (found.rate, found.test[0].values.shape) == (20, (6, 2))
    assert "test.csv: resampled from 10 to 20 steps per second" in found.notes
    found = split_recordings(file(rows, rate=20), test=file([row(9)], "test.csv", rate=20.1), seed=0)
    assert found.test[0].values.shape == (3, 2)
    with pytest.raises(UserError, match="would have 3,000,000 equal steps; at most 1,000,000 are allowed"):
        split_recordings(file(rows, rate=20), test=file([row(9)], "test.csv", rate=2e-5), seed=0)


@pytest.mark.parametrize(("rates", "place"), [((20, None), "test.csv"), ((None, 20), "training")])
def test_unknown_rate_is_noted(rates: tuple[float | None, float | None], place: str) -> None:
    found = split_recordings(file(many(count=4), rate=rates[0]), test=file([row(9)], "test.csv", rate=rates[1]), seed=0)
    assert f"the rate of {place} is unknown: all recordings are read as if they had the same rate" in found.notes


@pytest.mark.parametrize(
    ("rows", "test", "message"),
    [
        ([row(1), row(2)], None, "a.csv: only the label 'a'; at least two are needed"),
        ([row(1, "")], None, "a.csv: no label in training; at least two are needed"),
        ([row(1, split="test"), row(2, "b")], None, "a.csv:2: split must be one of"),
        (
            [row(1, "train"), row(2, "Test")],
            None,
            "a.csv: its labels Test, train are splits; name the files or folders with --data and --test",
        ),
        ([*many(count=3), row(9, "c")], None, "a.csv:9: label 'c' has 1 different recordings; at least 2 are needed"),
        (
            [row(9, "c"), row(10, "c"), *many(count=3)],
            None,
            "a.csv:10: label 'c' has 1 training recordings; at least 2 are needed",
        ),
        (many(count=3, groups=1), None, "a.csv:0: the only group is 'g0'; at least two are needed for a test split"),
        ([*many(count=3, groups=3), row(9)], None, "a.csv:9: the recording 'r9' has no group"),
        (
            [row(number, label, label) for number, label in enumerate("aabb")],
            None,
            "a.csv:0: no group can be held out for a test split, because each has all recordings of a label",
        ),
        (many(count=3), [row(9, "c")], "a.csv:9: the label 'c' is not in training; known: a, b"),
        (
            [*many(count=3), row(9, "c"), row(10, "c")],
            [row(9, "c")],
            "a.csv:9: label 'c' has 1 training recordings, and 1 that are also in the test split; at least 2 are "
            "needed",
        ),
    ],
)
def test_unusable_recordings_are_an_error(
    rows: list[LabelledRecording], test: list[LabelledRecording] | None, message: str
) -> None:
    assert error(rows, test).startswith(message)


def test_other_channels_of_a_test_file_are_an_error() -> None:
    with pytest.raises(UserError) as caught:
        split_recordings(file(many()), test=file([row(9)], "test.csv", ("x", "z")), seed=0)
    assert str(caught.value) == "test.csv has the channels x, z; those of training are x, y"
