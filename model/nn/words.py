"""Words and word n-grams in raw bytes, as hashes. Used by `model.nn.classifier` and `model.nn.lexical`."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.nn.characters import AFTER, IN_WORD, SKIPPED, Characters
from model.nn.ops.integers import as_tensor, lookup, remainder

MODULUS = 2**31 - 1
BASE = 1_000_003
"""Base of the polynomial hash of a word."""
JOIN = 69_621
"""Base of the polynomial hash of a word n-gram."""
PREFIXES = (3, 4, 5)
"""Lengths in characters of the prefixes of a word that count as n-grams of a classifier."""
ZERO, NINE = ord("0"), ord("9")
BEGINS = 48_271
"""Base of the hash of a prefix, which differs from the hash of a word of the same characters."""
PREFIX = 15
"""Stands for the length in words of a prefix of a word. N-grams have at most 8 words."""
AHEAD = 8
"""Number of bytes after a letter in which a word must go on; a power of two. A letter and three accents have seven more
bytes at most, which are skipped."""


class Places(NamedTuple):
    """M places of words, (M,) each."""

    doc_index: Tensor
    """Index of the document."""
    position: Tensor
    """Position in the document of the first byte of the word's last character."""
    flat_index: Tensor
    """Index of that byte in the flattened documents (B N,), padding included."""
    is_word: Tensor | None
    """False for places that only fill a fixed shape; None if there are none of these."""


