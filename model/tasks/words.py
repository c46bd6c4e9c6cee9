"""Text classification by a model of words (`WordClassifier`)."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.documents import cut, take
from artifact.tasks.classification import KnownWords
from model.data.documents import DocumentSet
from model.data.sampling import sample
from model.errors import UserError
from model.nn.classifier import WordClassifier
from model.nn.tokens import TokenClassifier
from model.nn.vectors import VectorClassifier
from model.nn.words import PREFIXES, WordHasher
from model.tasks.base import LENGTH, Finished
from model.tasks.classification import crop
from model.tasks.graphs import Arrays, ExportGraph, golden_documents
from model.tasks.lengths import choose_length, with_keys
from model.tasks.link import Outputs
from model.tasks.ngrams import Choice, Counted, choose
from model.tasks.occurrences import Occurrences, hash_ngrams, known_ids, mean_vectors
from model.tasks.two_views import HAS_VECTOR_VIEW, MAX_BYTES, NgramView, TwoViewTask
from model.tasks.views import VectorRound, mean_of_windows, vector_logits
from model.training.checkpoint import RunFolder

if TYPE_CHECKING:
    from model.tasks.document_vectors import VectorLearner

WORDS = "words"
"""Key of a fact: the rule by which words are found. Checkpoints of before the rule UNICODE have none."""
UNICODE = "unicode"
"""Rule of `WordHasher`."""
MAX_UNLABELLED = 200_000
"""Maximum number of unlabelled documents from which vectors are learned; of more, a random sample is used."""
PRIOR = 0.1
"""The prior of the vector view, as a share of the median number of n-grams of a document; see `model.tasks.ngrams`."""
LOW = 0.01
"""Share of the validation documents with fewer known words than `KnownWords.low`."""


class WordTask(TwoViewTask):
    """Text classification by a model of words."""

    def with_length(self, data: DocumentSet, given: Collection[str]) -> Self:
        """The task with the length that cross-validation chooses, once for a run; `given` are keys of the user."""
        view = self.config.model.ngram_view
        found = self.facts.get(LENGTH) or choose_length(data.train, len(data.labels), view, given)
        if found is None:
            return self
        if LENGTH not in self.facts:
            print(found["reason"], flush=True)
        return replace(self.knowing(**{LENGTH: found}), config=with_keys(self.config, found["keys"]))

    def with_facts_of(self, data: DocumentSet) -> Self:
        return super().with_facts_of(data).knowing(**{WORDS: UNICODE})

    def check_code(self, path: Path) -> None:
        if self.facts.get(WORDS) != UNICODE:
            raise UserError(f"{path} was trained on words found by an earlier rule; train again, with another name")

    @property
    def tried_lengths(self) -> Sequence[int]:
        return range(1, self.config.model.ngram_view.longest + 1)

    def hasher(self) -> WordHasher:
        view = self.config.model.ngram_view
        has_prefixes = view.prefixes or "prefixes" in view.tried
        return WordHasher(view.longest, self.length, prefixes=PREFIXES if has_prefixes else ())

    def described(self, choice: Choice) -> str:
        return (
            f"n-grams of up to {choice.longest} words{' and prefixes of words' if choice.prefixes else ''}"
            f"{', counted 1 + log k times' if choice.sublinear else ''}"
            f", scales {choice.scaling}, C = {choice.strength:g}"
            f"{f', C of vectors = {choice.vector_strength:g}' if choice.vector_strength else ', without vectors'}"
            f"{f', {choice.naive_bayes:.0%} naive Bayes' if choice.naive_bayes else ''}"
            f"{', n-grams of the own group discounted' if choice.discount else ''}"
        )

    def chosen(self, counted: Counted, labels: NDArray[np.int64], learner: "VectorLearner | None") -> Choice:
        learn = None if learner is None else learner.learn
        view = self.config.model.ngram_view
        return choose(counted, labels, len(self.facts["labels"]), view, learn=learn, lengths=self.tried_lengths)

    def vector_learner(
        self, texts: Sequence[bytes], labels: NDArray[np.int64], unlabelled: Sequence[bytes]
    ) -> "VectorLearner | None":
        """The learner of n-gram vectors, of a sample if there are many unlabelled documents; None without vectors."""
        if not self.config.model.ngram_vectors.epochs:
            return None
        # Importing Numba takes a second, which other commands need not wait for.
        from model.tasks.document_vectors import vector_learner

        chosen = sample(list(map(len, unlabelled)), MAX_UNLABELLED, MAX_BYTES) if unlabelled else []
        return vector_learner(
            WordHasher(self.config.model.ngram_view.longest, self.length),
            (texts, [unlabelled[i] for i in chosen]),
            labels,
            self.length,
            self.overlap,
            self.config.model.ngram_vectors,
            self.config.seed,
        )

    def read_corpus(self, data: DocumentSet, folder: RunFolder, ngrams: NgramView) -> "WordCorpus":
        """The n-grams of the n-gram view in all documents, and a vector view with their vectors."""
        del folder
        model = ngrams.task.knowing(**{HAS_VECTOR_VIEW: True}).seeded()
        assert isinstance(model, WordClassifier)
        model.ngram_view = ngrams.model.ngram_view
        length, hasher, generator = self.length, model.words, random.Random(self.config.seed)
        windows = [
            [take(text, spans) for spans in cut(len(text), length, self.overlap, "windows")]
            for text in data.validation.texts
        ]
        rows = [
            *(
                [crop(text, length, self.config.data.crop, generator) for text in texts]
                for texts in (data.train.texts, data.unlabelled)
            ),
            [row for rows in windows for row in rows],
        ]
        known = ngrams.fitted.hashes.astype(np.int32)
        train, unlabelled, validation = (known_ids(hash_ngrams(hasher, part), known, first=1) for part in rows)
        view = model.vector_view
        assert view is not None
        prior = PRIOR * float(np.median(train.counts()))
        view.set_vectors(ngrams.token_vectors, mean_vectors(train, ngrams.token_vectors), prior)
        return WordCorpus(self, data, model, train, unlabelled, validation, tuple(map(len, windows)))

    def build(self) -> WordClassifier:
        config = self.recipe.model.model_copy(update={"ngram_view": self.view})
        return WordClassifier(config, len(self.facts["labels"]))

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        assert isinstance(model, WordClassifier)
        golden, outputs = golden_documents(self.length), ("logits", "contributions", "known")
        buckets, fixed = self.config.model.buckets, model.with_fixed_shapes()
        return (ExportGraph("model", model, golden, outputs, buckets, fixed, num_short=1),)

    def finish(self, model: nn.Module, final: nn.Module | None, data: DocumentSet) -> Finished:
        """Also count the known words of the validation split."""
        finished = super().finish(model, final, data)
        assert isinstance(model, WordClassifier)
        known = self._known(model, data.validation.texts).model_dump()
        return replace(finished, keys={**finished.keys, "known": known})

    def _known(self, model: WordClassifier, texts: Sequence[bytes]) -> KnownWords:
        """Shares of known words in documents from which the model has not learned."""

        def count(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
            with torch.inference_mode():
                return model.known(*(torch.from_numpy(array) for array in inputs.values())).numpy()

        counts = np.stack([rows.sum(axis=0) for rows in self.logits(count, texts)])  # (documents, 2)
        low, median = np.quantile(counts[:, 0] / counts[:, 1].clip(min=1), (LOW, 0.5)).round(4).tolist()
        return KnownWords(low=low, median=median)

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        return super().manifest(golden) | {"words": self.facts[WORDS]}


@dataclass(frozen=True)
class WordCorpus:
    """The n-grams of all documents that the vector view reads, as its ids."""

    task: WordTask
    data: DocumentSet
    model: WordClassifier
    train: Occurrences
    """One crop of each training document."""
    unlabelled: Occurrences
    """One crop of each unlabelled document."""
    validation: Occurrences
    """All windows of the validation documents."""
    window_counts: tuple[int, ...]
    """Number of windows of each validation document."""

    teacher: Outputs | None = None

    def learner(self, targets: NDArray[np.float32], seed: str) -> VectorRound:
        return VectorRound(
            self.train.followed_by(self.unlabelled),
            targets,
            self.task.config.training.batch_size,
            seed,
            self.validation,
            self.window_counts,
            np.array(self.data.validation.labels),
            self.task.metric,
        )

    def validation_logits(self, view: TokenClassifier, device: torch.device) -> Outputs:
        assert isinstance(view, VectorClassifier)
        return mean_of_windows(vector_logits(view, self.validation, device), self.window_counts)

    def unlabelled_logits(self, view: TokenClassifier, device: torch.device) -> Outputs:
        assert isinstance(view, VectorClassifier)
        return vector_logits(view, self.unlabelled, device)
