"""TEI's `/info` and `/health`."""

from service.settings import Settings
from tests.support.models import SHA256, answer, classifier, matcher, serving
from tests.support.tei import check_error


async def test_info_describes_the_default_model() -> None:
    settings = Settings(max_documents=7, max_batch_rows=5)
    async with serving(matcher(), classifier(), settings=settings) as client:
        info = answer(await client.get("/info"))
    assert (info["model_id"], info["model_sha"], info["model_dtype"]) == ("mood", SHA256, "float32")
    names = {"id2label": {"0": "negative", "1": "positive"}, "label2id": {"negative": 0, "positive": 1}}
    assert info["model_type"] == {"classifier": names}
    assert (info["max_input_length"], info["max_client_batch_size"], info["max_batch_requests"]) == (16, 7, 5)


async def test_matcher_alone_is_a_reranker() -> None:
    async with serving(matcher()) as client:
        info = answer(await client.get("/info"))
    assert info["model_type"] == {"reranker": {"id2label": {"0": "match"}, "label2id": {"match": 0}}}


async def test_health_depends_on_the_engine() -> None:
    async with serving(classifier()) as client:
        healthy = await client.get("/health")
        client.engine.begin_drain()
        unhealthy = await client.get("/health")
    assert (healthy.status_code, healthy.content) == (200, b"")
    assert check_error(unhealthy, 503, "Unhealthy") == "unhealthy"
