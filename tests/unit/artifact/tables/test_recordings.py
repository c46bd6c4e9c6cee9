"""Files of labelled recordings."""

import gzip
import json
import lzma
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from artifact.errors import InputError
from artifact.tables import archives, rates, recording_folders, streams
from artifact.tables.labelled import Contents
from artifact.tables.recordings import LabelledRecording, RecordingFile, RecordingLayout, read_recordings

NAN = float("nan")
Made = tuple[str, list[list[float]]]
"""Label and values (steps, channels) of a recording."""
RECORDINGS: list[Made] = [
    ("walk", [[1.5, -2.0], [NAN, 3.0], [4.0, 5e-3]]),
    ("run fast", [[0.0, 1.0], [7.25, NAN]]),
    ("walk", [[1.0, 2.0]]),
]
CHANNELS = ("x", "y")
LABELLED, ANY = RecordingLayout(), RecordingLayout(needs_labels=False)


def text_of(value: float) -> str:
    return "" if np.isnan(value) else repr(value)


def rows(made: Sequence[Made]) -> list[dict[str, Any]]:
    """Rows of a long table."""
    return [
        {"id": f"r{number}", "t": step / 8, **dict(zip(CHANNELS, values, strict=True)), "label": label}
        for number, (label, recording) in enumerate(made)
        for step, values in enumerate(recording)
    ]


def delimited(path: Path, rows: Iterable[dict[str, Any]], sign: str = ",") -> Path:
    lines = [[text_of(cell) if isinstance(cell, float) else str(cell) for cell in row.values()] for row in rows]
    header = list(next(iter(rows)))
    path.write_text("\n".join(map(sign.join, [header, *lines])) + "\n")
    return path


def jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps({k: None if v != v else v for k, v in row.items()}) for row in rows) + "\n")
    return path


def columnar(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.table({name: [row[name] for row in rows] for name in rows[0]}), path)
    return path


def ts(path: Path, made: Sequence[Made]) -> Path:
    lines = [
        ":".join([*(",".join(text_of(v) or "?" for v in channel) for channel in zip(*values, strict=True)), label])
        for label, values in ((label.replace(" ", "_"), values) for label, values in made)
    ]
    labels = " ".join(sorted({label.replace(" ", "_") for label, _ in made}))
    head = (
        f"# a comment\n@problemName a\n@timeStamps false\n@univariate false\n@dimensions 2\n@classLabel true {labels}\n"
    )
    path.write_text(f"{head}@data\n" + "\n".join(lines) + "\n")
    return path


def wide(made: Sequence[Made], sign: str = "_") -> list[dict[str, Any]]:
    longest = max(len(values) for _, values in made)
    return [
        {
            "label": label,
            **{
                f"{name}{sign}{step}": values[step][channel] if step < len(values) else NAN
                for step in range(longest)
                for channel, name in enumerate(CHANNELS)
            },
        }
        for label, values in made
    ]


def folder(path: Path, made: Sequence[Made], write: Callable[[Path, Sequence[dict[str, Any]]], Path], end: str) -> Path:
    path.mkdir()
    for number, (_, values) in enumerate(made):
        write(path / f"r{number}{end}", [dict(zip(CHANNELS, step, strict=True)) for step in values])
    return path


def labelled_folder(path: Path, made: Sequence[Made]) -> Path:
    folder(path, made, columnar, ".parquet")
    delimited(path / "labels.csv", [{"file": f"r{number}", "label": label} for number, (label, _) in enumerate(made)])
    return path


def nested_folder(path: Path, made: Sequence[Made]) -> Path:
    path.mkdir()
    for label in {label for label, _ in made}:
        parts = [("", values) if own == label else ("", []) for own, values in made]
        (path / label).mkdir()
        for number, (_, values) in enumerate(parts):
            if values:
                delimited(path / label / f"{number}.csv", [dict(zip(CHANNELS, step, strict=True)) for step in values])
    return path


FORMS: dict[str, Callable[[Path, Sequence[Made]], Path]] = {
    "ts": lambda at, made: ts(at / "a.ts", made),
    "long csv": lambda at, made: delimited(at / "a.csv", rows(made)),
    "long tsv": lambda at, made: delimited(at / "a.tsv", rows(made), "\t"),
    "long jsonl": lambda at, made: jsonl(at / "a.jsonl", rows(made)),
    "long parquet": lambda at, made: columnar(at / "a.parquet", rows(made)),
    "wide csv": lambda at, made: delimited(at / "a.csv", wide(made)),
    "wide parquet": lambda at, made: columnar(at / "a.parquet", wide(made, ".")),
    "wide jsonl": lambda at, made: jsonl(at / "a.jsonl", wide(made, "")),
    "folder with labels": lambda at, made: labelled_folder(at / "a", made),
    "folder of folders": lambda at, made: nested_folder(at / "a", made),
}


def read(path: Path, content: str | bytes, layout: RecordingLayout = ANY) -> RecordingFile:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_recordings(path, layout)


def error(path: Path, content: str | bytes, layout: RecordingLayout = LABELLED) -> str:
    """The message of an error, without the path."""
    with pytest.raises(InputError) as caught:
        read(path, content, layout)
    return str(caught.value).replace(str(path), "a")


