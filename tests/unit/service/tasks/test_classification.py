"""Classifying documents with the batcher."""

import asyncio

import numpy as np
import orjson
import pytest
from service.tasks.classification import classify, max_detail_bytes

from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.exports import read_manifest, version_folder
from artifact.tasks.classification import ClassifierManifest, Documents, Options
from service.errors import DeadlineExceeded
from tests.support.models import backend_of, classifier, serving
from tests.support.paths import EXPORTS
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module", params=["un-debate", "imdb-s3"])
def manifest(request: pytest.FixtureRequest) -> ClassifierManifest:
    """A manifest with stretches, and one without."""
    found = read_manifest(version_folder(EXPORTS / request.param))
    assert isinstance(found, ClassifierManifest)
    return found


@pytest.mark.parametrize("top_k", [None, 1])
@pytest.mark.parametrize("on_overflow", ["windows", "head", "tail", "head_tail"])
@pytest.mark.parametrize("size", [1, 256, 257, 4096, 5000, 65_536, 100_000, 200_000])
def test_details_have_at_most_the_predicted_bytes(
    manifest: ClassifierManifest, top_k: int | None, on_overflow: OnOverflow, size: int
) -> None:
    request = Documents([bytes(size)], manifest, on_overflow)
    classes = len(manifest.labels)
    count = classes * (1 if manifest.stretches is None else 1 + manifest.max_length // manifest.stretches.length)
    outputs = np.random.default_rng(0).normal(scale=1e-6, size=(len(request.rows), count)).astype(np.float32)
    (answer,) = request.answers([*outputs])
    plain, detailed = (
        len(orjson.dumps(answer.as_json(manifest.labels, Options(top_k, on_overflow, detail=detail))))
        for detail in (False, True)
    )
    most = max_detail_bytes(manifest, size, Options(top_k, on_overflow, detail=True))
    assert detailed - plain <= most
    assert most <= 2 * (detailed - plain) + 500
    assert max_detail_bytes(manifest, size, Options(top_k, on_overflow)) == 0


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
