"""Choice between words and bytes. Used by `model.runs.train`."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from model.config.run import ClassificationRun
from model.data.documents import DocumentSet, LabelledDocuments
from model.data.own_recipe import LENGTHS, LONGEST_READ
from model.data.sampling import sample
from model.nn.words import WordHasher
from model.tasks.base import KIND
from model.tasks.bytes import ByteTask
from model.tasks.ngrams import HeldOut, best_held_out, count, differences
from model.tasks.two_views import TwoViewTask
from model.tasks.views import is_better
from model.tasks.words import WordTask

SHARED = 0.2
"""Share of words that are in several documents, from which training reads words without a comparison. It is 0.25 to
0.69 for 2,000 training documents of eight data sets in English, French, Russian and Chinese. For 100 of them it is 0.11
to 0.59, and the comparison takes seconds. It is below 0.14 for 600 generated documents of which bytes told more: DNA,
codes, logs, texts in base64, texts without spaces, and reviews with 20 % of the letters changed; 0.19 for 2,000 reviews
with 10 %, of which bytes tell hardly more."""
COUNTED_DOCUMENTS = 2_000
"""Maximum number of documents whose words are counted; of more, a random sample is used."""
COMPARED_DOCUMENTS = 1_000
COMPARED_BYTES = 8_000_000
"""Maximum number and size of the documents that are compared; of more, a random sample is used. Of each, at most the
bytes count that a model can read at once."""


def with_kind(
    task: WordTask, data: DocumentSet, recipe_of_bytes: Callable[[], ClassificationRun | None]
) -> TwoViewTask:
    """The task of words, or of bytes if held-out documents are told apart better: by more than a standard error.

    Both are compared with the n-grams, scales and strengths that training tries, on the same folds, if few words are in
    several documents. `recipe_of_bytes` is called only then; it gives None if the model must be one of words.
    """
    share = shared_words(data.train)
    if share >= SHARED or (recipe := recipe_of_bytes()) is None:
        return task
    other = ByteTask(recipe, {}).with_facts_of(data)
    parts = replace(data.train, texts=[text[: LENGTHS[-1]] for text in data.train.texts])
    chosen = parts.of(sample([len(text) for text in parts.texts], COMPARED_DOCUMENTS, COMPARED_BYTES))
    of_words, of_bytes = _held_out(task, chosen), _held_out(other, chosen)
    if of_bytes is None:  # all documents are too short
        return task
    if of_words is None:
        is_chosen, reason = True, "no training document contains a word: n-grams of bytes are read"
    else:
        is_chosen = is_better(of_bytes.losses, of_words.losses)
        where = "training documents of several groups" if has_groups(data.train) else "more than one training document"
        read, option = ("bytes", "words") if is_chosen else ("words", "bytes")
        reason = (
            f"{share:.0%} of the different words are in {where}; "
            f"{differences(('bytes', of_bytes), ('words', of_words))}: n-grams of {read} are read; "
            f"--set model.kind={option} chooses otherwise"
        )
    print(reason, flush=True)
    kept = other if is_chosen else task
    return kept.knowing(**{KIND: {"kind": kept.config.model.kind, "reason": reason}})


def shared_words(documents: LabelledDocuments) -> float:
    """Share of the different words that several documents contain; with groups, documents of several groups.

    Of at most COUNTED_DOCUMENTS documents, and the first LONGEST_READ bytes of each. 0 if there are no words.
    """
    heads_of_all = [min(len(text), LONGEST_READ) for text in documents.texts]
    chosen = documents.of(sample(heads_of_all, COUNTED_DOCUMENTS, COUNTED_DOCUMENTS * LONGEST_READ))
    heads = [text[:LONGEST_READ] for text in chosen.texts]
    try:
        counted = count(WordHasher(1, LONGEST_READ), heads, LONGEST_READ, 0, chosen.groups)
    except ValueError:  # no document contains a word
        return 0.0
    words = counted.windows.tocoo()  # a window for each document
    groups = counted.groups if has_groups(chosen) else np.arange(len(heads))
    pairs = np.unique(words.col.astype(np.int64) * len(heads) + groups[words.row])
    return float((np.bincount(pairs // len(heads), minlength=len(counted.hashes)) > 1).mean())


def has_groups(documents: LabelledDocuments) -> bool:
    """Whether there are several groups, and fewer than documents."""
    return 1 < len({*documents.groups}) < len(documents)


def _held_out(task: TwoViewTask, documents: LabelledDocuments) -> HeldOut | None:
    """Held-out documents with what training chooses without vectors; None if the documents have no n-gram."""
    view, labels = task.config.model.ngram_view, np.array(documents.labels)
    try:
        counted = count(
            task.hasher(), documents.texts, task.length, task.overlap, documents.groups, limit=task.max_counted
        )
    except ValueError:
        return None
    return best_held_out(counted, labels, len(task.facts["labels"]), view, task.tried_lengths)
