"""`GET /v1/models`."""

from service.settings import Settings
from tests.support.models import answer, classifier, forecaster, serving
from tests.support.problems import check_problem

SETTINGS = Settings(max_body_bytes=1, max_document_bytes=2, max_documents=3, max_rank_documents=4, deadline_s=5)
LIMITS = {"body_bytes": 1, "document_bytes": 2, "documents": 3, "rank_documents": 4, "deadline_s": 5.0}


async def test_models_are_described_by_the_public_part_of_their_manifests() -> None:
    async with serving(classifier(version=2), forecaster(), settings=SETTINGS) as client:
        mood, naive = answer(await client.get("/v1/models"))["models"]
    assert {"name": "mood", "version": 2, "task": "text-classification", "ready": True}.items() <= mood.items()
    assert (mood["labels"], mood["max_length"], mood["limits"]) == (["negative", "positive"], 16, LIMITS)
    assert (naive["name"], naive["channels"], naive["horizon"]) == ("naive", ["load", "heat"], 3)
    for told in (mood, naive):
        assert not {"files", "golden", "mean", "tolerance"} & set(told)


async def test_one_model_is_described_as_in_the_list() -> None:
    async with serving(classifier(), forecaster()) as client:
        one = answer(await client.get("/v1/models/naive"))
        assert one == answer(await client.get("/v1/models"))["models"][1]
        client.engine.models["naive"].batcher.close()
        assert answer(await client.get("/v1/models/naive")) == {**one, "ready": False}


async def test_unknown_model_is_a_problem_that_names_what_there_is() -> None:
    async with serving(classifier(), forecaster()) as client:
        problem = check_problem(await client.get("/v1/models/none"), 404, "model_not_found")
    assert problem["detail"] == "no model of that name is served; there are: mood, naive"
    assert problem["instance"] == "/v1/models/none"