def content_of(recordings: Iterable[LabelledRecording]) -> list[Any]:
    return sorted((one.label.replace(" ", "_"), repr(one.values.tolist())) for one in recordings)


def values_of(file: RecordingFile) -> list[Any]:
    return [recording.values.tolist() for recording in file.recordings]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "a.ts"


# All forms


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_recordings(form: str, tmp_path: Path) -> None:
    file = read_recordings(FORMS[form](tmp_path, RECORDINGS))
    assert content_of(file.recordings) == content_of(
        LabelledRecording("", "", np.array(values), label) for label, values in RECORDINGS
    )
    assert file.channels == (("c1", "c2") if form == "ts" else CHANNELS)
    assert file.rate == (8.0 if form.startswith("long") else None)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64) | st.just(NAN)


@st.composite
def recordings(draw: st.DrawFn) -> list[Made]:
    """Recordings whose channels have a value at the first step, and of which one has a value at the last one."""
    made = []
    finite = st.floats(allow_nan=False, allow_infinity=False)
    for _ in range(draw(st.integers(2, 5))):
        middle = draw(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5))
        values = [draw(st.tuples(finite, finite)), *middle, draw(st.tuples(finite, NUMBERS))]
        made.append((draw(st.sampled_from(["a", "b", "0", "c d"])), [list(step) for step in values]))
    return made


@settings(max_examples=25, deadline=None)
@given(made=recordings())
def test_any_recordings_are_read_as_they_are_written(made: list[Made]) -> None:
    fingerprints = set()
    for form in ("long csv", "long parquet", "wide csv", "long jsonl", "folder with labels"):
        with tempfile.TemporaryDirectory() as at:
            file = read_recordings(FORMS[form](Path(at), made))
        assert [(one.label, repr(one.values.tolist())) for one in file.recordings] == [
            (label, repr(np.array(values).tolist())) for label, values in made
        ]
        fingerprints.add(file.fingerprint)
    assert len(fingerprints) == 1


@pytest.mark.parametrize("form", FORMS)
def test_notes_tell_what_was_read(form: str, tmp_path: Path) -> None:
    notes = read_recordings(FORMS[form](tmp_path, RECORDINGS)).notes
    channels, run = ("c1, c2", "run_fast") if form == "ts" else ("x, y", "run fast")
    assert notes == (
        f"3 recordings of 1 to 3 steps (median 2); channels: {channels}",
        *(["rate: 8 steps per second, from the times"] if form.startswith("long") else []),
        "missing values: 2 (16.7%), in 2 of 3 recordings",
        f"classes: {run} 1, walk 2",
    )


