"""Documents and pairs of one's own: reading, splits, and the whole way to an answer."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from artifact.manifest import ClassifierManifest, MatcherManifest, read_manifest
from model.config.data import DocumentsConfig, PairsConfig
from model.data import own
from model.data.documents import DocumentSet, load_test, load_training
from model.data.pairs import SPLITS, load_pairs
from model.errors import UserError
from model.training import checkpoint
from service.__main__ import main as service
from tests.support.commands import call

CONFIG = DocumentsConfig(name="own")
SMALL = [
    *("training.epochs=1", "model.stem.num_slots=1024", "model.encoder.dim=8", "model.encoder.num_heads=1"),
    "model.encoder.ffn_dim=8",
]
SMALL_PAIRS = [
    *("training.epochs=1", "model.stem.num_buckets=1024", "model.encoder.dim=8", "model.encoder.num_heads=1"),
    *("model.encoder.ffn_dim=8", "model.head_dim=8"),
]

Write = Callable[[str, bytes | str], Path]
"""Name and content -> a file below tmp_path."""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def read(path: Path, *columns: str) -> list[tuple[tuple[bytes, ...], str]]:
    """Texts and labels, without their places."""
    return [(texts, label) for _, texts, label in own.read(path, columns or ("text",), "label")]


def json_lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(labels: str) -> str:
    """A CSV file with a text of its own for every letter, which is its label; a dot is a row without one."""
    return "text,label\n" + "".join(f"text {i},{label.strip('.')}\n" for i, label in enumerate(labels))


def train(path: Path, runs: Path, *arguments: object, task: str = "text-classification") -> int:
    small = SMALL if task == "text-classification" else SMALL_PAIRS
    overrides = [part for setting in small for part in ("--set", setting)]
    return call("train", "--task", task, "--data", path, "--runs", runs, "--device", "cpu", *overrides, *arguments)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "text,label\none,x\ntwo,y\n", [("one", "x"), ("two", "y")]),
        ("a.csv", "label,id,text\nx,1,one\ny,2,two", [("one", "x"), ("two", "y")]),
        ("a.csv", 'text,label\n"one, ""1""\n\n1",x\n', [('one, "1"\n\n1', "x")]),
        ("a.csv", 'text,label\r\n"one\r\n1",x\r\n\r\ntwo,y\r\n', [("one\r\n1", "x"), ("two", "y")]),
        ("a.csv", b'\xef\xbb\xbf"text",label\none,x\n', [("one", "x")]),
        ("a.csv", 'text,label\n"one\n\ufeff1",x\n', [("one\n\ufeff1", "x")]),
        ("a.csv", 'text,label\none "1", x \n na\0ïve ,1\n', [('one "1"', "x"), (" na\0ïve ", "1")]),
        ("a.csv", "text,label\n" + "x" * 200_000 + ",x\n", [("x" * 200_000, "x")]),
        ("A.TSV", "text\tlabel\none, 1\tx\n", [("one, 1", "x")]),
        ("a.jsonl", '{"text": "a\\n1", "label": "x"}\n\n{"label": 7, "text": "é"}', [("a\n1", "x"), ("é", "7")]),
        ("a.ndjson", b'\xef\xbb\xbf{"text": "one", "label": " x "}\r\n', [("one", "x")]),
    ],
)  # fmt: skip
def test_file_is_read(write: Write, name: str, content: bytes | str, expected: list[tuple[str, str]]) -> None:
    assert read(write(name, content)) == [((text.encode(),), label) for text, label in expected]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\none,\ntwo, \nthree,x\n"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two", "label": null}\n{"text": "three", "label": "x"}\n'),
    ],
)
def test_label_that_is_not_there_is_empty(write: Write, name: str, content: str) -> None:
    assert [label for _, label in read(write(name, content))] == ["", "", "x"]


def test_folder_holds_a_folder_of_files_in_any_encoding_for_each_class(write: Write, tmp_path: Path) -> None:
    files = {
        "good/1.txt": b"caf\xe9",
        "good/deep/2": bytes(range(256)),
        "bad ones/3.html": "Größe".encode("utf-16"),
        "bad ones/.DS_Store": b"",
        ".git/4": b"hidden",
        "README": b"in no class",
    }
    for name, content in files.items():
        write(f"texts/{name}", content)
    (tmp_path / "texts" / "empty").mkdir()
    found = {(texts, label) for texts, label in read(tmp_path / "texts")}
    assert found == {
        ((files["good/1.txt"],), "good"),
        ((files["good/deep/2"],), "good"),
        ((files["bad ones/3.html"],), "bad ones"),
    }


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_columns_are_those_named(write: Write, suffix: str) -> None:
    path = write("a.csv", "b,a,label\ntwo,one,1\n")
    if suffix == "jsonl":
        path = write("a.jsonl", json_lines([{"b": "two", "a": "one", "label": 1}]))
    assert read(path, "a", "b") == [((b"one", b"two"), "1")]


NOT_UTF8 = "byte 6 of the line is not UTF-8; convert the file first, as in `iconv -f latin1 -t utf-8`"
TABLE_ERRORS: list[tuple[str, bytes | str, str]] = [
    ("a.csv", "body,label\none,x\n", ":1: no column 'text'; there are: body, label"),
    ("a.csv", "text,class\none,x\n", ":1: no column 'label'; there are: text, class"),
    ("a.tsv", "text,label\none,x\n", ":1: no column 'text'; there are: text,label"),
    ("a.csv", "", ":1: no column 'text'; there are: none"),
    ("a.csv", "text,label\n", " holds no row"),
    ("a.csv", "text,label\none,x\ntwo\n", ":3: expected 2 columns, not 1"),
    ("a.csv", 'text,label\n"one\n\n1",x\ntwo,y,z\n', ":5: expected 2 columns, not 3"),
    ("a.csv", "text,label\n\n\none,x\n\ntwo,y,z\n", ":6: expected 2 columns, not 3"),
    ("a.csv", 'text,label\none,x\n"two\n\n2",y,z\n', ":3: expected 2 columns, not 3"),
    ("a.csv", "text,label\none,x\n,y\n", ":3: text must be a text that is not empty"),
    ("a.csv", "text,label\n\n,y\n", ":3: text must be a text that is not empty"),
    ("a.csv", b"text,label\none,x\ncaf\x82\xe9,y\n", ":3: " + NOT_UTF8.replace("6", "4")),
    ("a.csv", b'text,label\none,x\n"two\nthree\xe9",y\n', ":4: " + NOT_UTF8),
    ("a.csv", "text,label".encode("utf-16"), ":1: " + NOT_UTF8.replace("6", "1")),
    ("a.csv", 'text,label\none,x\n"two"2,y\n', ":3: ',' expected after '\"'"),
    ("a.csv", 'text,label\none,x\n"two,y\n', ":3: unexpected end of data"),
    ("a.csv", "text,label\rone,x\r", ":1: new-line character seen in unquoted field"),
]
LINES_ERRORS: list[tuple[str, bytes | str, str]] = [
    ("a.jsonl", '{"text": "one", "label": 1}\n\n{"text": "two"', ":3: not JSON: Expecting ',' delimiter"),
    ("a.jsonl", "[" * 100_000, ":1: not JSON: "),
    ("a.jsonl", '["one", 1]\n', ":1: expected an object, not list"),
    ("a.jsonl", "null\n", ":1: expected an object, not NoneType"),
    ("a.jsonl", '{"body": "one", "label": 1}\n', ":1: no 'text'; there are: body, label"),
    ("a.jsonl", "{}\n", ":1: no 'text'; there are: none"),
    ("a.jsonl", '{"text": "", "label": 1}\n', ":1: text must be a text that is not empty"),
    ("a.jsonl", '{"text": null, "label": 1}\n', ":1: text must be a text that is not empty"),
    ("a.jsonl", '{"text": ["one"], "label": 1}\n', ":1: text must be a text that is not empty"),
    ("a.jsonl", '{"text": "\\ud800", "label": 1}\n', ":1: text is not valid Unicode: surrogates not allowed"),
    ("a.jsonl", '{"text": "one", "label": 1.0}\n', ":1: label must be a text or an integer, not float"),
    ("a.jsonl", '{"text": "one", "label": true}\n', ":1: label must be a text or an integer, not bool"),
    ("a.jsonl", '{"text": "one", "label": ["x"]}\n', ":1: label must be a text or an integer, not list"),
    ("a.jsonl", b'{"text": "one"}\n{"t\x82\xe9"}\n', ":2: " + NOT_UTF8.replace("6", "4")),
    ("a.jsonl", "\n\n", " holds no row"),
]
OTHER_ERRORS: list[tuple[str, bytes | str, str]] = [
    ("a.txt", "text", ": expected a file that ends in .csv, .tsv, .jsonl, .ndjson, or a folder with a folder for each"),
    ("a", "text", ": expected a file that ends in"),
    ("a.csv.gz", "text", ": expected a file that ends in"),
    ("a.csv", table("xxxx"), ": only the label 'x' in column 'label'; at least two are needed"),
    ("a.csv", table("...."), ": no label in column 'label'; at least two are needed"),
    ("a.csv", table("xyx.xyx"), ":3: label 'y' has 2 different texts; at least 3 are needed"),
    ("a.csv", table("xxxyy") + "text 4,y\n", ":5: label 'y' has 2 different texts; at least 3 are needed"),
    ("a.csv", table("xxxx") + "text 0,y\n" * 3, ":6: label 'y' has 0 different texts; at least 3 are needed"),
]


@pytest.mark.parametrize(("name", "content", "message"), [*TABLE_ERRORS, *LINES_ERRORS, *OTHER_ERRORS])
def test_what_cannot_be_used_is_one_line_that_names_the_place(
    write: Write, name: str, content: bytes | str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(name, content)
    assert train(path, tmp_path / "runs") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}{message}")
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_file_that_does_not_exist_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / name, tmp_path / "runs") == 2
    assert capsys.readouterr().err == f"error: {tmp_path / name} does not exist\n"


def test_empty_folder_and_empty_file_within_are_named(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts" / "x").mkdir(parents=True)
    assert train(tmp_path / "texts", tmp_path / "runs") == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/texts holds no row\n"
    write("texts/x/1.txt", b"")
    assert train(tmp_path / "texts", tmp_path / "runs") == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/texts/x/1.txt: the file is empty\n"


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("text-classification", ["text", "more"], "text-classification needs 1, not 2: text more"),
        ("text-matching", ["text"], "text-matching needs 2, not 1: text"),
        ("text-matching", ["a", "b", "c"], "text-matching needs 2, not 3: a b c"),
    ],
)
def test_wrong_number_of_text_columns_is_an_error(
    write: Write, task: str, columns: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a.csv", table("xyxyxy"))
    assert train(path, path.parent / "runs", "--text-column", *columns, task=task) == 2
    assert capsys.readouterr().err == f"error: --text-column: {message}\n"


def parts_of(path: Path, config: DocumentsConfig = CONFIG) -> tuple[DocumentSet, dict[str, list[tuple[bytes, int]]]]:
    """What training sees, and the rows of every split."""
    data = load_training(config, path)
    splits = {"train": data.train, "validation": data.validation, "test": load_test(config, path, data.labels)}
    return data, {name: list(zip(part.texts, part.labels, strict=True)) for name, part in splits.items()}


@pytest.mark.parametrize("counts", [(3, 3), (3, 400), (10, 20, 30), (57, 4, 8)])
def test_every_label_is_in_every_split_in_its_share(write: Write, counts: tuple[int, ...]) -> None:
    labels = [label for label, count in zip("cab", counts, strict=False) for _ in range(count)]
    random.Random(0).shuffle(labels)
    data, parts = parts_of(write("a.csv", table("".join(labels))))
    assert data.labels == sorted(set(labels))
    assert data.notes == ()
    for index, label in enumerate(data.labels):
        count = labels.count(label)
        share = max(1, round(0.1 * count))
        found = {name: sum(number == index for _, number in rows) for name, rows in parts.items()}
        assert found == {"train": count - 2 * share, "validation": share, "test": share}
    rows = [(text.decode(), data.labels[label]) for rows in parts.values() for text, label in rows]
    assert sorted(rows) == sorted((f"text {i}", label) for i, label in enumerate(labels))


def test_fractions_of_the_splits_are_settings_and_leave_something_to_train_on(write: Write) -> None:
    path = write("a.csv", table("x" * 100 + "y" * 4))
    _, parts = parts_of(path, DocumentsConfig(name="own", validation_fraction=0.5, test_fraction=0.4))
    assert {name: [label for _, label in rows].count(0) for name, rows in parts.items()} == {
        "train": 10,
        "validation": 50,
        "test": 40,
    }
    assert [label for _, label in parts["train"]].count(1) == 2  # 2 and 2 of 4 would leave none


def test_splits_depend_on_the_texts_and_their_seed_alone(write: Write) -> None:
    rows = table("xy" * 40).splitlines()
    first = parts_of(write("a.csv", "\n".join(rows) + "\n"))[1]
    other_order = parts_of(write("b.csv", "\n".join([rows[0], *reversed(rows[1:])]) + "\n"))[1]
    other_seed = parts_of(tmp := write("a.csv", "\n".join(rows) + "\n"), DocumentsConfig(name="own", split_seed=1))[1]
    assert parts_of(tmp)[1] == first
    assert {name: sorted(found) for name, found in other_order.items()} == {n: sorted(f) for n, f in first.items()}
    assert set(other_seed["test"]) != set(first["test"])


def test_copies_are_in_one_split_and_conflicts_are_noted(write: Write) -> None:
    rows = [f"text {i % 30},{'xy'[i % 2]}" for i in range(120)]
    rows += ["text 0,y", "text 3,x", "text 1,x"]
    path = write("a.csv", "text,label\n" + "\n".join(rows) + "\n")
    data, parts = parts_of(path)
    texts = {name: {text for text, _ in found} for name, found in parts.items()}
    assert sum(map(len, texts.values())) == 30
    assert sum(map(len, parts.values())) == 123
    assert data.notes == (
        "93 rows repeat the text of another; copies are kept in one split",
        f"3 of them with another label, the first at {path}:122",
    )


def test_rows_without_a_label_are_left_out_and_counted(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a.csv", table("xy" * 20 + "." * 1000))
    assert train(path, tmp_path / "runs") == 0
    out = capsys.readouterr().out
    assert "32 training and 4 validation documents\n" in out
    assert f"1000 rows without a label are left out, the first at {path}:42" in out
    data, parts = parts_of(path)
    assert sum(map(len, parts.values())) == 40
    assert data.labels == ["x", "y"]


@pytest.mark.parametrize(
    ("labels", "metric"), [("xy" * 20, "accuracy"), ("xxxy" * 10, "accuracy"), ("xxxxy" * 10, "macro_f1")]
)
def test_imbalance_makes_macro_f1_choose_the_epoch(
    write: Write, labels: str, metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(write("a.csv", table(labels)), tmp_path / "runs") == 0
    out = capsys.readouterr().out
    assert ("the largest class is over 3 times the smallest: macro F1 chooses the epoch" in out) == (
        metric != "accuracy"
    )
    _, progress, facts, _ = checkpoint.load(tmp_path / "runs" / "a-seed0" / "last.pt")
    assert facts == {"labels": ["x", "y"], "metric": metric}
    assert list(progress.history[0])[2] == f"validation_{metric}"


WORDS = {"tea": "kettle leaf pot steep cup", "rail": "track station signal sleeper train"}


def sentence(generator: random.Random, topic: str) -> str:
    """Mostly words of all topics, at least three of its own."""
    words = [
        *generator.choices(["the", "a", "of", "and", "in", "with", "some", "over"], k=9),
        *generator.choices(WORDS[topic].split(), k=3),
    ]
    generator.shuffle(words)
    return " ".join(words)


def predicted(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, object]]:
    capsys.readouterr()
    assert service(["predict", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


TOPICS = list(WORDS) * 60


def test_documents_in_a_table_are_learned(write: Write, tmp_path: Path) -> None:
    generator = random.Random(3)
    rows = "".join(f'1,"{sentence(generator, topic)}\n",{topic}\n' for topic in TOPICS)
    path = write("topics.csv", 'id,"the ""body""",größe\n' + rows)
    columns = ["--text-column", 'the "body"', "--label-column", "größe"]
    assert train(path, tmp_path / "runs", *columns, "--set", "training.epochs=3") == 0
    run = tmp_path / "runs" / "topics-seed0"
    assert call("evaluate", run, "--data", path, "--device", "cpu") == 0
    figures = {
        (found["metric"], found["condition"]): found for found in json.loads((run / "evaluation.json").read_text())
    }
    assert figures["accuracy", "windows"]["examples"] == 12
    assert figures["accuracy", "windows"]["value"] >= 0.9


