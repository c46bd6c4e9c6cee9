"""Rankings of texts for other protocols."""

import json

import pytest

from artifact.errors import InvalidInput
from service.errors import ModelNotFound, PayloadTooLarge
from service.settings import Settings
from service.wire.ranking import RerankRequest, TextObject, rank_texts, write_ranking
from tests.support.contexts import context
from tests.support.models import matcher


async def test_texts_are_ranked_by_the_matcher() -> None:
    asked = context(models=[matcher()], settings=Settings(max_rank_documents=2))
    query = ("query", "++")
    try:
        ranked = await rank_texts(asked, query, ("documents", ["-" * 20, TextObject(text="++")]), on_overflow="head")
        with pytest.raises(PayloadTooLarge, match="texts: 3; at most 2"):
            await rank_texts(asked, query, ("texts", ["++"] * 3))
        with pytest.raises(ModelNotFound):
            await rank_texts(asked, query, ("texts", ["++"]), model="none")
        with pytest.raises(InvalidInput, match=r"texts\.0: the document is empty"):
            await rank_texts(asked, query, ("texts", [""]))
    finally:
        asked.runtime.close()
    assert (ranked.texts, ranked.model.manifest.name) == (["-" * 20, "++"], "twins")
    assert ranked.ranking.scores == pytest.approx([1 / 2, 5 / 6])
    request = RerankRequest(query="++", documents=["", ""], top_n=1)
    written = json.loads(bytes(write_ranking(ranked, request, lambda probability: probability - 1).body))
    assert written["results"] == [{"index": 1, "relevance_score": pytest.approx(-1 / 6)}]
    assert written["usage"]["total_tokens"] == 2 + 16 + 2
