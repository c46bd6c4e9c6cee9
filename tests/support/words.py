"""Documents of words, for a small classifier of words."""

# ruff: noqa: RUF001
import torch
from hypothesis import strategies as st

from artifact.documents import pad_rows
from model.config.models import NgramViewConfig
from tests.support import reference

LENGTH, CLASSES = 48, 3
CONFIG = NgramViewConfig(longest=3, num_ngrams=64, max_length=LENGTH)


def cut(text: str) -> bytes:
    """Return the first bytes of a text; the last character may be incomplete."""
    return text.encode()[:LENGTH]


ODD = b"abAZ09'' ..!\x00\n\x1f\x7f\x80\xc3\xa9\xdf\xe0\xe6\x97\xa5\xf0\xff"
"""At least one byte of every kind, some at the edges of their range."""
Odd = st.lists(st.sampled_from(ODD), min_size=1, max_size=LENGTH).map(bytes)
CHARACTERS = (
    "abAZ09'.! \x00\u00a0\u00ad\u0301\u200b\u200d\u2019\u2028\ufeff\ufe0f"
    "—…“éÉßſИйЙñΣςקाक्षหนึ東ｱ한❤Ａ\ue000\uffff😀𝐀\U000e0100"
)
"""At least one character of every kind and length."""
Text = st.text(st.one_of(st.sampled_from(CHARACTERS), st.characters(codec="utf-8")), min_size=1).map(cut)
Texts = st.lists(st.one_of(Odd, Text, st.binary(min_size=1, max_size=LENGTH)), min_size=1, max_size=5)


def padded(*texts: bytes, length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, length)
    return torch.from_numpy(document), torch.from_numpy(lengths)


def every_second_ngram(*texts: bytes, limit: int = CONFIG.num_ngrams, prefixes: bool = False) -> list[int]:
    """Return hashes of about half of the n-grams, and one hash of no n-gram; in no order, at most `limit`."""
    found = (reference.ngram_set(text, CONFIG.longest, prefixes=prefixes) for text in texts)
    hashes = sorted(set().union(*found))
    return [12345, *hashes[::2]][:limit][::-1]
