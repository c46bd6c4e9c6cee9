from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.documents import OnOverflow, bytes_used, combine, cut, pad_rows, pool, softmax, take
from artifact.errors import InvalidInput


@given(st.integers(1, 3000), st.integers(2, 400), st.data())
def test_windows_cover_every_byte_with_the_requested_overlap(total: int, length: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, length - 1))
    rows = cut(total, length, overlap, "windows")
    assert rows[0][0][0] == 0
    assert rows[-1][-1][1] == total
    for (row,), (following,) in pairwise(rows):
        assert row[1] - row[0] == following[1] - following[0] == length
        assert row[1] - following[0] >= overlap
        assert following[0] > row[0]
    assert bytes_used(rows) == total


@given(st.binary(min_size=1, max_size=300), st.integers(2, 100), st.sampled_from(["head", "tail", "head_tail"]))
def test_truncated_documents_keep_their_ends(document: bytes, length: int, strategy: OnOverflow) -> None:
    (spans,) = cut(len(document), length, 0, strategy)
    row = take(document, spans)
    assert len(row) == bytes_used([spans]) == min(len(document), length)
    if strategy in ("head", "head_tail"):
        assert row[0] == document[0]
    if strategy in ("tail", "head_tail"):
        assert row[-1] == document[-1]


def test_number_of_windows_is_minimal() -> None:
    assert len(cut(100, 100, 10, "windows")) == 1
    assert len(cut(101, 100, 10, "windows")) == 2
    assert len(cut(190, 100, 10, "windows")) == 2
    assert len(cut(191, 100, 10, "windows")) == 3


def test_head_tail_joins_both_halves() -> None:
    assert cut(100, 11, 0, "head_tail") == [[(0, 6), (95, 100)]]


def test_empty_and_overlong_documents_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="at least 1 byte"):
        cut(0, 10, 0, "windows")
    with pytest.raises(InvalidInput, match="11 bytes; the model reads 10"):
        cut(11, 10, 0, "error")
    assert cut(10, 10, 0, "error") == [[(0, 10)]]


def test_rows_are_padded_with_zeros() -> None:
    batch, lengths = pad_rows([b"ab", b"", b"\0c\0d"], 4)
    assert batch.tolist() == [[97, 98, 0, 0], [0, 0, 0, 0], [0, 99, 0, 100]]
    assert lengths.tolist() == [2, 0, 4]
    assert batch.dtype == np.uint8
    assert lengths.dtype == np.int32


def test_scores_are_the_softmax_of_the_mean_of_the_windows() -> None:
    logits = np.array([[0.0, 1.0], [2.0, -1.0]], np.float32)
    expected = np.exp([1.0, 0.0]) / np.exp([1.0, 0.0]).sum()
    assert combine(list(logits)) == pytest.approx(expected, rel=1e-15)
    assert combine([np.array([1e3, 0.0], np.float32)]) == [1.0, 0.0], "large logits do not overflow"
    assert softmax(np.array([1e4, 0.0])).tolist() == [1.0, 0.0]
    assert softmax(np.array([[1e4, 0.0], [7.0, 7.0]])).tolist() == [[1.0, 0.0], [0.5, 0.5]], "each row by itself"


def test_encoding_of_a_document_is_the_mean_vector_and_the_words_with_the_smallest_keys() -> None:
    words = [[(3, 1, -8), (9, 0, 9), (0, 0, 0)], [(3, 2, 8), (5, 6, -9), (5, 2, -8)]]
    rows = np.array([[1.0, 3.0, *np.ravel(words[0])], [2.0, 5.0, *np.ravel(words[1])]], np.float32)
    assert pool(rows, 3).tolist() == [1.5, 4.0, 3, 2, 8, 5, 2, -8, 9, 0, 9]
    assert pool(rows[:1], 3).tolist() == rows[0].tolist()
    assert pool(rows[:, :2]).tolist() == [1.5, 4.0]