def test_fingerprint_depends_on_values_and_labels_alone(csv: Path) -> None:
    first = read(csv, "id,x,label\na,1,u\na,2,u\nb,3,v\nb,,v\nb,0,v\n").fingerprint
    assert read(csv, "label,x,id\nv,3,q\nv,nan,q\nv,-0,q\nu,1,r\nu,2,r\n").fingerprint == first
    assert read(csv, "id,x,label\na,1,v\na,2,v\nb,3,u\nb,,u\nb,0,u\n").fingerprint != first
    assert read(csv, "id,x,label\na,1,u\na,2,u\nb,3,v\nb,,v\nb,1,v\n").fingerprint != first
    assert read(csv, "id,x,label\na,1,u\na,2,u\na,3,u\nb,,v\nb,0,v\nb,4,v\n").fingerprint != first


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("form", ["ts", "long csv", "wide csv"])
def test_files_may_be_compressed(form: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = FORMS[form](tmp_path, RECORDINGS)
    packed = path.with_name(f"{path.name}{'.gz' if pack is gzip.compress else '.xz'}")
    packed.write_bytes(pack(path.read_bytes()))
    assert content_of(read_recordings(packed).recordings) == content_of(read_recordings(path).recordings)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le"])
@pytest.mark.parametrize("form", ["ts", "long csv", "wide csv", "long jsonl"])
def test_encoding_is_found(form: str, encoding: str, tmp_path: Path) -> None:
    made = [("läuft", values) for _, values in RECORDINGS]
    path = FORMS[form](tmp_path, made)
    expected = content_of(read_recordings(path).recordings)
    path.write_bytes(path.read_text().encode(encoding))
    assert content_of(read_recordings(path).recordings) == expected


def test_other_encodings_are_named(csv: Path) -> None:
    content = "id,x,label\n1,1,für\n1,2,für\n".encode("cp1252")
    assert error(csv, content) == "a:2: byte 6 of line 2 is not UTF-8; --encoding names the encoding, such as cp1252"
    assert read(csv, content, RecordingLayout(encoding="cp1252")).recordings[0].label == "für"


@pytest.mark.parametrize("value", ["inf", "-Infinity", "1e999", "abc", "0x1"])
def test_other_values_than_finite_numbers_are_errors(value: str, tmp_path: Path) -> None:
    assert error(tmp_path / "a.ts", f"@classLabel true u\n@data\n1,2:3,{value}:u\n") == (
        f"a:3, channel 2, value 2: expected a finite number, or ? for a missing one, not {value!r}"
    )
    assert error(tmp_path / "a.csv", f"id,x,y,label\n1,1,1,u\n1,2,{value},u\n1,3,2,u\n") == (
        f"a: cells that are not finite numbers (1): line 3 column y {value!r}"
    )


def test_steps_without_a_value_at_the_end_are_left_out(csv: Path) -> None:
    file = read(csv, "id,x,y\na,1,1\na,,2\na,3,\na,,\na,,\nb,1,1\nb,2,2\n")
    assert [len(recording.values) for recording in file.recordings] == [3, 2]


def test_channel_without_a_value_is_an_error(csv: Path, archive: Path) -> None:
    assert (
        error(csv, "id,x,y\na,1,1\na,2,2\nb,1,\nb,2,\n", ANY)
        == "a:4: the recording 'b' has no value of the channel 'y'"
    )
    assert error(archive, "@classLabel false\n@data\n?,?\n", ANY) == "a:3: the recording '1' has no values"


@pytest.mark.parametrize("seed", range(5))
def test_step_of_jittered_times_is_that_of_the_clock(seed: int) -> None:
    """Also with missing times. The median of single steps is off by up to 2 % here."""
    generator = np.random.default_rng(seed)
    numbers = np.delete(np.arange(200), generator.integers(1, 199, 20))
    times = 0.02 * numbers + generator.uniform(-0.004, 0.004, len(numbers))
    contents = Contents(("x",), (LabelledRecording("a:1", "a", numbers[:, None] / 200),), (times,))
    _, rate, _ = rates.equal_steps(contents, None)
    assert rate == pytest.approx(50, rel=0.005)


def test_constant_channel_is_allowed(csv: Path) -> None:
    assert values_of(read(csv, "id,x\na,1\na,1\n")) == [[[1.0], [1.0]]]


def test_labels_are_needed_unless_told_otherwise(csv: Path) -> None:
    content = "id,x,class\na,1,u\na,2,u\n"
    assert error(csv, content) == "a:1: no column 'label'; columns: id, x, class; --label-column names another one"
    assert read(csv, content, RecordingLayout(label_column="class")).recordings[0].label == "u"
    assert error(csv, "id,x,label\na,1,\na,2,n/a\n") == "a: no recording has a label"
    assert read(csv, "id,x,label\na,1,\na,2,n/a\n").recordings[0].label == ""
    assert error(csv, content, ANY) == ("a:1: the column 'class' holds text, not numbers; --ignore class leaves it out")


def test_likely_same_labels_are_noted(csv: Path) -> None:
    notes = read(csv, "label,x0,x1\nA,1,2\na,3,4\nb,5,6\n", LABELLED).notes
    assert notes[-2:] == ("classes: A 1, a 1, b 1", "warning: labels that are likely the same: 'A' 1, 'a' 1")


def test_rate_is_checked_and_kept(csv: Path) -> None:
    assert read(csv, "x0,x1\n1,2\n", replace(ANY, rate=50)).rate == 50
    for rate, shown in ((0.0, "0"), (NAN, "nan"), (float("inf"), "inf")):
        assert error(csv, "x0,x1\n1,2\n", replace(ANY, rate=rate)) == (
            f"--rate must be a positive number of steps per second, not {shown}"
        )


# .ts


def test_ts_is_read_as_it_is_written(archive: Path) -> None:
    content = (
        "#comment\n\n@PROBLEMNAME p q\n@timestamps false\n@missing true\n@univariate false\n@Dimensions 2\n"
        "@equalLength false\n@seriesLength 3\n@classLabel true a b\n@DATA\n"
        "1, 2.5 ,?:4,NaN,-6e-1:a\r\n# comment\n\n7:8: b\n"
    )
    file = read(archive, content, RecordingLayout(rate=10))
    assert file.channels == ("c1", "c2")
    assert file.rate == 10
    np.testing.assert_array_equal(file.recordings[0].values, [[1, 4], [2.5, NAN], [NAN, -0.6]])
    assert [(one.place, one.name, one.label) for one in file.recordings] == [
        (f"{archive}:12", "1", "a"),
        (f"{archive}:15", "2", "b"),
    ]


@pytest.mark.parametrize("told", ["@univariate true\n", "@dimensions 1\n", ""])
def test_one_channel_of_ts_has_a_name(archive: Path, told: str) -> None:
    file = read(archive, f"{told}@classLabel true 1 2\n@data\n1,2:1\n3:2\n")
    assert (file.channels, values_of(file)) == (("value",), [[[1.0], [2.0]], [[3.0]]])


def test_ts_may_lack_labels(archive: Path) -> None:
    content = "@classLabel false\n@data\n1,2:3,4\n"
    assert values_of(read(archive, content)) == [[[1, 3], [2, 4]]]
    assert error(archive, content) == (
        "a: its recordings have no labels; expected @classLabel true, followed by the labels"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a: expected a line @data before the recordings"),
        ("@classLabel true u\n@data\n", "a has no recordings"),
        ("1,2:u\n", "a:1: expected a line of the header, which begins with @ or #, not '1,2:u'"),
        ("@timeStamps true\n", "a:1: @timeStamps true: values with times cannot be read; write them as a long table"),
        ("@targetLabel true\n", "a:1: @targetLabel true: expected labels of classes, not numbers"),
        ("@classLabel\n", "a:1: @classLabel must be true or false, not ''"),
        ("@univariate yes\n", "a:1: @univariate must be true or false, not 'yes'"),
        ("@dimensions 0\n", "a:1: @dimensions must be a positive integer, not '0'"),
        ("@dimensions two\n", "a:1: @dimensions must be a positive integer, not 'two'"),
        ("@classLabel true u v\n@data\n1:w\n", "a:3: the label must be one of u, v, not 'w'"),
        ("@classLabel true u\n@data\nu\n", "a:3: expected 1 channels and a label, not 0 channels and a label"),
        (
            "@dimensions 3\n@classLabel true u\n@data\n1:2:u\n",
            "a:4: expected 3 channels and a label, not 2 channels and a label",
        ),
        (
            "@classLabel true u\n@data\n1:2:u\n1:2:3:u\n",
            "a:4: expected 2 channels and a label, not 3 channels and a label",
        ),
        (
            "@classLabel true u\n@data\n1,2:3:u\n",
            "a:3: channel 2 has 1 values, channel 1 has 2; the channels of a recording must be equally long",
        ),
        (
            "@classLabel true u\n@data\n1,1_0:u\n",
            "a:3, channel 1, value 2: expected a finite number, or ? for a missing one, not '1_0'",
        ),
        (
            b"@classLabel true \xfc\n",
            "a:1: byte 18 of line 1 is not UTF-8; --encoding names the encoding, such as cp1252",
        ),
        (gzip.compress(b"@data", mtime=0), "a: expected text, but it is compressed with gzip; unpack it"),
    ],
)
def test_unusable_ts_is_an_error(archive: Path, content: str | bytes, message: str) -> None:
    assert error(archive, content) == message