class WordHasher(nn.Module):
    """Finds the words of documents and hashes the n-grams that end at each word, and optionally prefixes of the word.

    A word is a sequence of letters and digits, or a single mark: punctuation, a symbol, a character of four bytes, or
    a letter of a script without spaces. Letters count in lower case and without accents, typographic marks as those of
    ASCII. Apostrophes are dropped. Accents, invisible characters and stray continuation bytes are skipped
    (`model.nn.characters`).

    A word has a prefix of each length in `prefixes` that it reaches. Words with different endings share prefixes. Marks
    have none. With `skips_numbered`, words that contain an ASCII digit have none either: codes often differ only at
    their end.

    Shape:      document (B, N) uint8, zero-padded, N at most max_length; lengths (B,) int32; returns hashes
                (rows, M) int64, below 2^31, -1 if the n-gram would start before the document or the word is shorter
                than the prefix: a row for each length of n-grams, then one for each of prefixes; doc_index (M,), the
                index of the document of each of the M words, ascending; and position (M,), that in the document of
                the first byte of each word's last character that is not skipped.
    Reference:  polynomial hash modulo a Mersenne prime: Karp and Rabin 1987, "Efficient randomized pattern-matching
                algorithms". Not in the S3Attention paper, which reads single bytes.
    Note:       The hash of a word is the difference of two prefix sums, so that all words are hashed in parallel. The
                sums stay below 2^63 for documents of 65,536 bytes. In longer ones they may wrap around, which leaves
                the differences exact.
    """

    powers: Tensor
    sizes: Tensor

    def __init__(
        self, longest: int, max_length: int, *, prefixes: tuple[int, ...] = (), skips_numbered: bool = False
    ) -> None:
        super().__init__()
        self.longest = longest
        self.prefixes = prefixes
        self.skips_numbered = skips_numbered
        self.characters = Characters()
        self.largest_power, self.inverse = max_length, pow(BASE, -max_length, MODULUS)
        tables = {"powers": _powers(BASE, max_length).int()}  # int32: the exported graphs store the table
        if prefixes:
            tables["sizes"] = torch.tensor(prefixes).unsqueeze(1)
        for name, tensor in tables.items():
            self.register_buffer(name, tensor, persistent=False)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.powers.device

    @property
    def lengths(self) -> Sequence[int]:
        """Length in words of the n-grams in each row of the hashes, or PREFIX."""
        return [*range(1, self.longest + 1), *[PREFIX] * len(self.prefixes)]

    def forward(
        self, document: Tensor, lengths: Tensor, *, has_fixed_shapes: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hash the n-grams of (B, N) bytes -> hashes (rows, M), doc_index (M,) and position (M,).

        With fixed shapes, M = B N whatever the documents contain: each has N places, the last ones without a word.
        Their hashes are -1.
        """
        positions = torch.arange(document.shape[1], dtype=torch.int32, device=document.device)
        is_real = positions < lengths.unsqueeze(1)  # (B, N)
        read = torch.where(is_real, document.int(), 0)
        zeros = read.new_zeros(read.shape[0], AHEAD + AFTER)
        numbers = self.characters(torch.cat((read, zeros), dim=1))  # (B, N + AHEAD)
        numbers, following = numbers[:, :-AHEAD], _following(numbers)  # (B, N)
        ends = (numbers > 0) & (torch.minimum(numbers, following) < IN_WORD)
        doc_index, position, flat_index, is_word = fixed_places(ends) if has_fixed_shapes else found_places(ends)

        value = numbers.to(torch.int16).long()  # the lowest 16 bits, signed; those of the kind are zero
        exponent = value.bool().long().cumsum(1)
        sums = (value * lookup(self.powers, exponent).long()).cumsum(1)
        end_sum, end_exponent = lookup(sums.flatten(), flat_index), lookup(exponent.flatten(), flat_index)  # (M,)
        # (M,): whether the previous word is in the same document
        is_same = doc_index[1:] == doc_index[:-1]
        follows = torch.cat((is_same.new_zeros(1), is_same))
        if is_word is not None:
            follows = follows & is_word
        start_sum, start_exponent = _previous(end_sum) * follows, _previous(end_exponent) * follows
        word = remainder(end_sum - start_sum, MODULUS)
        opposite = lookup(self.powers, self.largest_power - start_exponent).long()
        inverse = remainder(opposite * self.inverse, MODULUS)  # BASE^-k = BASE^(n - k) BASE^-n
        word = remainder(word * inverse, MODULUS)

        ngram, is_complete = word, follows
        hashes = [word if is_word is None else torch.where(is_word, word, -1)]
        for n in range(2, self.longest + 1):
            if n > 2:
                is_complete = _previous(is_complete) & follows
            ngram = remainder(_previous(ngram) * JOIN + word + n, MODULUS)
            hashes.append(torch.where(is_complete, ngram, -1))
        found = torch.stack(hashes, dim=1)  # (M, longest)
        if self.prefixes:
            # (B, N + 1): the sum after each number of characters; bytes of the same number have the same sum
            after = sums.new_zeros(sums.shape[0], sums.shape[1] + 1).scatter(1, exponent, sums).flatten()
            start = doc_index * as_tensor(sums.shape[1] + 1, doc_index)
            is_complete = end_exponent - start_exponent >= self.sizes  # (prefixes, M)
            if is_word is not None:
                is_complete = is_complete & is_word
            if self.skips_numbered:
                digits = ((value >= ZERO) & (value <= NINE)).long().cumsum(1)  # (B, N)
                end_digits = lookup(digits.flatten(), flat_index)
                is_complete = is_complete & (end_digits == _previous(end_digits) * follows)
            sum_after = lookup(after, start + torch.where(is_complete, start_exponent + self.sizes, 0))
            prefix = remainder(remainder(sum_after - start_sum, MODULUS) * inverse, MODULUS)
            prefix = remainder(prefix * BEGINS + self.sizes, MODULUS)
            found = torch.cat((found, torch.where(is_complete, prefix, -1).T), dim=1)
        return found.T, doc_index, position


def found_places(ends: Tensor) -> Places:
    """The M ends of words in (B, N), in order."""
    found = ends.nonzero().T
    doc_index, position = found[0], found[1]
    return Places(doc_index, position, doc_index * ends.shape[1] + position, None)


def fixed_places(ends: Tensor) -> Places:
    """Same as `found_places` with N places for each document; place i after its last word has position i."""
    batch, length = ends.shape
    document = torch.arange(batch, device=ends.device).unsqueeze(1)
    place = torch.arange(length, device=ends.device).expand_as(ends)
    start = document * as_tensor(length, document)  # (B, 1)
    number = ends.long().cumsum(1)  # (B, N): words that end up to here
    target = (start + number) * ends  # a byte that ends no word is written to element 0, which is dropped
    position = torch.cat((place.new_zeros(1), place.flatten()))
    position = position.scatter(0, target.flatten(), place.flatten())[1:]
    flat_index = start.expand_as(ends).flatten() + position
    return Places(document.expand_as(ends).flatten(), position, flat_index, (place < number[:, -1:]).flatten())


def _following(numbers: Tensor) -> Tensor:
    """The first number that is not SKIPPED among the AHEAD ones after each: (B, N + AHEAD) -> (B, N)."""
    found, step = numbers[:, 1:], 1
    while step < AHEAD:  # twice as many in each step
        first, second = found[:, :-step], found[:, step:]
        found = torch.where(first == SKIPPED, second, first)
        step *= 2
    return found


def _previous(x: Tensor) -> Tensor:
    """Shift by one: the previous element, zero for the first.

    ONNX: Concat, because ONNX Runtime pads no integers on CUDA.
    """
    return torch.cat((x.new_zeros(1), x[:-1]))


def _powers(base: int, count: int) -> Tensor:
    """Powers 0 ... count of `base` modulo MODULUS, (count + 1,) int64."""
    powers = [1]
    for _ in range(count):
        powers.append(powers[-1] * base % MODULUS)
    return torch.tensor(powers)