def test_documents_go_from_a_folder_to_an_answer(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = random.Random(3)
    path = tmp_path / "topics"
    for i, topic in enumerate(TOPICS):
        write(f"topics/{topic}/{i}.txt", sentence(generator, topic).encode("utf-16"))
    assert train(path, tmp_path / "runs", "--set", "training.epochs=3") == 0
    run, exports = tmp_path / "runs" / "topics-seed0", tmp_path / "exports"
    assert call("export", run, "--data", path, "--out", exports, "--device", "cpu") == 0
    manifest = read_manifest(exports / "topics" / "1")
    assert isinstance(manifest, ClassifierManifest)
    assert manifest.labels == ("rail", "tea")
    assert (manifest.max_length, manifest.training.data, manifest.data_terms) == (512, "own", "Own data.")
    assert not manifest.non_commercial
    figures = {(result.metric, result.condition): result for result in manifest.results}
    assert figures["accuracy", "windows"].examples == 12
    assert figures["accuracy", "windows"].value >= 0.9
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exports / "topics", "--data", path, "--out", target, "--device", "cpu") == 0
    assert json.loads(target.read_text()) == json.loads(manifest.model_dump_json())["results"]
    assert call("evaluate", run, "--data", path, "--device", "cpu") == 0
    assert json.loads((run / "evaluation.json").read_text()) == json.loads(target.read_text())
    asked = [write(f"{i}.txt", sentence(generator, topic).encode("utf-16")) for i, topic in enumerate(WORDS)]
    answers = predicted(capsys, exports / "topics", *asked)
    assert [answer["label"] for answer in answers] == list(WORDS)