def test_lines_and_files_have_a_limit(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_VALUES", 10)
    monkeypatch.setattr(recording_folders, "MOST_VALUES", 10)
    monkeypatch.setattr(streams, "LONGEST_ROW", 40)
    assert error(archive, f"@classLabel false\n@data\n{'1,' * 20}1\n", ANY) == "a:3: the line is longer than 40 bytes"
    assert error(archive, "@classLabel false\n@data\n" + "1,1,1\n" * 4, ANY) == "a:6: more than 10 values"
    line = "\t".join(["1", *["0.5"] * 8])
    assert error(tmp_path / "a.tsv", f"{line}\n{line}\n") == "a:2: more than 10 values"
    at = folder(tmp_path / "f", [("", [[1, 2], [3, 4]])] * 3, delimited, ".csv")
    with pytest.raises(InputError, match="more than 10 values in all files"):
        read_recordings(at, ANY)


# TSV of the UCR archive


def test_tsv_without_a_header_has_the_label_first(tmp_path: Path) -> None:
    line = "\t".join(map(str, range(8)))
    file = read(tmp_path / "a.tsv", f"-1\t{line}\n2\t{line.replace('7', 'NaN')}\n")
    assert file.channels == ("value",)
    assert [(one.name, one.label, len(one.values)) for one in file.recordings] == [("1", "-1", 8), ("2", "2", 7)]


@pytest.mark.parametrize("first", ["1\t2", "\t".join(map(str, range(9))), "\t".join(map(str, range(1, 10)))])
def test_other_tsv_is_a_table(tmp_path: Path, first: str) -> None:
    layout = replace(ANY, channels=tuple(first.split("\t")))
    assert read(tmp_path / "a.tsv", f"{first}\n{first}\n{first}\n", layout).channels == layout.channels


# Long tables


def test_rows_are_sorted_by_time_within_each_recording(csv: Path) -> None:
    content = "id,time,x,label\nb,0.2,3,v\na,5,1,u\nb,0,1,v\na,5.1,2,u\nb,0.1,2,\n"
    file = read(csv, content)
    assert [(one.name, one.place, one.label, one.values[:, 0].tolist()) for one in file.recordings] == [
        ("b", f"{csv}:2", "v", [1, 2, 3]),
        ("a", f"{csv}:3", "u", [1, 2]),
    ]
    assert file.rate == 10


@pytest.mark.parametrize(
    ("stamps", "rate"),
    [
        (["2024-03-01T10:00:00", "2024-03-01T10:00:00.5", "2024-03-01T10:00:01"], 2),
        (["2024-03-01 10:00:00+01:00", "2024-03-01 11:00:00+02:00", "2024-03-01 10:00:00Z"], 1 / 1800),
        (["1700000000000", "1700000000020", "1700000000040"], 50),
        (["1700000000000000", "1700000000020000", "1700000000040000"], 50),
        (["1700000000.00", "1700000000.02", "1700000000.04"], 50),
        (["0", "1", "2"], 1),
        (["-0.5", "0", "0.5"], 2),
        (["2024", "2025", "2026"], 1),
    ],
)
def test_times_are_seconds_or_time_stamps(csv: Path, stamps: list[str], rate: float) -> None:
    if "+02:00" in stamps[1]:
        stamps = ["2024-03-01 10:00:00+01:00", "2024-03-01 11:30:00+02:00", "2024-03-01 10:00:00Z"]
    found = read(csv, "id,when,x\n" + "".join(f"a,{stamp},{n}\n" for n, stamp in enumerate(stamps)))
    assert found.rate == pytest.approx(rate, rel=1e-6)
    assert values_of(found) == [[[0.0], [1.0], [2.0]]]


def test_times_of_parquet_have_types(tmp_path: Path) -> None:
    times = pyarrow.array([0, 20, 40, 0, 20], pyarrow.timestamp("ms"))
    table = pyarrow.table({"recording": [1.0, 1.0, 1.0, 2.0, 2.0], "at": times, "x": [1, 2, None, 4, 5]})
    parquet.write_table(table, tmp_path / "a.parquet")
    file = read_recordings(tmp_path / "a.parquet", ANY)
    assert (file.rate, [one.name for one in file.recordings]) == (50, ["1", "2"])
    assert [len(one.values) for one in file.recordings] == [2, 2]


def test_day_may_be_first(csv: Path) -> None:
    content = "id,day,x\na,01/02/2024,1\na,02/02/2024,2\n"
    assert error(csv, content, ANY) == (
        "a: cells of day that are no times (2): line 2 '01/02/2024', line 3 '02/02/2024'; expected seconds, or time "
        "stamps in ISO 8601; --day-first reads dates that begin with the day"
    )
    assert read(csv, content, replace(ANY, day_first=True)).rate == pytest.approx(1 / 86400)


@pytest.mark.parametrize("name", ["step", "Frame", "sample", "index"])
def test_counts_of_steps_order_the_rows_and_tell_no_rate(csv: Path, name: str) -> None:
    content = f"id,{name},x\na,2,3\na,0,1\na,1,2\nb,0,1\nb,1,2\nb,3,4\n"
    file = read(csv, content)
    assert (file.rate, values_of(file)) == (None, [[[1.0], [2.0], [3.0]], [[1.0], [2.0], [3.0], [4.0]]])
    assert "1 of 2 recordings have unequal steps; they are interpolated to a step of 1" in file.notes
    assert read(csv, content, replace(ANY, rate=25)).rate == 25


def test_equal_steps_may_be_rounded(csv: Path) -> None:
    times = [round(step / 30, 3) for step in range(31)]
    file = read(csv, "id,t,x\n" + "".join(f"a,{time},{number}\n" for number, time in enumerate(times)))
    assert file.rate == pytest.approx(30, rel=1e-3)
    assert values_of(file) == [[[float(number)] for number in range(31)]]


def test_unequal_steps_are_interpolated(csv: Path) -> None:
    content = "id,t,x,y\na,0,0,5\na,1,1,5\na,2,2,5\nb,10,0,\nb,11,1,7\nb,13.5,3.5,9\nb,14,4,9\n"
    file = read(csv, content)
    assert values_of(file)[0] == [[0, 5], [1, 5], [2, 5]]
    expected = [(0.0, 7.0), (1.0, 7.0), (2.0, 7.8), (3.0, 8.6), (4.0, 9.0)]
    np.testing.assert_allclose(file.recordings[1].values, expected)
    assert file.rate == 1
    assert "1 of 2 recordings have unequal steps; they are interpolated to 1 steps per second" in file.notes


def test_other_rates_are_resampled_as_in_serving(csv: Path) -> None:
    made = {"a": 0.1, "b": 0.1, "c": 0.05}
    lines = [f"{name},{step * number},{step * number}" for name, step in made.items() for number in range(20)]
    file = read(csv, "id,t,x\n" + "\n".join(lines) + "\n")
    assert [len(one.values) for one in file.recordings] == [20, 20, 10]
    assert file.rate == 10
    np.testing.assert_allclose(np.diff(file.recordings[2].values[1:-1, 0]), 0.1)
    assert "1 of 3 recordings have another rate; they are resampled to 10 steps per second" in file.notes


def test_times_in_another_unit_are_an_error(csv: Path) -> None:
    lines = [
        f"{name},{step * number},{number}" for name, step in {"a": 0.5, "b": 0.5, "c": 500}.items() for number in (0, 1)
    ]
    assert error(csv, "id,t,x\n" + "\n".join(lines) + "\n", ANY) == (
        "a:6: the recording 'c' has a step of 500, the file one of 0.5; its times seem to be in another unit"
    )


@pytest.mark.parametrize("end", [".csv", ".tsv"])
def test_rows_of_empty_cells_are_left_out_with_a_note(tmp_path: Path, end: str) -> None:
    lines = ["t,x", "0,1", ",", "", "1,3", " ,"]
    content = "\n".join(lines).replace(",", "\t" if end == ".tsv" else ",")
    file = read(tmp_path / f"a{end}", content)
    assert values_of(file) == [[[1.0], [3.0]]]
    assert f"left out rows of empty cells: 2, the first {tmp_path / 'a'}{end}:3" in file.notes


def test_one_recording_is_told_in_the_singular(csv: Path) -> None:
    assert read(csv, "t,x\n0,1\n1,3\n").notes[0] == "1 recording of 2 steps; channels: x"


def test_recording_of_one_step_has_no_rate(csv: Path) -> None:
    layout = replace(ANY, id_column="id")
    assert read(csv, "id,t,x\na,0,1\na,1,1\nb,0,2\n", layout).rate == 1
    assert read(csv, "t,x\n0,1\n").rate is None


def test_resampled_recordings_have_a_limit(csv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_STEPS", 100)
    content = "id,t,x\na,0,1\na,1,1\na,2,1\na,1e9,1\n"
    assert error(csv, content, ANY) == (
        "a:2: the recording 'a' would have 1,000,000,001 equal steps; at most 100 are allowed"
    )


def test_columns_are_found_by_their_names(csv: Path) -> None:
    content = "Unnamed: 0,Series_ID,x,label,who,part,note\n0,a,1,u,p,train,7\n1,a,2,u,p,train,8\n"
    layout = RecordingLayout(group_column="who", split_column="part", ignore=("note",))
    file = read(csv, content, layout)
    (recording,) = file.recordings
    assert (file.channels, recording.name, recording.label) == (("x",), "a", "u")
    assert (recording.group, recording.split) == ("p", "train")
    assert "left out 'Unnamed: 0': row numbers" in file.notes


def test_channels_may_be_named(csv: Path) -> None:
    content = "id,x,y,z\na,1,2,3\na,4,5,6\n"
    file = read(csv, content, replace(ANY, channels=("z", "x")))
    assert (file.channels, values_of(file)) == (("z", "x"), [[[3, 1], [6, 4]]])
    assert "left out 'y': not among the channels that are read" in file.notes


def test_table_without_ids_is_one_recording(tmp_path: Path) -> None:
    content = "x,y,t\n1,2,0\n3,4,0.5\n"
    (recording,) = read(tmp_path / "walk.csv", content).recordings
    assert (recording.name, recording.values.tolist()) == ("walk", [[1, 2], [3, 4]])
    file = read(tmp_path / "run.csv.gz", gzip.compress(b"x,y\n1,2\n3,4\n5,6\n"), replace(ANY, channels=("y", "x")))
    assert (file.recordings[0].name, values_of(file)) == ("run", [[[2, 1], [4, 3], [6, 5]]])


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (
            "id,x,label\na,1,u\na,2,v\n",
            LABELLED,
            "a:3: label is 'v', but 'u' in an earlier row of the recording 'a'; --id-column names the column with the "
            "recording of each row",
        ),
        ("id,x,label\na,1,1.5\na,2,1.5\n", LABELLED, ""),
        ("id,x,label\na,1,u\x01\na,2,u\n", LABELLED, "a:2: label 'u\\x01' contains a control character"),
        ("id,x,t\na,1,0\na,2,0\n", ANY, "a: repeated values of t in a recording (1): line 3 '0' as in line 2"),
        (
            "rec,x,t\n1,1,0\n2,2,0\n",
            ANY,
            "a: repeated values of t in a recording (1): line 3 '0' as in line 2; "
            "--id-column names the column with the recording of each row",
        ),
        ("id,x\na,1\n,2\na,2\n", ANY, "a: rows without a value of id (1): line 3"),
        (
            "id,x,note\na,1,good\na,2,bad\n",
            ANY,
            "a:1: the column 'note' holds text, not numbers; --ignore note leaves it out",
        ),
        ("id,x,y\na,1,1\na,2,1 kg\na,3,2\n", ANY, "a: cells that are not finite numbers (1): line 3 column y '1 kg'"),
        (
            "id,t,x\na,0,1\na,soon,1\n",
            ANY,
            "a: cells of t that are no times (1): line 3 'soon'; expected seconds, or time stamps in ISO 8601",
        ),
        (
            "id,t,x\na,2024-01-01,1\na,2024-01-02T00:00Z,1\n",
            ANY,
            "a: t holds times with and without a time zone",
        ),
        (
            "id,t,frame,x\na,0,1,1\na,1,2,1\n",
            ANY,
            "a:1: the columns t, frame may hold times; --time-column names one, --ignore leaves out the others",
        ),
        (
            "id,x\na,1\na,2\nb,3\nc,4\nd,4\n",
            ANY,
            "a: 4 of 5 rows have different values of id; a table with a row a recording has each value once, and one "
            "with a row a step has most of them several times",
        ),
        (
            "id,t,x\na,0,1\na,1,2\n",
            replace(ANY, rate=5),
            "--rate 5 is for recordings without times; a:2 has times",
        ),
        ("id,label\na,u\na,u\n", LABELLED, "a:1: expected at least one channel; columns: id, label"),
        (
            "id,x\na,1\na,2\n",
            replace(ANY, id_column="who"),
            "a:1: no column 'who'; columns: id, x; --id-column names another one",
        ),
        (
            "id,x\na,1\na,2\n",
            replace(ANY, time_column="when"),
            "a:1: no column 'when'; columns: id, x; --time-column names another one",
        ),
        (
            "id,x\na,1\na,2\n",
            replace(ANY, group_column="who"),
            "a:1: no column 'who'; columns: id, x; --group-column names another one",
        ),
        (
            "id,x\na,1\na,2\n",
            replace(ANY, channels=("y",)),
            "a:1: no channel 'y'; columns: id, x",
        ),
        (
            "id,x\na,1\na,2\n",
            replace(ANY, ignore=("y",)),
            "a:1: no column 'y'; columns: id, x; --ignore names another one",
        ),
        ("id,x\na,1\na\n", ANY, "a:3: expected 2 columns, not 1"),
        ("id,x\n", ANY, "a has no rows"),
    ],
)
def test_unusable_long_table_is_an_error(csv: Path, content: str, layout: RecordingLayout, message: str) -> None:
    if message:
        assert error(csv, content, layout) == message
    else:
        assert read(csv, content, layout).recordings[0].label == "1.5"


