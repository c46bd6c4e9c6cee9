"""Hard negatives: texts that are similar to a text but do not match it. Used by `model.data.pairs`."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

CHUNK = 512
"""Number of first texts whose similarities to all candidates are computed at once."""


def nearest(
    texts: Sequence[bytes],
    matches: NDArray[np.int64],
    candidates: NDArray[np.int64],
    known: Collection[tuple[int, ...]],
    count: int,
) -> NDArray[np.int64]:
    """Pairs (M, 2) of first texts and the candidates that are most like them by the cosine of TF-IDF.

    A first text gets `count` of them for each of its matches, the most similar first; fewer if there are no others.

    Args:
        texts: all texts.
        matches: pairs of a first and a second text that match, as indices (P, 2).
        candidates: the texts to choose from (C,).
        known: pairs that are left out.
        count: number of pairs for each match.

    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    wanted = Counter(matches[:, 0].tolist())
    firsts = np.array(list(wanted))
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\S+", dtype=np.float32)
    others = vectorizer.fit_transform(texts[i].decode(errors="replace") for i in candidates).T.tocsr()
    found = list[tuple[int, int]]()
    for start in range(0, len(firsts), CHUNK):
        chunk = firsts[start : start + CHUNK].tolist()
        similar = (vectorizer.transform(texts[i].decode(errors="replace") for i in chunk) @ others).toarray()
        for first, row in zip(chunk, similar, strict=True):
            needed = count * wanted[first]
            order = candidates[np.argsort(-row, kind="stable")]
            fits = (second for second in order.tolist() if second != first and (first, second) not in known)
            found += [(first, second) for second, _ in zip(fits, range(needed), strict=False)]
    return np.array(found, np.int64).reshape(-1, 2)
