"""Vocabulary: a perfect hash table from n-grams to their ids. Used by `model.nn.ngrams`."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.nn.ops.integers import divide, lookup, remainder

HASH_MULTIPLIER = 2654435761
"""Multiplier of Knuth's multiplicative hash: 2^32 / golden ratio."""
NGRAMS_PER_BUCKET = 4
"""Mean number of n-grams per bucket (the n-grams that share a displacement) if half of the slots are used."""
MAX_DISPLACEMENTS = 1000
"""Number of displacements that are tried per bucket."""
MAX_DIVISORS = 16
"""Number of divisors that `fill` tries: two n-grams of a bucket may collide with one and not with the next."""


class Vocabulary(nn.Module):
    """Hash table from n-grams to their ids. The hash is perfect: no two n-grams share a slot.

    slot = (high bits of (hash * HASH_MULTIPLIER mod 2^32) + displacement[hash mod num_buckets] * step) mod num_slots,
    step = 2 (hash mod divisor) + 1

    Shape:      hashes (M,) int64 below 2^31; returns ids (M,) int64, 0 for unknown n-grams, else 1 ... num_ngrams.
    Reference:  hash and displace: Belazzougui, Botelho and Dietzfelbinger 2009, "Hash, displace, and compress", sec. 3.
    """

    entries: Tensor
    """Hash and id of the n-gram in each slot, -1 and 0 if the slot is empty."""
    displacements: Tensor
    """Displacement of each bucket."""
    divisor: Tensor
    """Odd; `fill` chooses it."""

    def __init__(self, num_ngrams: int) -> None:
        super().__init__()
        self.num_slots = 1 << (3 * num_ngrams // 2).bit_length()
        self.num_buckets = max(1, self.num_slots // (2 * NGRAMS_PER_BUCKET))
        self.register_buffer("entries", torch.tensor([[-1, 0]], dtype=torch.int32).repeat(self.num_slots, 1))
        self.register_buffer("displacements", torch.zeros(self.num_buckets, dtype=torch.int32))
        self.register_buffer("divisor", torch.tensor(self.num_slots - 1))

    def forward(self, hashes: Tensor) -> Tensor:
        """Ids (M,) of the n-grams with these hashes (M,)."""
        slots = self.slots(hashes, lookup(self.displacements.long(), remainder(hashes, self.num_buckets)))
        found, ids = lookup(self.entries, slots).unbind(1)
        return torch.where(found == hashes.int(), ids, 0).long()

    def slots(self, hashes: Tensor, displacement: Tensor) -> Tensor:
        """Slot of each hash under a displacement, in 0 ... num_slots - 1."""
        step = remainder(hashes, self.divisor) * 2 + 1  # odd, so that it visits every slot: num_slots is a power of two
        unit = 2**32 // self.num_slots
        # In fixed point, with 32 bits of which the highest are the slot; products beyond 64 bits only lose higher ones.
        return divide(remainder(hashes * HASH_MULTIPLIER + displacement * (step * unit), 2**32), unit)

    @torch.no_grad()
    def fill(self, hashes: NDArray[np.int64]) -> None:
        """Assign ids 1 ... len(hashes) to n-grams with distinct hashes.

        Raises: ValueError if no perfect hash is found.
        """
        for attempt in range(MAX_DIVISORS):
            self.divisor.fill_(self.num_slots - 1 - 2 * attempt)
            if self._fill(hashes):
                return
        raise ValueError(f"no perfect hash of {len(hashes)} n-grams in {self.num_slots} slots was found")

    def _fill(self, hashes: NDArray[np.int64]) -> bool:
        """Find a displacement for every bucket, the largest buckets first; returns whether all were found."""
        buckets = hashes % self.num_buckets
        order = np.argsort(buckets, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(buckets[order])) + 1) if len(order) else []
        self.entries[:, 0], self.entries[:, 1] = -1, 0
        for group in sorted(groups, key=len, reverse=True):
            chosen = torch.from_numpy(hashes[group])
            for displacement in range(MAX_DISPLACEMENTS):
                slots = self.slots(chosen, torch.tensor(displacement))
                if (self.entries[slots, 0] < 0).all() and len(slots.unique()) == len(slots):
                    break
            else:
                return False
            self.displacements[int(buckets[group[0]])] = displacement
            self.entries[slots] = torch.stack((chosen, torch.from_numpy(group + 1)), dim=1).int()
        return True