def test_label_of_another_type_is_an_error(tmp_path: Path) -> None:
    content = '{"id": "a", "x": 1, "label": 1.5}\n{"id": "a", "x": 2, "label": 1.5}\n'
    assert error(tmp_path / "a.jsonl", content) == (
        "a:1: label must be a string, an integer or a boolean, not a fraction; regression is not offered"
    )


# Wide tables


def test_columns_of_a_wide_table_are_ordered_by_their_numbers(csv: Path) -> None:
    file = read(csv, "id,y.10,y.9,x_9,x_10,label\np,4,3,1,2,u\nq,8,,5,6,v\n", LABELLED)
    assert file.channels == ("y", "x")
    np.testing.assert_array_equal(file.recordings[0].values, [[3, 1], [4, 2]])
    np.testing.assert_array_equal(file.recordings[1].values, [[NAN, 5], [8, 6]])
    assert [(one.name, one.label, one.place) for one in file.recordings] == [
        ("p", "u", f"{csv}:2"),
        ("q", "v", f"{csv}:3"),
    ]


@pytest.mark.parametrize("header", ["0,1,2", "0.0,0.02,0.04", "t0,t1,t2", "acc_1_0,acc_1_1,acc_1_2", "_0,_1,_2"])
def test_one_channel_may_have_no_name(csv: Path, header: str) -> None:
    file = read(csv, f"label,{header}\nu,1,2,3\nv,4,5,\n", LABELLED)
    assert file.channels == ({"t": "t", "a": "acc_1"}.get(header[0], "value"),)
    assert values_of(file) == [[[1], [2], [3]], [[4], [5]]]


