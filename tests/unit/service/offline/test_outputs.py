"""The output folder of a batch."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from artifact.errors import InputError
from artifact.local import Model
from artifact.tables.table import BadRow
from service.offline.compute import OPERATIONS, PredictOptions, prepare
from service.offline.inputs import InputFile, Part, filesystem
from service.offline.outputs import Counts, Output, compute_part
from tests.support.disk import full_beyond
from tests.support.models import classifier, forecaster, matcher

FILE = InputFile("/in/a.jsonl", "a.jsonl", 9, 1)
JOB: dict[str, Any] = {"model": "mood", "quantiles": (0.1,), "inputs": [FILE._asdict()]}
PART = Part(1, 5, [("a:1", (b"+",)), ("a:2", BadRow("no text")), ("a:3", (b"",)), ("a:4", (b"--",))], 9)


def compute(model: Model, task: str, **options: Any) -> Any:
    return prepare(model, task, OPERATIONS[task].fields, PredictOptions(**options))


def output(folder: Path, task: str = "classify", format: Any = "jsonl") -> Output:
    return Output(str(folder / "out"), task, format)


def test_bad_rows_are_in_their_places_and_in_a_file_of_their_own(tmp_path: Path) -> None:
    made = output(tmp_path)
    assert made.start(JOB) is None
    assert made.bad_rows(FILE.name, 1) is None
    assert compute_part(compute(Model(classifier()), "classify"), made, FILE.name, PART) == 2
    assert made.bad_rows(FILE.name, 1) == 2
    path = tmp_path / "out" / "results" / "a.jsonl" / "part-000001.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["row"] for row in rows] == [5, 6, 7, 8]
    assert [row.get("label") for row in rows] == ["positive", None, None, "negative"]
    assert rows[1]["error"] == {"code": "invalid_input", "detail": "no text"}
    assert rows[2]["error"]["detail"].startswith("text: the document is empty")
    (path.parent / ".part-000002.jsonl.0.partial").touch()
    made.finish({FILE: Counts(4, 2)})
    errors = [json.loads(line) for line in (tmp_path / "out" / "errors.jsonl").read_text().splitlines()]
    assert errors == [{"source": place, **row} for place, row in zip(("a:2", "a:3"), rows[1:3], strict=True)]
    assert sorted(found.name for found in (tmp_path / "out").rglob("*")) == [
        "_SUCCESS.json", "_job.json", "a.jsonl", "errors.jsonl", "part-000001.jsonl", "results",
    ]  # fmt: skip
    assert made.start(JOB) == Counts(4, 2)


def test_complete_part_is_not_computed_again(tmp_path: Path) -> None:
    made = output(tmp_path)

    def fail(rows: object) -> Any:
        raise AssertionError(rows)

    compute_part(compute(Model(classifier()), "classify"), made, FILE.name, PART)
    assert compute_part(fail, made, FILE.name, PART) == 2


def test_object_store_gets_whole_objects() -> None:
    """The store in memory is pyarrow's; unlike others it needs folders."""
    made = Output("mock://store/", "classify", "jsonl")
    system, root = filesystem(made.uri)
    for folder in ("results", "_errors"):
        system.create_dir(f"{root}/{folder}/{FILE.name}")
    assert compute_part(compute(Model(classifier()), "classify"), made, FILE.name, PART) == 2
    made.finish({FILE: Counts(4, 2)})
    assert made.bad_rows(FILE.name, 1) == 0
    with system.open_input_stream(f"{root}/errors.jsonl") as stream:
        assert stream.read().count(b"\n") == 2


def test_output_without_bad_rows_has_an_empty_file_of_errors(tmp_path: Path) -> None:
    made = output(tmp_path)
    made.start(JOB)
    made.finish({FILE: Counts(0, 0)})
    assert (tmp_path / "out" / "errors.jsonl").read_bytes() == b""
    assert json.loads((tmp_path / "out" / "_SUCCESS.json").read_text()) == {
        "rows": 0,
        "bad_rows": 0,
        "inputs": [{"path": "/in/a.jsonl", "results": "results/a.jsonl", "rows": 0, "bad_rows": 0}],
    }


def test_part_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    made = output(tmp_path)
    with full_beyond(100), pytest.raises(OSError, match="File too large"):
        compute_part(compute(Model(classifier()), "classify"), made, FILE.name, PART)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"model": "twins"}, 'it was started with model = "mood", not "twins"'),
        ({"quantiles": ()}, r"it was started with quantiles = \[0.1\], not \[\]"),
        ({"inputs": []}, "the input /in/a.jsonl is missing since the start"),
        ({"inputs": [FILE._replace(size=8)._asdict()]}, "the input /in/a.jsonl has changed since the start"),
        ({"inputs": [*JOB["inputs"], FILE._replace(path="/b")._asdict()]}, "the input /b is new since the start"),
    ],
)
def test_another_job_does_not_continue(tmp_path: Path, job: dict[str, Any], message: str) -> None:
    made = output(tmp_path)
    made.start(JOB)
    assert made.start(JOB) is None
    with pytest.raises(InputError, match=f"^{made.uri}: {message}; give --output a new folder$"):
        made.start({**JOB, **job})


def test_folder_with_other_files_is_rejected(tmp_path: Path) -> None:
    made = output(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(InputError, match=f"^{made.uri}: the folder has other files; give --output a new one$"):
        made.start(JOB)


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(newline="") as stream:
            return [{name: cell or None for name, cell in row.items()} for row in csv.DictReader(stream)]
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


SERIES = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("task", "row", "options"),
    [
        ("classify", (b"++",), {"detail": True}),
        ("classify", (b"++",), {"top": 1}),
        ("score", (b"++", b"+-"), {}),
        ("rank", (b"++", [b"+-", b"++"]), {"top": 1}),
        ("forecast", (SERIES,), {"horizon": 2, "quantiles": (0.5,)}),
    ],
)
def test_tables_hold_lists_and_objects_as_json(
    tmp_path: Path, task: str, row: tuple[Any, ...], options: dict[str, Any], format: str
) -> None:
    model = {"classify": classifier, "score": matcher, "rank": matcher, "forecast": forecaster}[task]()
    function = compute(Model(model), task, **options)
    rows: list[tuple[str, Any]] = [("a:1", BadRow("no")), ("a:2", row)]
    part = Part(0, 0, rows, 9)
    assert compute_part(function, output(tmp_path, task, format), FILE.name, part) == 1
    bad, good = read(tmp_path / "out" / "results" / "a.jsonl" / f"part-000000.{format}")
    assert json.loads(bad["error"])["detail"] == "no"
    assert {name for name, cell in bad.items() if cell is not None} == {"row", "error"}
    (expected,) = function([row])
    found = {name: cell for name, cell in good.items() if name != "row" and cell is not None}
    if format == "csv" and task == "forecast":
        found["quantiles_reliable"] = found["quantiles_reliable"].lower()
    for name, value in expected.items():
        cell = found.pop(name)
        assert cell == value or json.loads(cell) == value, name
    assert found == {}
    assert int(good["row"]) == 1
