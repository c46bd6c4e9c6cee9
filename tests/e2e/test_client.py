"""The Python client against real servers."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx
import pandas as pd
import polars as pl
import pytest
from longdoc_client import AsyncClient, Classification, Client, RequestError, Unreachable

from tests.support.offline import Offline, agree, document, scores_of
from tests.support.paths import ROOT
from tests.support.server import Server

TEXTS = [f"A film to see twice, number {number}. " * (1 + number % 7) for number in range(400)]


@pytest.fixture(scope="module")
def asking(server: Server) -> Iterator[Client]:
    with Client(server.url, timeout_s=600) as client:
        yield client


def plain(answers: Iterable[Classification]) -> list[dict[str, Any]]:
    return [{**answer} for answer in answers]


def test_documents_get_the_answers_of_the_model(asking: Client, offline: Offline) -> None:
    documents = [document(length) for length in (3, 9000, 200)] + [b"\xff" * 50]
    found = plain(asking.classify_each(documents, detail=True))
    for answer, text in zip([*found, *plain(map(asking.classify, documents))], documents * 2, strict=True):
        assert agree(answer, offline(text))
    assert all("windows" in answer for answer in found)
    assert len(asking.classify(documents[1], top_k=1)["scores"]) == 1


def test_any_number_of_documents_is_answered_in_order(asking: Client, capsys: pytest.CaptureFixture[str]) -> None:
    found = plain(asking.classify_each(TEXTS, progress=True))
    assert [answer["coverage"]["bytes_total"] for answer in found] == list(map(len, TEXTS))
    assert "400/400" in capsys.readouterr().err


def test_document_that_is_refused_is_an_error_in_its_place(asking: Client) -> None:
    texts = ["fine", "", "fine"]
    with pytest.raises(RequestError, match=r"input 1: 422 invalid_input: .") as error:
        list(asking.classify_each(texts))
    assert error.value.index == 1
    first, second, third = asking.classify_each(texts, return_errors=True)
    assert isinstance(second, RequestError)
    assert first["label"] == third["label"] == asking.classify("fine")["label"]
    with pytest.raises(RequestError) as missing:
        list(asking.classify_each(texts, model="absent"))
    assert (missing.value.status, missing.value.index) == (404, None)
    with pytest.raises(ValueError, match="input 2: the text is not valid Unicode"):
        list(asking.classify_each(["a", "b", "\ud800"]))
    with pytest.raises(TypeError, match="input 0: expected a text or bytes, got int"):
        list(asking.classify_each([3]))


def test_pairs_and_rankings(asking: Client) -> None:
    pairs = [("on parsing", "a parser"), ("on parsing", "speech"), ("tagging", "a tagger of words")]
    scores = [answer["score"] for answer in asking.score_each(pairs)]
    assert scores == pytest.approx([asking.score(*pair)["score"] for pair in pairs], abs=1e-5)
    with pytest.raises(TypeError, match=r"input 1: expected two texts, got \('tagging',\)"):
        list(asking.score_each([pairs[0], ("tagging",)]))  # type: ignore[list-item]
    (ranked,) = asking.rank("on parsing", ["a parser", "speech"], top_n=1, return_documents=True)["results"]
    best = max((0, 1), key=scores.__getitem__)
    assert (ranked["index"], ranked.get("document")) == (best, pairs[best][1])
    assert ranked["score"] == pytest.approx(scores[best], abs=1e-5)
    found = asking.score_frame(pl.DataFrame(pairs, schema=["a", "b"], orient="row"))
    assert found["score"].to_list() == pytest.approx(scores, abs=1e-5)


def test_frames_of_documents(asking: Client) -> None:
    found = asking.classify_frame(pd.Series(["A delight.", None, ""], index=list("xyz")))
    assert found.index.tolist() == ["x", "y", "z"]
    assert found["label"].tolist()[0] == "positive"
    assert [isinstance(error, str) for error in found["error"]] == [False, True, True]


def test_recordings(asking: Client) -> None:
    recording = json.loads((ROOT / "docs" / "recording.json").read_text())["series"]
    answer = asking.classify_series(recording)
    assert answer["label"] == answer["scores"][0]["label"]
    assert "observations_total" in answer["coverage"]


def test_forecasts_of_frames_equal_those_of_values(asking: Client) -> None:
    values = {"sales": [float(20 + 10 * (i % 7) + i) for i in range(60)], "stock": [float(i) for i in range(60)]}
    options: dict[str, Any] = {"model": "any-series", "horizon": 3, "quantiles": [0.1]}
    expected: Any = asking.forecast(values, start="2024-01-01", frequency="1d", **options)
    wide = asking.forecast_frame(pd.DataFrame(values, index=pd.date_range("2024-01-01", periods=60)), **options)
    assert wide["sales"].tolist() == pytest.approx(expected["forecast"]["sales"])
    assert [time.isoformat() for time in wide.index] == expected["timestamps"]
    days = [f"2024-{1 + i // 31:02}-{1 + i % 31:02}" for i in range(60)]
    long = pl.DataFrame(
        {"name": ["sales"] * 60 + ["none"], "day": [*days, "2024-01-01"], "value": [*values["sales"], None]}
    )
    found = asking.forecast_frame(
        long, time_column="day", id_column="name", target_column="value", frequency="1d", **options
    )
    sales = found.filter(pl.col("name") == "sales")
    assert sales["value"].to_list() == pytest.approx(expected["forecast"]["sales"], abs=1e-4)
    assert sales["value 0.1"].to_list() == pytest.approx(expected["quantiles"]["0.1"]["sales"], abs=1e-4)
    assert found.filter(pl.col("name") == "none")["error"].to_list()[0] is not None


async def test_asyncio_gets_the_same_answers(server: Server, asking: Client) -> None:
    async with AsyncClient(server.url, timeout_s=600) as client:
        found = plain([answer async for answer in client.classify_each(TEXTS)])
        for answer, expected in zip(found, plain(asking.classify_each(TEXTS)), strict=True):
            assert agree(answer, scores_of(expected))
        assert (await client.classify("A delight."))["label"] == "positive"
        frame = await client.classify_frame(pl.Series(["A delight."]))
        assert frame["label"].to_list() == ["positive"]
        with pytest.raises(RequestError, match="input 1"):
            [answer async for answer in client.classify_each(["fine", ""])]


class Moving(httpx.BaseTransport):
    """Sends requests to the port of the present server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._transport = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(port=self.port)
        return self._transport.handle_request(request)

    def close(self) -> None:
        self._transport.close()


def test_nothing_is_lost_when_the_server_is_killed_and_another_takes_over(start: Callable[..., Server]) -> None:
    first = start()
    moving = Moving(first.port)
    with Client(first.url, timeout_s=600, transport=moving) as client:
        answers = client.classify_each(TEXTS * 3)
        found = [next(answers)]
        first.kill()
        moving.port = start().port
        found += answers
    expected = [len(text) for text in TEXTS * 3]
    assert [answer["coverage"]["bytes_total"] for answer in plain(found)] == expected


def test_keys_are_sent(start: Callable[..., Server]) -> None:
    url = start("--api-keys", "secret").url
    with Client(url, api_key="secret") as client:
        assert client.classify("A delight.")["label"] == "positive"
    with Client(url, api_key="other") as client, pytest.raises(RequestError, match="401"):
        client.classify("A delight.")


def test_service_that_is_not_there_is_an_error_at_the_deadline() -> None:
    with Client("http://127.0.0.1:1", timeout_s=0.3) as client, pytest.raises(Unreachable, match="/v1/classify: "):
        client.classify("A delight.")