def test_decimal_commas(csv: Path) -> None:
    assert values_of(read(csv, "label;x0;x1\nu;1,5;-2\n")) == [[[1.5], [-2]]]


def test_channels_of_a_wide_table_may_be_named(csv: Path) -> None:
    file = read(csv, "x0,x1,y0,y1\n1,2,3,4\n", replace(ANY, channels=("y",)))
    assert values_of(file) == [[[3], [4]]]
    assert "left out 'x': not among the channels that are read" in file.notes


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (
            "label,mean,x_0\nu,1,2\n",
            ANY,
            "a:1: the column 'mean' has no number of a step, such as x_0; --ignore mean leaves it out; a table with a "
            "row a step needs a column that names the recording of each row, --id-column",
        ),
        ("label,x_0,x_1,y_0\nu,1,2,3\n", ANY, "a:1: the channel 'y' has no column for step 1"),
        ("label,x_1,x.1\nu,1,2\n", ANY, "a:1: the columns 'x_1' and 'x.1' are the same step of a channel"),
        ("label\nu\n", ANY, "a:1: expected columns of values, such as x_0; columns: label"),
        ("x0,x1\n1,2\n", replace(ANY, channels=("y",)), "a:1: no channel 'y'; channels: x"),
        ("label,x0,x1\nu,1,2\nv,,\n", ANY, "a:3: the recording '2' has no values"),
        ("1.5,2.5\n1,2\n", ANY, "a:1: expected a line with the names of the columns, not 1.5, 2.5"),
    ],
)
def test_unusable_wide_table_is_an_error(csv: Path, content: str, layout: RecordingLayout, message: str) -> None:
    assert error(csv, content, layout) == message


