"""`POST /`: tasks of `huggingface_hub`, distinguished by their inputs."""

import math
from typing import Any

import pytest

from service.settings import Settings
from tests.support.models import answer, classifier, matcher, serving
from tests.support.tei import check_error

POSITIVE = [{"score": 0.6, "label": "positive"}, {"score": 0.4, "label": "negative"}]
"""Scores of two pluses and a minus."""
LONG = "+++" + 22 * "." + "---"
PAIR = {"source_sentence": "++", "sentences": ["--", "++", "+."]}


async def ask(*models: Any, **body: object) -> Any:
    async with serving(*models) as client:
        return answer(await client.post("/", json=body))


async def test_every_text_gets_a_list_of_labels() -> None:
    assert await ask(classifier(), matcher(), inputs="++-") == [POSITIVE]
    assert await ask(classifier(), matcher(), inputs=["++-"], parameters={}) == [POSITIVE]
    assert await ask(classifier(), matcher(), inputs=["++-", "++-"]) == [POSITIVE, POSITIVE]  # two texts, not a pair


async def test_parameters_select_number_and_kind_of_scores() -> None:
    assert await ask(classifier(), inputs="++-", parameters={"top_k": 1}) == [POSITIVE[:1]]
    assert await ask(classifier(), inputs="++-", parameters={"top_k": 9, "function_to_apply": "softmax"}) == [POSITIVE]
    (labels,) = await ask(classifier(), inputs="++-", parameters={"function_to_apply": "none"})
    assert labels[0]["score"] - labels[1]["score"] == pytest.approx(math.log(0.6 / 0.4), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ({}, 0.5),
        ({"truncate": True}, 0.8),
        ({"truncate": True, "parameters": {}}, 0.8),
        ({"parameters": {"truncate": True, "truncation_direction": "Left"}}, 0.2),
    ],
)
async def test_long_text_is_read_completely_or_truncated(options: dict[str, Any], score: float) -> None:
    (labels,) = await ask(classifier(), inputs=LONG, **options)
    assert {entry["label"]: entry["score"] for entry in labels}["positive"] == score


async def test_sentences_are_scored_in_order() -> None:
    for models in ((classifier(), matcher()), (matcher(),)):
        assert await ask(*models, inputs=PAIR, parameters={}) == [0.5, 0.833333, 0.75]


async def test_texts_get_vectors_if_no_classifier_is_served() -> None:
    assert await ask(matcher(), inputs="+++----") == [[0.6, 0.8]]
    assert await ask(matcher(), inputs=["+++----"], normalize=False) == [[3, 4]]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 422, "inputs: Field required"),
        ({"inputs": 1}, 422, "inputs: Input should be a string, a list of strings or a source_sentence with sentences"),
        ({"inputs": []}, 422, "inputs: at least 1 is needed"),
        ({"inputs": [["+"]]}, 422, "inputs.0: Input should be a valid string"),
        ({"inputs": ["+"] * 4}, 413, "inputs: 4; at most 3 in one request"),
        ({"inputs": {"sentences": ["++"]}}, 422, "inputs.object.source_sentence: Field required"),
        ({"inputs": {**PAIR, "sentences": []}}, 422, "inputs.sentences: at least 1 is needed"),
        ({"inputs": {**PAIR, "sentences": ["++", ""]}}, 422, "inputs.sentences.1: the document is empty"),
        ({"inputs": {**PAIR, "source_sentence": ""}}, 422, "inputs.source_sentence: the document is empty"),
        ({"inputs": {**PAIR, "sentences": ["++"] * 5}}, 413, "inputs.sentences: 5; at most 4 in one request"),
        ({"inputs": "+", "parameters": {"candidate_labels": ["a"]}}, 422, "parameters.candidate_labels: Extra inputs"),
        ({"inputs": "+", "parameters": {"function_to_apply": "sigmoid"}}, 422, "parameters.function_to_apply: "),
        ({"inputs": "+", "parameters": {"top_k": 0}}, 422, "parameters.top_k: "),
    ],
)
async def test_error_names_the_wrong_value(body: dict[str, Any], status: int, message: str) -> None:
    async with serving(classifier(), matcher(), settings=Settings(max_documents=3, max_rank_documents=4)) as client:
        response = await client.post("/", json=body)
    assert check_error(response, status).startswith(message)


@pytest.mark.parametrize("page", [True, False])
async def test_page_on_the_root_changes_no_answer(page: bool) -> None:
    async with serving(classifier(), settings=Settings(page=page)) as client:
        assert (await client.get("/")).status_code == (200 if page else 307)
        found = answer(await client.post("/", json={"inputs": "+"}))
    assert found == [[{"label": "positive", "score": 0.666667}, {"label": "negative", "score": 0.333333}]]
