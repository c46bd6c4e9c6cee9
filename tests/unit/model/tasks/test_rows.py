from collections.abc import Mapping

import numpy as np

from model.tasks.rows import BATCH, run_on_rows, run_on_windows


def test_rows_keep_their_order_and_use_the_shortest_bucket() -> None:
    rows = [bytes([i % 256]) * (1 + 37 * i % 300) for i in range(100)]
    shapes = []

    def run(padded: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        documents, lengths = padded
        shapes.append(documents.shape)
        assert (documents[np.arange(len(documents)), lengths - 1] == documents[:, 0]).all()
        return np.stack([documents[:, 0], lengths], axis=1)

    outputs = run_on_rows(run, rows, (64, 128, 300))
    assert outputs.tolist() == [[row[0], len(row)] for row in rows]
    assert all(count <= BATCH for count, _ in shapes)
    expected = [next(b for b in (64, 128, 300) if b >= len(row)) for row in rows]
    assert {b: sum(count for count, width in shapes if width == b) for b in (64, 128, 300)} == {
        b: expected.count(b) for b in (64, 128, 300)
    }
    assert run_on_rows(run, rows[:1], (300,)).tolist() == [[0, 1]]


def test_documents_get_the_outputs_of_their_windows() -> None:
    def run(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.stack([inputs["bytes"][:, 0], inputs["lengths"]], axis=1).astype(np.float32)

    texts = [b"abc", bytes(range(20)), b"z"]
    found = run_on_windows(run, texts, 8, 2, (4, 8))
    assert [part.tolist() for part in found] == [[[97, 3]], [[0, 8], [6, 8], [12, 8]], [[122, 1]]]
