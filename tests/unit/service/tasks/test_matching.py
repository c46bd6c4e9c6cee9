"""Pairs and rankings with the batcher, the cache and the head."""

import asyncio

import pytest
from service.tasks import matching
from service.tasks.matching import rank, score

from artifact.errors import InvalidInput
from artifact.tasks.matching import Text
from service.settings import Settings
from tests.support.models import ServingClient, backend_of, head_of, matcher, serving
from tests.support.waiting import PATIENCE_S

LONG = b"++" + 26 * b"."
"""Two windows; their mean has one plus."""


def soon() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_S


def pairs(*documents: tuple[bytes, bytes]) -> list[tuple[Text, Text]]:
    return [(Text(f"{number}.a", a), Text(f"{number}.b", b)) for number, (a, b) in enumerate(documents)]


async def scores(client: ServingClient, *documents: tuple[bytes, bytes]) -> list[float]:
    model = client.engine.models.matcher(None)
    scored, _ = await score(model, pairs(*documents), on_overflow="windows", deadline=soon())
    return [round(pair.score, 6) for pair in scored]


async def test_pairs_are_scored_with_their_coverage() -> None:
    async with serving(matcher()) as client:
        model = client.engine.models.matcher(None)
        scored, timing = await score(
            model, pairs((b"++", b"+-"), (LONG, b"++")), on_overflow="windows", deadline=soon()
        )
        assert client.count("longdoc_documents_total", model="twins") == 4
    assert [round(pair.score, 6) for pair in scored] == [0.75, 0.75]
    assert [(pair.a.bytes_total, pair.a.windows, pair.b.windows) for pair in scored] == [(2, 1, 1), (28, 2, 1)]
    assert timing.compute > 0


async def test_distinct_text_is_computed_once_and_then_cached() -> None:
    model = matcher()
    async with serving(model) as client:
        first = await scores(client, (b"++", b"+-"), (b"++", b"++"), (b"+-", b"++"))
        assert sum(backend_of(model).batches) == 2
        assert await scores(client, (b"+-", b"++")) == first[2:]
        assert sum(backend_of(model).batches) == 2
        hits = client.count("longdoc_encoding_cache_requests_total", model="twins", result="hit")
    assert first == [0.75, 0.833333, 0.75]
    assert hits == 2
    assert len(head_of(model).batches) == 2


async def test_without_a_cache_every_request_is_computed() -> None:
    model = matcher()
    async with serving(model, settings=Settings(max_cache_bytes=0)) as client:
        for _ in range(2):
            assert await scores(client, (b"++", b"+-")) == [0.75]
    assert sum(backend_of(model).batches) == 4


async def test_text_truncated_differently_is_computed_again() -> None:
    async with serving(matcher()) as client:
        model = client.engine.models.matcher(None)
        found = []
        for on_overflow in ("windows", "head", "tail"):
            scored, _ = await score(
                model,
                pairs((LONG, b"++")),
                on_overflow=on_overflow,
                deadline=soon(),
            )
            found.append(round(scored[0].score, 6))
    assert found == [0.75, 0.833333, 0.5]


async def test_documents_are_scored_with_the_query() -> None:
    async with serving(matcher()) as client:
        model = client.engine.models.matcher(None)
        documents = [Text(str(number), document) for number, document in enumerate((b"--", b"++", b"+."))]
        ranking, _ = await rank(model, Text("query", b"++"), documents, on_overflow="windows", deadline=soon())
    assert [round(found, 6) for found in ranking.scores] == [0.5, 0.833333, 0.75]
    assert (ranking.query.bytes_total, [document.bytes_total for document in ranking.documents]) == (2, [2, 2, 2])


async def test_long_ranking_is_computed_in_chunks_and_finished_chunks_are_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunks have at most 2 rows; a text with more rows is its own chunk."""
    monkeypatch.setattr(matching, "CHUNK_ROWS", 2)
    model = matcher()
    texts = [Text(str(number), bytes([65 + number]) + b"+") for number in range(4)]
    long = Text("long", LONG + 12 * b".")
    async with serving(model) as client:
        twins = client.engine.models.matcher(None)
        calls = []
        infer = twins.batcher.infer

        async def counted(rows: list[bytes], deadline: float, *, bulk: bool = False) -> object:
            calls.append(len(rows))
            if len(calls) == 3:
                raise TimeoutError
            return await infer(rows, deadline, bulk=bulk)

        monkeypatch.setattr(twins.batcher, "infer", counted)
        for _ in range(2):
            try:
                ranking, _ = await rank(twins, texts[0], [long, *texts[1:]], on_overflow="windows", deadline=soon())
            except TimeoutError:
                continue
    assert calls == [1, 3, 2, 2, 1]
    assert [round(found, 6) for found in ranking.scores] == [
        round(5 / 3 / (2 + 2 / 3), 6),
        0.666667,
        0.666667,
        0.666667,
    ]


async def test_error_names_the_wrong_text() -> None:
    async with serving(matcher()) as client:
        with pytest.raises(InvalidInput) as caught:
            await scores(client, (b"++", b"+"))
    assert caught.value.errors == [("0.b", "the document has 1 bytes; the model needs at least 2")]
