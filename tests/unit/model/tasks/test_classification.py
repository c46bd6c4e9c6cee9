import random
import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.lib.record import RESULTS
from model.config.run import ClassificationRun, from_dict
from model.data.documents import DocumentSet, LabelledDocuments
from model.errors import UserError
from model.tasks import matching
from model.tasks.classification import RIVALS, ClassificationTask, PaperLearner
from model.tasks.graphs import module_functions
from model.tasks.ngrams import Choice
from model.tasks.two_views import HAS_VECTOR_VIEW, NGRAMS
from model.tasks.words import WordTask
from model.training.learner import TrainingBatch
from tests.unit.model.nn.test_classifier_words import SMALL as WORDS


@pytest.fixture
def forty() -> LabelledDocuments:
    """Forty documents of 1 to 40 arbitrary bytes."""
    return LabelledDocuments([random.Random(i).randbytes(i + 1) for i in range(40)], [i % 3 for i in range(40)])


def classification(
    documents: LabelledDocuments,
    batch_size: int = 8,
    crop: str = "random",
    seed: int = 0,
    examples: int = 0,
    seq_len: int = 16,
) -> PaperLearner:
    """Return what a recipe that reads `seq_len` bytes learns from these documents."""
    training = {"epochs": 1, "batch_size": batch_size, "learning_rate": 1e-3, "examples_per_epoch": examples}
    model = {"kind": "paper", "encoder": {"seq_len": seq_len, "dim": 8, "num_heads": 1, "options": {"num_segments": 1}}}
    data = {"name": "synthetic", "crop": crop}
    task = "text-classification"
    config = from_dict({"name": "tiny", "task": task, "seed": seed, "training": training, "data": data, "model": model})
    assert isinstance(config, ClassificationRun)
    found = DocumentSet(documents, documents, documents, ["a", "b", "c"])
    return PaperLearner(ClassificationTask(config, {"labels": found.labels}), found)


def epoch(documents: LabelledDocuments, crop: str = "random", seed: tuple[int, int] = (0, 0)) -> list[TrainingBatch]:
    return list(classification(documents, crop=crop, seed=seed[0]).batches(seed[1]))


def same(left: list[TrainingBatch], right: list[TrainingBatch]) -> bool:
    return all(torch.equal(a, b) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


def test_batches_depend_on_seed_and_epoch(forty: LabelledDocuments) -> None:
    assert same(epoch(forty, seed=(5, 1)), epoch(forty, seed=(5, 1)))
    assert not same(epoch(forty, seed=(5, 1)), epoch(forty, seed=(5, 2)))
    assert not same(epoch(forty, seed=(5, 1)), epoch(forty, seed=(6, 1)))


def test_batches_have_every_document_at_most_once_with_its_label(forty: LabelledDocuments) -> None:
    short = LabelledDocuments(forty.texts[:16], forty.labels[:16])
    rows = [
        (bytes(document[:length].tolist()), int(label))
        for batch in epoch(short)
        for document, length, label in zip(*batch, strict=True)
    ]
    assert sorted(rows) == sorted(zip(short.texts, short.labels, strict=True))
    assert [len(batch[0]) for batch in classification(forty, batch_size=11).batches(0)] == [11, 11, 11]


@pytest.mark.parametrize("crop", ["head", "random"])
def test_batches_crop_within_the_document_and_pad_with_zeros(forty: LabelledDocuments, crop: str) -> None:
    starts = set()
    for documents, lengths, _ in epoch(forty, crop) + epoch(forty, crop, (0, 1)):
        assert documents.dtype == torch.uint8
        assert documents.shape == (8, 16)
        for document, length in zip(documents, lengths.tolist(), strict=True):
            row = bytes(document[:length].tolist())
            whole = [text for text in forty.texts if row in text and min(len(text), 16) == length]
            assert whole
            assert not document[length:].any()
            starts.add(any(text.startswith(row) for text in whole))
    assert starts == ({True} if crop == "head" else {True, False})


def test_random_crops_reach_both_ends() -> None:
    learner = classification(LabelledDocuments([bytes(range(20))], [0]), batch_size=1)
    starts = {int(next(learner.batches(i))[0][0, 0]) for i in range(100)}
    assert starts == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("examples", "batches"), [(0, 5), (8, 1), (23, 2), (24, 3), (1000, 5)])
def test_batches_of_a_shorter_epoch_are_the_first_of_a_full_epoch(
    forty: LabelledDocuments, examples: int, batches: int
) -> None:
    learner = classification(forty, examples=examples)
    assert learner.examples_per_epoch == 8 * batches
    assert same(list(learner.batches(2)), epoch(forty, seed=(0, 2))[:batches])


def test_documents_fewer_than_a_batch_are_an_error(forty: LabelledDocuments) -> None:
    learner = classification(forty, batch_size=5000)
    with pytest.raises(UserError, match=r"40 training documents are fewer than one batch, 5000"):
        learner.task.stages(learner.data)


