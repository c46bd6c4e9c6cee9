"""Hard negatives: the most similar texts that do not match."""

import numpy as np

from model.data.hard_negatives import nearest

TEXTS = [b"red tea pot", b"red tea cup", b"red tea mug", b"blue rail track", b"green tea"]


def test_the_most_similar_texts_that_do_not_match_are_found() -> None:
    matches = np.array([[0, 1]])
    found = nearest(TEXTS, matches, np.arange(5), {(0, 1)}, 2)
    assert found.tolist() == [[0, 2], [0, 4]]


def test_each_match_adds_as_many_until_no_text_is_left() -> None:
    matches = np.array([[0, 1], [0, 2], [3, 4]])
    known = {(0, 1), (0, 2), (3, 4)}
    found = nearest(TEXTS, matches, np.array([1, 2, 3, 4]), known, 1)
    assert found[found[:, 0] == 0].tolist() == [[0, 4], [0, 3]]
    assert len(found[found[:, 0] == 3]) == 1
    everything = nearest(TEXTS, matches, np.array([1, 2, 3, 4]), known, 50)
    assert sorted(everything.tolist()) == [[0, 3], [0, 4], [3, 1], [3, 2]]
