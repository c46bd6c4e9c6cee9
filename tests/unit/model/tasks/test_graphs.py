import numpy as np
import pytest

from artifact.documents import WORD_FIELDS
from model.tasks.graphs import golden_documents, golden_encodings, golden_windows


@pytest.mark.parametrize("length", [64, 512, 4096])
def test_golden_documents_have_edge_lengths_and_all_bytes(length: int) -> None:
    golden = golden_documents(length)
    documents, lengths = golden["bytes"], golden["lengths"]
    assert documents.shape == (8, length)
    assert (str(documents.dtype), str(lengths.dtype)) == ("uint8", "int32")
    assert sorted(lengths.tolist()) == sorted([1, 2, 17, length // 2, length // 2 + 1, length - 1, length, length])
    for document, size in zip(documents, lengths, strict=True):
        assert not document[size:].any()
    assert (documents[1, :2] == 0).all()
    assert documents.max() > 127


def test_golden_encodings_are_in_single_precision() -> None:
    golden = golden_encodings(16, 0)
    assert list(golden) == ["a", "b"]
    for array in golden.values():
        assert array.shape == (8, 16)
        assert str(array.dtype) == "float32"
    assert not np.array_equal(golden["a"], golden["b"])


def test_golden_encodings_have_from_no_words_to_all_and_some_are_shared() -> None:
    golden = golden_encodings(16, 21)
    a, b = (array[:, 16:].reshape(8, 21, WORD_FIELDS) for array in golden.values())
    for document, (words, _) in enumerate(zip(a, b, strict=True)):
        keys = words[:, 0]
        count = np.count_nonzero(keys)
        assert count == 3 * document
        assert (np.diff(keys[:count]) > 0).all()
        assert not words[count:].any()
    assert len(np.intersect1d(a[-1, :, 0], b[-1, :, 0])) > 10


def test_golden_windows_include_a_constant_one() -> None:
    (series,) = golden_windows(24, 3).values()
    assert series.shape == (3, 24, 3)
    assert series.dtype == np.float32
    assert np.ptp(series[0]) == 0
    assert not series[1, :-1].any()
    assert series[1, -1].any()
    assert np.ptp(series[2]) > 0


def test_golden_inputs_are_deterministic() -> None:
    for first, second in (
        (golden_documents(64), golden_documents(64)),
        (golden_encodings(8, 3), golden_encodings(8, 3)),
        (golden_windows(8, 2), golden_windows(8, 2)),
    ):
        assert all(np.array_equal(first[name], second[name]) for name in first)
