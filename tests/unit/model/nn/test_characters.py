"""Kinds and values of characters, compared with a reference that asks `unicodedata` for names and categories."""

import torch

from model.nn.characters import AFTER, CODES, IN_WORD, MARK, SEPARATOR, SKIPPED, Characters
from tests.support import reference


def numbers_of(*characters: str) -> list[int]:
    """Numbers at the first bytes of characters; those at their other bytes are SKIPPED."""
    encoded = [character.encode("utf-8", "surrogatepass") for character in characters]
    document = b"".join(encoded) + bytes(AFTER)
    found: torch.Tensor = Characters()(torch.tensor([list(document)], dtype=torch.int32))
    parts = torch.split(found[0], [len(part) for part in encoded])
    assert not any(part[1:].any() for part in parts)
    return [int(part[0]) for part in parts]


def number(kind: str, folded: str) -> int:
    """Number of a kind of the reference and a folded character."""
    if kind in ("letter", "mark"):
        return (IN_WORD if kind == "letter" else MARK) + (ord(folded) if folded else 0)
    return SKIPPED if kind == "skipped" else SEPARATOR


def test_every_character_of_the_table_equals_reference() -> None:
    characters = [chr(code) for code in range(CODES)]
    expected = [number(*reference.character(character)) for character in characters]
    assert numbers_of(*characters) == expected


def test_characters_of_four_bytes_are_marks() -> None:
    codes = (0x10000, 0x1D400, 0x1F600, 0x1F601, 0x20000, 0x2FFFF, 0xE0100, 0x10FFFF)
    assert numbers_of(*map(chr, codes)) == [MARK + code for code in codes]
    assert all(0 < MARK + code < IN_WORD for code in codes)


def test_folded_characters_stay_as_they_are() -> None:
    values = {number % CODES for number in numbers_of(*map(chr, range(CODES))) if number > 0} - {0}
    assert all(
        number % CODES in (value, 0) for value, number in zip(values, numbers_of(*map(chr, values)), strict=True)
    )