def test_batches_are_padded_to_the_bucket_of_their_longest_document() -> None:
    """LabelledDocuments of similar lengths are batched together, so that most batches are short."""
    sizes = [random.Random(i).choice([20, 250, 256, 257, 600, 2000]) for i in range(400)]
    texts = [random.Random(i).randbytes(size) for i, size in enumerate(sizes)]
    learner = classification(LabelledDocuments(texts, [i % 3 for i in range(400)]), seq_len=1024)
    seen = list(learner.batches(0))
    buckets = (256, 512, 1024)
    assert learner.task.config.model.buckets == buckets
    for documents, lengths, labels in seen:
        assert documents.shape[1] == next(bucket for bucket in buckets if bucket >= int(lengths.max()))
        for document, length, label in zip(documents, lengths.tolist(), labels.tolist(), strict=True):
            row = bytes(document[:length].tolist())
            (i,) = (i for i, text in enumerate(texts) if row in text)
            assert (label, length) == (i % 3, min(1024, sizes[i]))
    widths = [documents.shape[1] for documents, *_ in seen]
    assert len(widths) == 50
    assert widths != sorted(widths)
    # Half of the documents have up to 256 bytes, and only one batch of a group can mix both kinds.
    assert sum(width == 256 for width in widths) >= 50 * sum(size <= 256 for size in sizes) / 400 - 3


@pytest.mark.parametrize(
    ("facts", "longest", "has_vector_view"),
    [
        ({}, 3, True),
        ({NGRAMS: asdict(Choice(1, "idf", 1.0)), HAS_VECTOR_VIEW: False}, 1, False),
        ({HAS_VECTOR_VIEW: True}, 3, True),
    ],
)
def test_model_of_words_has_the_parts_that_training_chose(
    forty: LabelledDocuments, facts: dict[str, Any], longest: int, has_vector_view: bool
) -> None:
    config = classification(forty).task.config
    data = config.data.model_copy(update={"unlabelled": True})
    config = config.model_copy(update={"model": WORDS, "data": data})
    task = WordTask(config, {"labels": ["a", "b", "c"], **facts})
    model = task.build()
    assert model.words.longest == longest
    assert (model.vector_view is not None) == has_vector_view
    recipe = task.recipe
    assert (recipe.model.encoder is not None) == has_vector_view
    assert recipe.data.unlabelled  # vectors are learned from them in any case
    assert from_dict(recipe.to_dict()) == recipe


def test_results_name_the_strongest_other_model_on_the_same_test_documents(forty: LabelledDocuments) -> None:
    learner = classification(forty)
    config = learner.task.config
    imdb = config.model_copy(update={"data": config.data.model_copy(update={"name": "imdb"})})
    for task in (learner.task, ClassificationTask(imdb, learner.task.facts)):
        functions = module_functions(task.graphs(task.build().eval()), torch.device("cpu"))
        results = task.measure(functions, learner.data).results
        compared = {(result.metric, result.condition): result.compared_with for result in results}
        assert compared.pop(("accuracy", "windows")) == (RIVALS["imdb"] if task is not learner.task else "nothing")
        assert set(compared.values()) == {"nothing"}


def test_figures_of_other_models_are_those_of_the_reports() -> None:
    names = ("alternatives", "text_tfidf", "long_documents", "aan_tfidf")
    reports = "".join((RESULTS / name / "report.md").read_text() for name in names)
    texts = [*RIVALS.values(), *(text for of in matching.RIVALS.values() for text in of.values())]
    for figure in re.findall(r"0\.\d+", " ".join(texts)):
        assert f" {figure} " in reports or f" {100 * float(figure):.{len(figure) - 4}f} " in reports, figure


def rare_and_common(answers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.eye(2)[answers], np.array([0] * 2 + [1] * 38)


def test_accuracy_of_imbalanced_classes_does_not_stand_alone(forty: LabelledDocuments) -> None:
    task = classification(forty).task.knowing(labels=["rare", "common"], metric="macro_f1")
    recall, never = task.by_class(*rare_and_common([1] * 40))
    assert recall == "accuracy 0.9500, macro F1 0.4872; recall by class: rare 0.00 of 2, common 1.00 of 38"
    assert never.startswith("never predicted, with their number of documents: rare (2); with --class-weights balanced")
    (recall,) = task.by_class(*rare_and_common([1] * 39 + [0]))[:1]
    assert "common 0.97 of 38" in recall
    assert task.by_class(*rare_and_common([0] * 2 + [1] * 38))[1:] == ()


def test_classes_of_an_export_are_judged_by_the_measured_documents(forty: LabelledDocuments) -> None:
    export = replace(classification(forty).task, facts={"labels": ["rare", "common"]})
    assert len(export.by_class(*rare_and_common([1] * 40))) == 2
    assert export.by_class(np.eye(2), np.arange(2)) == ()


def test_balanced_classes_have_a_line_only_if_one_is_never_predicted(forty: LabelledDocuments) -> None:
    task = classification(forty).task.knowing(labels=list("abcdefghijklm"), metric="accuracy")
    labels = np.repeat(np.arange(13), 2)
    assert task.by_class(np.eye(13)[labels], labels) == ()
    (line,) = task.by_class(np.eye(13)[np.zeros_like(labels)], labels)
    assert "b (2), " in line
    assert "and 2 more; with --class-weights balanced" in line
