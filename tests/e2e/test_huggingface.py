"""The clients of `huggingface_hub` get the answers computed offline."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient, TextClassificationOutputElement
from huggingface_hub.errors import HfHubHTTPError

from tests.support.offline import Offline, OfflineMatcher, document, same_score
from tests.support.paths import EXPORTS
from tests.support.server import Server

LONG = document(9000).decode()
SENTENCES = ["one on speech", LONG, "a parser of trees"]


@pytest.fixture
def client(server: Server) -> InferenceClient:
    """A client that uses the address of the server as the endpoint."""
    return InferenceClient(server.url)


@pytest.fixture
def matching(tmp_path: Path, start: Callable[..., Server]) -> Server:
    """A server of the matcher only."""
    copytree(EXPORTS / "aan", tmp_path / "aan")
    return start("--exports", str(tmp_path), "--drain-delay-s", "0")


def check_labels(found: list[TextClassificationOutputElement], expected: dict[str, float]) -> None:
    assert {element.label: element.score for element in found} == pytest.approx(expected, abs=1e-5)
    assert found == sorted(found, key=lambda element: -element.score)


def check_vectors(found: np.ndarray, texts: list[str], matcher: OfflineMatcher, how: str = "windows") -> None:
    vectors = np.stack([matcher.vector(text.encode(), how) for text in texts])
    assert found.dtype == np.float32
    assert np.allclose(found, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-5)


def test_text_classification_at_the_root(client: InferenceClient, offline: Offline) -> None:
    for text in ("a good film", LONG, "é"):
        check_labels(client.text_classification(text), offline(text.encode()))
    (best,) = client.text_classification(LONG, top_k=1)
    assert best.label == max(offline(LONG.encode()).items(), key=lambda item: item[1])[0]
    raw = {element.label: element.score for element in client.text_classification(LONG, function_to_apply="none")}
    exponents = {label: np.exp(score) for label, score in raw.items()}
    total = sum(exponents.values())
    assert {label: value / total for label, value in exponents.items()} == pytest.approx(
        offline(LONG.encode()), abs=1e-5
    )


def test_text_classification_at_predict_returns_the_best_label(server: Server, offline: Offline) -> None:
    best = InferenceClient(f"{server.url}/predict").text_classification("a good film")
    assert isinstance(best, TextClassificationOutputElement)  # although the client's annotation says a list
    assert best.score == pytest.approx(max(offline(b"a good film").values()), abs=1e-5)


def test_sentence_similarity_is_the_score_of_the_matcher(
    client: InferenceClient, server: Server, matcher: OfflineMatcher
) -> None:
    for asked in (client, InferenceClient(f"{server.url}/similarity")):
        scores = asked.sentence_similarity("a paper on parsing", SENTENCES)
        assert len(scores) == len(SENTENCES)
        for score, sentence in zip(scores, SENTENCES, strict=True):
            assert same_score(score, matcher("a paper on parsing", sentence))


def test_feature_extraction_gives_the_vectors_of_the_matcher(server: Server, matcher: OfflineMatcher) -> None:
    client = InferenceClient(f"{server.url}/embed")
    check_vectors(client.feature_extraction(LONG), [LONG], matcher)
    check_vectors(client.feature_extraction(SENTENCES), SENTENCES, matcher)
    check_vectors(client.feature_extraction(LONG, truncate=True), [LONG], matcher, "head")
    tail = client.feature_extraction(LONG, truncate=True, truncation_direction="left")
    check_vectors(tail, [LONG], matcher, "tail")
    plain = client.feature_extraction("on parsing", normalize=False)
    assert np.allclose(plain[0], matcher.vector(b"on parsing", "windows"), atol=1e-5)


def test_feature_extraction_at_the_root_of_a_matcher(matching: Server, matcher: OfflineMatcher) -> None:
    client = InferenceClient(matching.url)
    check_vectors(client.feature_extraction("on parsing"), ["on parsing"], matcher)
    assert same_score(client.sentence_similarity("on parsing", [LONG])[0], matcher("on parsing", LONG))


def test_asyncio_client_gets_the_same_answers(server: Server, offline: Offline) -> None:
    async def ask() -> list[list[TextClassificationOutputElement]]:
        async with AsyncInferenceClient(server.url) as client:
            return list(await asyncio.gather(*(client.text_classification(text) for text in ("one", "two"))))

    for found, text in zip(asyncio.run(ask()), (b"one", b"two"), strict=True):
        check_labels(found, offline(text))


def test_endpoint_info_is_returned(server: Server) -> None:
    client = InferenceClient(server.url, provider="hf-inference")
    assert client.health_check()
    assert client.get_endpoint_info()["model_id"] == "imdb-s3"


def test_errors_reach_the_client(client: InferenceClient) -> None:
    asked: list[tuple[Callable[[], object], int, str]] = [
        (lambda: client.text_classification(""), 422, "the document is empty"),
        (lambda: client.text_classification("a", function_to_apply="sigmoid"), 422, "parameters.function_to_apply"),
        (lambda: client.zero_shot_classification("a", ["b", "c"]), 422, "parameters.candidate_labels"),
        (lambda: client.sentence_similarity("a paper", []), 422, "inputs.sentences: at least 1 is needed"),
        (lambda: client.text_classification("a" * (2**20 + 1)), 413, ""),
    ]
    for ask, status, message in asked:
        with pytest.raises(HfHubHTTPError) as raised:
            ask()
        assert raised.value.response.status_code == status
        assert message in str(raised.value)


def test_token_is_sent_as_the_key(start: Callable[..., Server], offline: Offline) -> None:
    server = start("--drain-delay-s", "0", "--api-keys", "sesame")
    check_labels(InferenceClient(server.url, token="sesame").text_classification("a"), offline(b"a"))
    with pytest.raises(HfHubHTTPError) as raised:
        InferenceClient(server.url, token="wrong").text_classification("a")
    assert raised.value.response.status_code == 401