def test_export_without_its_file_is_an_error(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LONGDOC_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert train(write("a.csv", table("xxxyyy")), tmp_path / "runs") == 0
    capsys.readouterr()
    assert call("export", tmp_path / "runs" / "a-seed0", "--out", tmp_path / "exports", "--device", "cpu") == 2
    assert re.fullmatch(r"error: data: expected a file that ends in .*\n", capsys.readouterr().err)
    assert not (tmp_path / "exports").exists()


def test_resumed_training_of_a_file_goes_on(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("a.csv", table("xxxyyy"))
    assert train(path, tmp_path / "runs") == 0
    assert train(path, tmp_path / "runs", "--resume") == 0
    assert train(path, tmp_path / "runs") == 2
    assert "a-seed0 exists; give --resume" in capsys.readouterr().err
    path.write_text(table("xxxyyy").replace("text,", "body,"))
    assert train(path, tmp_path / "runs", "--resume", "--text-column", "body") == 2
    assert "was trained with another recipe" in capsys.readouterr().err


def pair_rows(count: int, seed: int = 1) -> list[dict[str, object]]:
    """Pairs that belong together if they are of one topic; every first text is in two of them."""
    generator = random.Random(seed)
    rows: list[dict[str, object]] = []
    for i in range(count // 2):
        topic, other = generator.sample(list(WORDS), 2)
        first = f"{i} {sentence(generator, topic)}"
        rows += [{"a": first, "b": sentence(generator, t), "label": int(t == topic)} for t in (topic, other)]
    return rows


PAIRS = PairsConfig(name="own", text_column="a", other_column="b")


def test_pairs_are_split_by_their_first_text(write: Write) -> None:
    rows = pair_rows(400)
    path = write("pairs.jsonl", json_lines(rows))
    pairs = load_pairs(PAIRS, path)
    found = [
        {"a": pairs.texts[a].decode(), "b": pairs.texts[b].decode(), "label": label}
        for split in SPLITS
        for a, b, label in pairs.table[split].tolist()
    ]
    assert sorted(map(str, found)) == sorted(map(str, rows))
    firsts = [{a for a, _, _ in pairs.table[split].tolist()} for split in SPLITS]
    assert sum(map(len, firsts)) == len(set.union(*firsts)) == 200
    assert [len(part) for part in firsts] == pytest.approx([160, 20, 20], abs=15)
    again = load_pairs(PAIRS, write("again.jsonl", json_lines(rows[::-1])))
    for split in SPLITS:
        texts = [sorted((p.texts[a], p.texts[b], y) for a, b, y in p.table[split].tolist()) for p in (pairs, again)]
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "a,b,label\none,two,1\none,three,yes\n", ":3: label must be 0 or 1, not 'yes'"),
        ("a.csv", "a,b,label\none,two,\n", ":2: label must be 0 or 1, not ''"),
        ("a.csv", "a,c,label\none,two,1\n", ":1: no column 'b'; there are: a, c, label"),
        ("a.csv", "a,b,label\none,,1\n", ":2: b must be a text that is not empty"),
        ("a.jsonl", '{"a": "one", "b": "two", "label": 2}\n', ":1: label must be 0 or 1, not '2'"),
        ("a.jsonl", '{"a": "one", "b": 2, "label": 1}\n', ":1: b must be a text that is not empty"),
        ("a.jsonl", '{"a": "one", "b": "two", "label": true}\n', ":1: label must be a text or an integer, not bool"),
        ("a.csv", "a,b,label\none,two,1\n", ": the "),
    ],
)  # fmt: skip
def test_pairs_that_cannot_be_used_are_one_line_that_names_the_place(
    write: Write, name: str, content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(name, content)
    assert train(path, tmp_path / "runs", "--text-column", "a", "b", task="text-matching") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}{message}")
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_split_without_pairs_of_both_labels_is_an_error(write: Write) -> None:
    rows = [{**row, "label": 1} for row in pair_rows(100)]
    with pytest.raises(UserError, match=r"the train split, .* has \d+ pairs of label 1, 0 of label 0; it needs both"):
        load_pairs(PAIRS, write("a.jsonl", json_lines(rows)))


