"""Characters in bytes of UTF-8, and what each of them means for words. Used by `model.nn.words`."""

# ruff: noqa: RUF001
import unicodedata
from functools import cache

import torch
from torch import Tensor, nn

from model.nn.ops.integers import lookup

IN_WORD, MARK, SKIPPED, SEPARATOR = 1 << 24, 1 << 16, 0, -(1 << 16)
"""Kinds of characters: part of a word; a word by itself; skipped, as if it were not there; in no word.

The number of a character is its kind plus its value, which is below 2^16 and 0 if the character does not count in the
hash of its word. All positive numbers below IN_WORD are marks.
"""
CODES = 1 << 16
"""Number of code points in the table. Characters of four bytes have larger ones."""
BYTES = 128
"""Code point c, from 128, is at place BYTES + c of the table. The first 256 places are single bytes."""
CONTINUATION, TWO, THREE = 0x80, 0xC0, 0xE0
"""Smallest continuation byte, and smallest first byte of characters of two, and of three or four bytes."""
SECOND = BYTES - 64 * TWO
THIRD = BYTES - 4096 * THREE - 65 * SECOND
FOURTH = (MARK - SECOND) // 64 - BYTES - CODES
"""Constants of the places of characters of two and of three bytes, and of the numbers of those of four bytes."""
MISSING = -(1 << 23)
"""Replaces the bits of a continuation byte that is missing; the place or number becomes negative."""
AFTER = 3
"""Number of bytes after each first byte that may belong to its character."""

APOSTROPHE = "'"
ACCENTS = ((0x0300, 0x036F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F))
"""Blocks of combining accents. They are skipped, and letters count without those that they contain."""
VARIATION_SELECTORS = ((0x180B, 0x180D), (0x180F, 0x180F), (0xFE00, 0xFE0F))
ZERO_WIDTH_SPACE = 0x200B
WITHOUT_SPACES = (
    (0x0E00, 0x109F),  # Thai, Lao, Tibetan, Myanmar
    (0x1100, 0x11FF),  # Hangul letters
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0xA4CF),  # Han, Hiragana, Katakana, Bopomofo, Hangul letters, Yi
    (0xA960, 0xA97F),  # Hangul letters
    (0xA9E0, 0xA9FF),  # Myanmar
    (0xAA60, 0xAA7F),  # Myanmar
    (0xAC00, 0xD7FF),  # Hangul
    (0xF900, 0xFAFF),  # Han
    (0xFF66, 0xFFDC),  # halfwidth Katakana and Hangul
)
"""Blocks of scripts without spaces between words, and of Hangul. Each of their letters is a word by itself."""
SAME_MARKS = {
    '"': "«»“”„‟‹›″「」『』〝〞〟",
    APOSTROPHE: "'‘’‚‛ʼ",
    "-": "−",
    ".": "。۔।",
    ",": "、،",
    ";": "؛",
    "?": "؟",
}
"""Marks that count as an ASCII mark, besides dashes and those that Unicode decomposes into ASCII marks."""


class Characters(nn.Module):
    """Decodes UTF-8 and looks the characters up.

    The number of a character is at its first byte. Continuation bytes are skipped, whether or not they belong to a
    character. A first byte that lacks one of its continuation bytes is the letter of Latin-1 with this value. A
    character of four bytes is a mark; its value is the lowest 16 bits of its code point.

    Shape:      document (B, N + AFTER) int32, which ends with AFTER zeros; returns numbers (B, N) int32.
    Note:       The table follows the Unicode version of Python's `unicodedata`.
    """

    numbers: Tensor
    """Numbers of single bytes, then of code points from 128."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("numbers", _numbers(), persistent=False)

    def forward(self, document: Tensor) -> Tensor:
        """Numbers of the characters of (B, N + AFTER) bytes -> (B, N)."""
        first = document[:, :-AFTER]
        is_continuation = (document >= CONTINUATION) & (document < TWO)
        bits = torch.where(is_continuation, document - (CONTINUATION - SECOND), MISSING)  # SECOND plus six bits
        two = 64 * first + bits[:, 1:-2]  # place of a character of two bytes
        three = 64 * two + bits[:, 2:-1] + THIRD
        is_large = three >= BYTES + CODES
        four = 64 * torch.where(is_large, three + FOURTH, 0) + bits[:, 3:]  # number of one of four bytes, or negative
        # The place of a shorter or incomplete character is smaller than its first byte.
        place = torch.maximum(torch.where(first >= THREE, three, two), first)
        numbers = lookup(self.numbers, torch.where(is_large, first, place))
        return torch.where(four > 0, four, numbers)


@cache
def _numbers() -> Tensor:
    """Numbers by place, (BYTES + CODES,) int32."""
    codes = [_number(code) for code in range(CODES)]
    letters = [IN_WORD + _letter(byte) for byte in range(TWO, 256)]
    single = codes[:CONTINUATION] + [SKIPPED] * (TWO - CONTINUATION) + letters
    return torch.tensor(single + codes[CONTINUATION:], dtype=torch.int32)


def _number(code: int) -> int:
    """Number of a code point."""
    if code >= CODES:
        return MARK + code % CODES
    character = chr(code)
    category = unicodedata.category(character)
    if category[0] == "Z" or category in ("Cc", "Cn", "Cs") or code == ZERO_WIDTH_SPACE:
        return SEPARATOR
    if category == "Cf" or _is_in(code, ACCENTS) or _is_in(code, VARIATION_SELECTORS):
        return SKIPPED
    decomposed = unicodedata.normalize("NFKD", character)
    if decomposed != character and len(decomposed) == 1:  # another form of a character
        return _number(ord(decomposed))
    if character in SAME_MARKS[APOSTROPHE]:
        return IN_WORD
    if category[0] in "LMN":
        is_word = category[0] != "N" and _is_in(code, WITHOUT_SPACES)
        return (MARK if is_word else IN_WORD) + _letter(code)
    return MARK + ord(_folded_mark(character, category, decomposed))


def _is_in(code: int, blocks: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in blocks)


def _letter(code: int) -> int:
    """Code point of a letter in lower case and without accents; the same if these are several characters."""
    letter = chr(code)
    parts = unicodedata.normalize("NFKD", letter)
    bare = "".join(part for part in parts if not _is_in(ord(part), ACCENTS))
    found = (one for one in (bare.casefold(), letter.casefold(), letter.lower()) if len(one) == 1)
    return next((ord(one) for one in found if unicodedata.category(one)[0] in "LN"), code)


def _folded_mark(mark: str, category: str, decomposed: str) -> str:
    """The ASCII mark that a mark counts as, or else the mark itself."""
    for ascii_mark, others in SAME_MARKS.items():
        if mark in others:
            return ascii_mark
    if category == "Pd":
        return "-"
    return decomposed[0] if decomposed.isascii() and not decomposed[0].isalnum() else mark