# Folders


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return folder(tmp_path / "f", RECORDINGS, delimited, ".csv")


def folder_error(path: Path, layout: RecordingLayout = LABELLED) -> str:
    with pytest.raises(InputError) as caught:
        read_recordings(path, layout)
    return str(caught.value).replace(f"{path}/", "").replace(str(path), "f")


def test_files_of_a_folder_are_named_by_the_column_of_training(files: Path) -> None:
    jsonl(files / "labels.jsonl", [{"trial": "r0.csv", "label": "u"}])
    assert read_recordings(files, RecordingLayout(usual_id="trial")).recordings[0].label == "u"


def test_labels_of_a_folder_may_have_groups_and_splits(files: Path) -> None:
    jsonl(
        files / "labels.jsonl",
        [{"id": "r0.csv", "y": 1, "who": "p", "split": "test"}, {"id": "r2", "y": 2, "who": "q"}],
    )
    layout = RecordingLayout(label_column="y", group_column="who", split_column="split")
    left_out = read_recordings(files, layout)
    assert left_out.channels == ("x",)
    assert "left out the column 'y' of the files, which have their labels from elsewhere" in left_out.notes
    layout = replace(layout, channels=("x", "y"))
    file = read_recordings(files, layout)
    assert [(one.name, one.place, one.label, one.group, one.split) for one in file.recordings] == [
        ("r0.csv", str(files / "r0.csv"), "1", "p", "test"),
        ("r1.csv", str(files / "r1.csv"), "", "", ""),
        ("r2.csv", str(files / "r2.csv"), "2", "q", ""),
    ]


