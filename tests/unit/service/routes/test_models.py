"""`GET /v1/models`, and the cards of models."""

from dataclasses import replace

from service.settings import Settings
from tests.support.models import answer, classifier, forecaster, serving
from tests.support.problems import check_problem

SETTINGS = Settings(
    max_body_bytes=1,
    max_document_bytes=2,
    max_documents=3,
    max_rank_documents=4,
    max_embedding_documents=6,
    deadline_s=5,
)
LIMITS = {
    "body_bytes": 1,
    "document_bytes": 2,
    "documents": 3,
    "rank_documents": 4,
    "embedding_documents": 6,
    "deadline_s": 5.0,
}


async def test_models_list_the_public_fields_of_their_manifests() -> None:
    async with serving(classifier(version=2), forecaster(), settings=SETTINGS) as client:
        mood, naive = answer(await client.get("/v1/models"))["models"]
    assert {"name": "mood", "version": 2, "task": "text-classification", "ready": True}.items() <= mood.items()
    assert (mood["labels"], mood["max_length"], mood["limits"]) == (["negative", "positive"], 16, LIMITS)
    assert (naive["name"], naive["channels"], naive["horizon"]) == ("naive", ["load", "heat"], 3)
    for listed in (mood, naive):
        assert not {"files", "golden", "mean", "tolerance"} & set(listed)


async def test_single_model_equals_its_entry_in_the_list() -> None:
    async with serving(classifier(), forecaster()) as client:
        one = answer(await client.get("/v1/models/naive"))
        listed = answer(await client.get("/v1/models"))
        assert one == {**listed["data"][1], **listed["models"][1]}
        client.engine.models["naive"].batcher.close()
        assert answer(await client.get("/v1/models/naive")) == {**one, "ready": False}
        assert answer(await client.get("/v1/models/mood"))["ready"] is True
        client.engine.begin_drain()
        assert answer(await client.get("/v1/models/mood"))["ready"] is False


async def test_every_version_is_listed_and_a_name_alone_means_the_highest() -> None:
    settings = Settings(default_classifier="mood@1")
    async with serving(classifier(version=2), classifier(version=1), forecaster(), settings=settings) as client:
        listed = answer(await client.get("/v1/models"))
        one, two = [answer(await client.get(f"/v1/models/{name}")) for name in ("mood@1", "mood")]
        problem = check_problem(await client.get("/v1/models/mood@3"), 404, "model_not_found")
    assert [(model["name"], model["version"]) for model in listed["models"]] == [("mood", 2), ("mood", 1), ("naive", 1)]
    assert [model.items() <= found.items() for model, found in zip(listed["models"], (two, one), strict=False)] == [
        True
    ] * 2
    assert [model["id"] for model in (one, two)] == ["mood@1", "mood"]
    assert listed["defaults"]["text-classification"] == {"model": "mood@1", "reason": "default_classifier"}
    assert problem["detail"] == "model mood is served in versions 2, 1 only"


async def test_names_and_aliases_are_listed_as_openai_does() -> None:
    settings = Settings(aliases={"gpt": "naive", "lost": "none", "naive": "mood"})
    async with serving(classifier(version=2), classifier(version=1), forecaster(), settings=settings) as client:
        listed = answer(await client.get("/v1/models?api-version=2024-02-01"))
        alias = answer(await client.get("/v1/models/gpt"))
        created = client.engine.models["naive"].created
    assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", ["mood", "naive", "gpt"])
    assert listed["data"][2] == {"id": "gpt", "object": "model", "created": created, "owned_by": "longdoc-serve"}
    assert (alias["id"], alias["name"]) == ("gpt", "naive")


async def test_card_of_a_version_is_returned_as_markdown() -> None:
    models = [replace(classifier(version=version), card=f"# mood {version} ü\n") for version in (2, 1)]
    async with serving(*models, forecaster()) as client:
        for name, version in (("mood", 2), ("mood@1", 1)):
            response = await client.get(f"/v1/models/{name}/card")
            assert (response.status_code, response.text) == (200, f"# mood {version} ü\n")
            assert response.headers["content-type"] == "text/markdown; charset=utf-8"
        missing = check_problem(await client.get("/v1/models/naive/card"), 404, "not_found")
        assert missing["detail"] == "naive 1 has no card, which is its README.md"
        check_problem(await client.get("/v1/models/nosuch/card"), 404, "model_not_found")
