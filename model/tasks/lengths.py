"""Choice between windows and one pass over whole documents. Used by `model.tasks.words`."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from model.config.models import NgramViewConfig
from model.config.run import ClassificationRun
from model.data.documents import LabelledDocuments
from model.data.own_recipe import LENGTHS, LONG, WHOLE
from model.data.sampling import sample
from model.nn.words import WordHasher
from model.tasks.ngrams import HeldOut, count, differences, held_out

SAMPLE_DOCUMENTS = 2_000
SAMPLE_BYTES = 60_000_000
"""Maximum number and size of the documents on which the lengths are compared; of more, a random sample is used. With
fewer documents, the whole may look better than it is with all: with 20 MB of the Supreme Court arguments it does."""
VIEW = "model.ngram_view."
"""Prefix of the keys that are chosen."""


def with_keys(config: ClassificationRun, keys: Mapping[str, Any]) -> ClassificationRun:
    """The recipe with other keys of its n-gram view."""
    view = config.model.ngram_view.model_copy(update=keys)
    return config.model_copy(update={"model": config.model.model_copy(update={"ngram_view": view})})


def choose_length(
    documents: LabelledDocuments, num_classes: int, config: NgramViewConfig, given: Collection[str]
) -> dict[str, Any] | None:
    """`keys` of the n-gram view for documents of these lengths, and the `reason`; None if windows hold nearly all.

    Windows and the whole are compared by the cross-entropy of held-out documents, on the folds on which all other
    settings are chosen: with single words and the best C of each. `given` are keys of the user, which stay.
    """
    sizes = [len(text) for text in documents.texts]
    share_of_long = float(np.mean([size > config.max_length for size in sizes]))
    if share_of_long <= LONG:
        return None
    chosen = documents.of(sample([min(size, LENGTHS[-1]) for size in sizes], SAMPLE_DOCUMENTS, SAMPLE_BYTES))
    longest = next((size for size in LENGTHS if size >= max(sizes)), LENGTHS[-1])
    keys = {key: value for key, value in {"max_length": longest, **WHOLE}.items() if VIEW + key not in given}
    labels = np.array(chosen.labels)
    found = list[HeldOut]()
    for one in (config, config.model_copy(update=keys)):
        hasher = WordHasher(1, one.max_length)
        try:
            counted = count(hasher, chosen.texts, one.max_length, one.max_length // 8, chosen.groups)
        except ValueError:  # no document contains a word
            return None
        found.append(held_out(counted, labels, num_classes, one))
    windows, whole = found
    is_whole = bool((whole.losses - windows.losses).mean() < 0)
    found_in = differences((f"up to {longest:,} bytes at once", whole), ("in windows", windows), "of them")
    reason = (
        f"{share_of_long:.0%} of the training documents are longer than {config.max_length:,} bytes; {found_in}: "
        f"{f'{longest:,} bytes are read at once' if is_whole else 'windows are read'}; --max-bytes chooses otherwise"
    )
    return {"keys": keys if is_whole else {}, "reason": reason}
