"""Fragments of made-up packages, their splits, the rivals and the report."""

import functools
import io
import itertools
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.models import fragments
from benchmarks.models.fragments import SIZE, SKIPPED, Fragment, Part, Rival
from tests.support.records import expect_in_report, made_up


def test_fragments_of_a_file_leave_out_its_beginning_and_do_not_overlap() -> None:
    content = bytes(SKIPPED) + np.arange(1, 4 * SIZE, dtype=">u4").tobytes()
    found = sorted(fragments.fragments_of("package:file", content))
    assert [one.rank[0] for one in found] == [0, 1, 2, 3]
    starts = sorted(int(one.place.rpartition("+")[2]) for one in found)
    assert starts[0] >= SKIPPED
    assert all(second - first >= SIZE for first, second in itertools.pairwise(starts))
    for one in found:
        start = int(one.place.rpartition("+")[2])
        assert one.text == content[start : start + SIZE]
        assert len(one.text) == SIZE
    assert len([*fragments.fragments_of("file", bytes(SKIPPED + SIZE))]) == 1


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("./usr/a.PY", b"", "python"),
        ("./usr/lib/a.so.1", b"\x7fELF", "elf"),
        ("./usr/bin/a", b"\x7fELF", "elf"),
        ("./usr/lib/a.o", b"\x7fELF", None),
        ("./usr/share/a", b"text", None),
    ],
)
def test_type_is_that_of_the_suffix_or_of_a_program(path: str, content: bytes, kind: str | None) -> None:
    assert fragments.type_of(path, content) == kind


def text_of(number: int) -> bytes:
    return np.random.default_rng(number).bytes(SIZE)


def fragment(number: int, rank: int = 0) -> Fragment:
    return Fragment(bytes([rank]) + str(number).encode(), text_of(number), f"file {number}")


def test_copies_are_dropped_and_types_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "PER_TYPE", 2)
    found = {("c", "one"): [fragment(1), fragment(2, 1)], ("c", "two"): [fragment(3)], ("xml", "one"): [fragment(1)]}
    assert fragments.without_copies(found) == {("c", "one"): [fragment(1)], ("c", "two"): [fragment(3)]}


def test_table_keeps_source_packages_together(tmp_path: Path) -> None:
    found = {
        (kind, f"source {number}"): [fragment(1000 * place + 10 * number + i) for i in range(4)]
        for place, kind in enumerate(("c", "xml"))
        for number in range(20)
    }
    file = tmp_path / "fragments.parquet"
    fragments.write(found, file)
    parts, kinds = fragments.read_parts(file)
    assert kinds == ["c", "xml"]
    assert {name: len(part.texts) for name, part in parts.items()} == {"train": 96, "validation": 16, "test": 48}
    sources = [set(part.sources.tolist()) for part in parts.values()]
    assert sum(map(len, sources)) == len(set().union(*sources)) == 20
    texts = {one.text: kind for (kind, _), some in found.items() for one in some}
    for part in parts.values():
        assert [texts[text] for text in part.texts] == [kinds[label] for label in part.labels]


def package(folder: Path, name: str, source: str, files: dict[str, bytes]) -> Path:
    """A package as `dpkg-deb` reads it."""
    control = f"Package: {name}\nSource: {source} (1.0)\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n"
    parts = {"debian-binary": b"2.0\n"}
    for member, members in (("control.tar", {"./control": control.encode()}), ("data.tar", files)):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path, content in members.items():
                info = tarfile.TarInfo(path)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        parts[member] = stream.getvalue()
    file = folder / f"{name}_1_all.deb"
    with file.open("wb") as out:
        out.write(b"!<arch>\n")
        for member, content in parts.items():
            out.write(f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content)
            out.write(b"\n" * (len(content) % 2))
    return file


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_packages_are_read_without_installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"./a.c": text_of(1) * 2, "./b.c": text_of(2) * 2, "./short.c": b"int", "./other": text_of(3) * 2}
    packages = [package(tmp_path, name, "both", files) for name in ("first", "second")]
    monkeypatch.setattr(fragments, "PACKAGES", "second first")
    assert fragments.download(tmp_path) == packages
    found = fragments.collect(packages)
    assert [*found] == [("c", "both")]
    assert len(found["c", "both"]) == 4
    assert all(one.text in files["./a.c"] + files["./b.c"] for one in found["c", "both"])


def test_rivals_learn_from_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 2
    texts = [bytes((generator.integers(0, 100, 500) + 100 * label).astype(np.uint8)) for label in labels]
    part = Part(texts, labels, np.arange(120) // 4)
    parts = {"train": part, "test": part}
    for one in (
        Rival("C={:g}", functools.partial(fragments.ngram_counts, 2), fragments.regression, ((10.0,),)),
        Rival("rate {:g}", fragments.byte_counts, fragments.boosting, ((0.1, 4, 5),)),
    ):
        monkeypatch.setattr(fragments, "RIVALS", {"rival": [one]})
        found = fragments.rival("rival", parts)
        assert found == {"setting": one.name.format(*one.settings[0]), "held_out": 1, "correct": "1" * 120}


def test_folds_choose_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.arange(40) % 2
    part = Part([bytes([label]) for label in labels], labels, np.arange(40) // 4)

    def classify(settings: Sequence[tuple[float, ...]], x: Any, _: Any, others: Any) -> Iterator[Any]:
        del x
        for (share,) in settings:
            yield np.where(np.arange(len(others)) < share * len(others), others[:, 1], 1 - others[:, 1])

    one = Rival("share {:g}", fragments.byte_counts, classify, ((0.5,), (1.0,), (0.0,)))
    monkeypatch.setattr(fragments, "RIVALS", {"rival": [one]})
    found = fragments.rival("rival", {"train": part, "test": part})
    assert (found["setting"], found["held_out"], found["correct"]) == ("share 1", 1, "1" * 40)


def test_report_compares_with_the_best_rival(tmp_path: Path) -> None:
    runs = [
        {"model": model, "seed": 0, "setting": "a", "revision": "abc", "correct": right}
        for model, right in zip((*fragments.RIVALS, fragments.LINEAR), ("1000", "1100", "1110"), strict=True)
    ]
    counts = {"train": 5, "validation": 2, "test": 2}
    data = {
        "runs": runs,
        "fragments": {"c": counts, "xml": counts},
        "test_labels": [0, 0, 1, 1],
        "test_sources": [7, 7, 8, 9],
    }
    lines = [
        "| byte histograms, gradient boosting | a | 50.00 | |",
        "| linear view | a | 75.00 | +25.0 ± 28.6 |",
        "| xml | 5 | 2 | 2 | 0 | 0 | 50 |",
    ]
    expect_in_report(fragments.BENCHMARK, made_up(data), lines, tmp_path)
