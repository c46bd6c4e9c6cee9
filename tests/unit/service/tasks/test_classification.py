"""Classifying documents with the batcher."""

import asyncio

import pytest

from artifact.errors import InvalidInput
from service.errors import DeadlineExceeded
from service.tasks.classification import classify
from tests.support.models import backend_of, classifier, serving
from tests.support.waiting import PATIENCE_S


def soon() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_S


async def test_documents_are_answered_in_order() -> None:
    model = classifier()
    async with serving(model) as client:
        mood = client.engine.models.classifier(None)
        documents = [b"++-", b"+++" + 22 * b"." + b"---", b"-"]
        answers, timing = await classify(mood, documents, on_overflow="windows", deadline=soon())
        count = client.count("longdoc_documents_total", model="mood")
    assert [round(float(answer.scores[1]), 6) for answer in answers] == [0.6, 0.5, 0.333333]
    assert [(answer.bytes_total, answer.bytes_used, len(answer.rows)) for answer in answers] == [
        (3, 3, 1),
        (28, 28, 2),
        (1, 1, 1),
    ]
    assert sum(backend_of(model).batches) == 4
    assert count == 3
    assert min(timing.decode, timing.queue, timing.compute) >= 0
    assert timing.compute > 0


async def test_dropped_bytes_are_counted() -> None:
    async with serving(classifier()) as client:
        mood = client.engine.models.classifier(None)
        await classify(mood, [28 * b"+", b"+"], on_overflow="head", deadline=soon())
        assert client.count("longdoc_documents_truncated_total", model="mood") == 1
        assert client.count("longdoc_bytes_dropped_total", model="mood") == 12


async def test_error_names_the_wrong_document_and_nothing_is_computed() -> None:
    model = classifier()
    async with serving(model) as client:
        mood = client.engine.models.classifier(None)
        with pytest.raises(InvalidInput) as caught:
            await classify(mood, [b"+", b""], on_overflow="windows", deadline=soon())
        assert client.count("longdoc_documents_total", model="mood") == 0
    assert [place for place, _ in caught.value.errors] == ["inputs.1"]
    assert backend_of(model).batches == []


async def test_missed_deadline_is_an_error() -> None:
    model = classifier()
    backend_of(model).gate.clear()
    async with serving(model) as client:
        mood = client.engine.models.classifier(None)
        with pytest.raises(DeadlineExceeded):
            await classify(mood, [b"+"], on_overflow="windows", deadline=asyncio.get_running_loop().time())
        backend_of(model).gate.set()