def test_folder_of_pairs_is_an_error(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("texts/x/1", "one")
    assert train(tmp_path / "texts", tmp_path / "runs", task="text-matching") == 2
    assert (
        capsys.readouterr().err == f"error: {tmp_path}/texts: a folder holds no pairs; give a CSV or JSON Lines file\n"
    )


def test_pairs_go_from_a_file_to_an_answer(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("links.jsonl", json_lines(pair_rows(400)))
    settings = ["--text-column", "a", "b", "--set", "training.epochs=6", "--set", "model.encoder.dim=16"]
    assert train(path, tmp_path / "runs", *settings, task="text-matching") == 0
    run, exports = tmp_path / "runs" / "links-seed0", tmp_path / "exports"
    assert call("export", run, "--data", path, "--out", exports, "--device", "cpu") == 0
    manifest = read_manifest(exports / "links" / "1")
    assert isinstance(manifest, MatcherManifest)
    assert (manifest.max_length, manifest.data_terms, manifest.non_commercial) == (512, "Own data.", False)
    assert {result.metric: result.value for result in manifest.results}["auc"] > 0.9
    target = tmp_path / "evaluation.json"
    assert call("evaluate", exports / "links", "--data", path, "--out", target, "--device", "cpu") == 0
    assert json.loads(target.read_text()) == json.loads(manifest.model_dump_json())["results"]
    generator = random.Random(9)
    tea, rail = (sentence(generator, topic) for topic in WORDS)
    asked = write("asked.jsonl", json_lines([{"a": tea, "b": sentence(generator, "tea")}, {"a": tea, "b": rail}]))
    alike, different = predicted(capsys, exports / "links", "--jsonl", asked)
    assert float(str(alike["score"])) > float(str(different["score"]))


def test_data_with_other_labels_than_the_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"text": f"{word} number {i}", "label": label} for i in range(20) for word, label in (("a", "x"), ("b", "y"))
    ]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("".join(json.dumps(row) + "\n" for row in rows))
    second.write_text("".join(json.dumps({**row, "label": {"x": "z"}.get(row["label"], "y")}) + "\n" for row in rows))
    common = ["--task", "text-classification", "--device", "cpu", "--runs", tmp_path, "--set", "training.epochs=1"]
    assert call("train", "--data", first, *common) == 0
    run = tmp_path / "first-seed0"
    for command in (["export", run, "--out", tmp_path / "exports"], ["evaluate", run]):
        capsys.readouterr()
        assert call(*command, "--data", second, "--device", "cpu") == 2
        assert "has the labels y, z; the model knows x, y" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "folder/\x1b[2J/a.txt"])
def test_label_with_a_control_character_is_refused_before_training(write: Write, name: str) -> None:
    rows = json_lines([{"text": "a", "label": "\x1b[2J"}]) if name.endswith("jsonl") else "text,label\na,\x1b[2J\n"
    path = write(name, rows)
    with pytest.raises(UserError, match=r"the label '\\x1b\[2J' holds a control character"):
        read(path.parent.parent if "folder" in name else path)
