"""Documents of words, for a word stem with few slots."""

import torch
from hypothesis import strategies as st

from artifact.documents import pad_rows
from model.config.models import WordStemConfig
from tests.support import reference

CONFIG = WordStemConfig(longest=3, num_slots=64, patch_length=4, dropout=0.0)
NUM_TOKENS, DIM, CLASSES = 12, 5, 3
LENGTH = NUM_TOKENS * CONFIG.patch_length


ODD = b"abAZ09'' ..!\x00\n\x1f\x7f\x80\xc3\xa9\xdf\xe0\xe6\x97\xa5\xf0\xff"
"""At least one byte of every kind, some at the edges of their range."""
Odd = st.lists(st.sampled_from(ODD), min_size=1, max_size=LENGTH).map(bytes)
Texts = st.lists(st.one_of(Odd, st.binary(min_size=1, max_size=LENGTH)), min_size=1, max_size=5)


def padded(*texts: bytes, length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, length)
    return torch.from_numpy(document), torch.from_numpy(lengths)


def every_second_run(*texts: bytes) -> list[int]:
    """Return hashes of about half of the runs, and one hash of no run."""
    hashes = sorted({value for text in texts for value in reference.word_runs(text, CONFIG.longest).values()})
    return [12345, *hashes[::2]]
