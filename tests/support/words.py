"""Documents of words, for a small classifier of words."""

import torch
from hypothesis import strategies as st

from artifact.documents import pad_rows
from model.config.models import NgramViewConfig
from tests.support import reference

LENGTH, CLASSES = 48, 3
CONFIG = NgramViewConfig(longest=3, num_ngrams=64, max_length=LENGTH)

ODD = b"abAZ09'' ..!\x00\n\x1f\x7f\x80\xc3\xa9\xdf\xe0\xe6\x97\xa5\xf0\xff"
"""At least one byte of every kind, some at the edges of their range."""
Odd = st.lists(st.sampled_from(ODD), min_size=1, max_size=LENGTH).map(bytes)
Texts = st.lists(st.one_of(Odd, st.binary(min_size=1, max_size=LENGTH)), min_size=1, max_size=5)


def padded(*texts: bytes, length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, length)
    return torch.from_numpy(document), torch.from_numpy(lengths)


def every_second_ngram(*texts: bytes, limit: int = CONFIG.num_ngrams) -> list[int]:
    """Return hashes of about half of the n-grams, and one hash of no n-gram; in no order, at most `limit`."""
    hashes = sorted({value for text in texts for value in reference.ngram_set(text, CONFIG.longest)})
    return [12345, *hashes[::2]][:limit][::-1]