def test_files_of_a_folder_may_have_their_label(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("x,label,id\n1,u,5\n2,u,5\n")
    (tmp_path / "2.jsonl").write_text('{"x": 1, "label": "v", "id": 7}\n')
    file = read_recordings(tmp_path)
    assert [(one.label, one.values.tolist()) for one in file.recordings] == [("u", [[1], [2]]), ("v", [[1]])]


def test_files_of_a_folder_may_have_times_and_channels_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("t,x,y\n0,1,2\n0.1,3,4\n0.2,5,6\n")
    (tmp_path / "2.csv").write_text("y,t,x\n2,5.0,1\n4,5.1,3\n")
    (tmp_path / "3.csv").write_text("y,t,x\n" + "".join(f"2,{number / 20},1\n" for number in range(8)))
    (tmp_path / "README").write_text("about\n")
    (tmp_path / ".hidden.csv").write_text("z\n")
    file = read_recordings(tmp_path, ANY)
    assert file.channels == ("x", "y")
    assert values_of(file) == [[[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4]], [[1, 2]] * 4]
    assert file.rate == 10
    assert file.notes[1:] == (
        "rate: 10 steps per second, from the times",
        "1 of 3 recordings have another rate; they are resampled to 10 steps per second",
        f"left out what is no table: 1 of 4 files, the first {tmp_path / 'README'}",
    )


def test_folder_without_labels_is_an_error(files: Path) -> None:
    assert folder_error(files) == (
        "r0.csv: the file has no label; expected a table labels.csv of files and labels in the folder, a subfolder per "
        "label, or a column 'label'"
    )
    assert len(read_recordings(files, ANY).recordings) == 3


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("file,label\nr0,u\nr7,v\n", "labels.csv:3: the folder has no file 'r7'"),
        ("file,label\nr0,u\nr0.csv,v\n", "labels.csv:3: the file 'r0.csv' is in an earlier row, too"),
        ("name,label\nr0,u\n", "labels.csv:1: no column 'file'; columns: name, label; --id-column names another one"),
        (
            "file,class\nr0,u\n",
            "labels.csv:1: no column 'label'; columns: file, class; --label-column names another one",
        ),
        ("file,label\nr0,\n", "f: no recording has a label"),
    ],
)
def test_unusable_labels_of_a_folder_are_an_error(files: Path, labels: str, message: str) -> None:
    (files / "labels.csv").write_text(labels)
    assert folder_error(files) == message


def test_file_may_lack_groups_that_are_not_needed(csv: Path, files: Path) -> None:
    layout = RecordingLayout(group_column="who", needs_groups=False)
    for content, group in (("id,x,label\na,1,p\na,3,p\n", ""), ("id,x,who,label\na,1,2,p\na,3,2,p\n", "2")):
        file = read(csv, content, layout)
        assert ([one.group for one in file.recordings], file.channels) == ([group], ("x",))
    (files / "labels.csv").write_text("file,label\nr0,u\n")
    assert {one.group for one in read_recordings(files, layout).recordings} == {""}


def test_groups_of_a_folder_are_in_its_labels(files: Path) -> None:
    (files / "labels.csv").write_text("file,label\nr0,u\n")
    assert folder_error(files, RecordingLayout(group_column="who")) == (
        "labels.csv:1: no column 'who'; columns: file, label; --group-column names another one"
    )
    (files / "labels.csv").unlink()
    assert folder_error(files, replace(ANY, group_column="who")) == (
        "f: a folder without a table labels.csv has no column 'who'"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x\n1\n", "s.csv lacks the channel 'y', unlike r0.csv"),
        ("x,y,z\n1,2,3\n", "s.csv has the channel 'z', unlike r0.csv"),
        ("t,x,y\n0,2,3\n", "s.csv and r0.csv must both have times, or neither"),
        ("x,y\n1,inf\n", "s.csv: cells that are not finite numbers (1): line 2 column y 'inf'"),
        ("x,y\n", "s.csv has no rows"),
    ],
)
def test_unusable_file_of_a_folder_is_an_error(files: Path, content: str, message: str) -> None:
    (files / "s.csv").write_text(content)
    assert folder_error(files, ANY) == message


def test_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    assert folder_error(tmp_path).startswith("f: expected files that end in .csv, .tsv")


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    for name in ("a.ts", "a.csv", "a.tsv"):
        with pytest.raises(InputError, match=f"{name} does not exist"):
            read_recordings(tmp_path / name)
