"""Inference with the Open Inference Protocol: values and errors of every task."""

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest

from service.compat.oip.tensors import HEAD_LENGTH
from service.settings import Settings
from service.wire import recordings, requests
from tests.support.models import (
    ServingClient,
    answer,
    backend_of,
    classifier,
    forecaster,
    matcher,
    series_classifier,
    serving,
)

LONG = "+++" + 22 * "." + "---"


def texts(name: str, *documents: str) -> dict[str, Any]:
    return {"name": name, "datatype": "BYTES", "shape": [len(documents)], "data": documents}


def series(*windows: Any) -> dict[str, Any]:
    return {"name": "series", "datatype": "FP32", "shape": [len(windows), 4, 2], "data": windows}


def rate_of(*rates: float) -> dict[str, Any]:
    return {"name": "rate", "datatype": "FP32", "shape": [len(rates)], "data": rates}


WINDOW = [[1, 5], [2, None], [3, 7], [4, 8]]


async def post(client: ServingClient, name: str, *inputs: dict[str, Any], **more: Any) -> httpx.Response:
    return await client.post(f"/v2/models/{name}/infer", json={"inputs": inputs, **more})


async def data(client: ServingClient, name: str, *inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the data of the outputs by name."""
    return {output["name"]: output["data"] for output in answer(await post(client, name, *inputs, **more))["outputs"]}


async def test_documents_are_classified() -> None:
    async with serving(classifier(version=4)) as client:
        found = answer(await post(client, "mood", texts("text", "++-", LONG), id="7"))
    assert found == {
        "model_name": "mood",
        "model_version": "4",
        "id": "7",
        "parameters": {"bytes_total": 31, "bytes_used": 31, "documents_cut": 0},
        "outputs": [
            {"name": "scores", "datatype": "FP32", "shape": [2, 2], "data": [0.4, 0.6, 0.5, 0.5]},
            {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["positive", "negative"]},
        ],
    }


async def test_chosen_labels_are_lists_as_json() -> None:
    async with serving(classifier(thresholds=(0.7, 0.6))) as client:
        found = await data(client, "mood", texts("text", "+--", "."))
    assert found["labels"] == ['["negative", "positive"]', "[]"]
    assert found["label"] == ["negative", "negative"]


async def test_rows_of_bytes_are_documents_of_the_given_lengths() -> None:
    rows = np.frombuffer(b"++-.", np.uint8).tolist()
    inputs = (
        {"name": "bytes", "datatype": "UINT8", "shape": [2, 4], "data": [rows, rows]},
        {"name": "lengths", "datatype": "INT32", "shape": [2], "data": [2, 3]},
    )
    async with serving(classifier()) as client:
        found = answer(await post(client, "mood", *inputs, outputs=[{"name": "scores"}]))
    (scores,) = found["outputs"]
    assert scores["data"] == [0.25, 0.75, 0.4, 0.6]
    assert found["parameters"]["bytes_total"] == 5


async def test_truncation_is_counted() -> None:
    async with serving(classifier()) as client:
        found = answer(await post(client, "mood", texts("text", LONG, "+"), parameters={"on_overflow": "head"}))
    assert found["parameters"] == {"bytes_total": 29, "bytes_used": 17, "documents_cut": 1}


async def test_best_classes_have_tritons_format() -> None:
    async with serving(classifier()) as client:
        outputs = [{"name": "scores", "parameters": {"classification": 1}}]
        found = await data(client, "mood", texts("text", "---", "+++"), outputs=outputs)
    assert [entry.split(":")[1:] for entry in found["scores"]] == [["0", "negative"], ["1", "positive"]]
    assert [float(entry.split(":")[0]) for entry in found["scores"]] == pytest.approx([0.8, 0.8], abs=1e-6)


async def infer_raw(client: ServingClient, name: str, body: bytes) -> httpx.Response:
    return await client.post(f"/v2/models/{name}/infer", content=body, headers={HEAD_LENGTH: "0"})


async def test_body_may_be_the_bytes_of_one_text() -> None:
    """A raw binary request; its outputs are binary."""
    async with serving(classifier()) as client:
        response = await infer_raw(client, "mood", b"++-")
        empty = await infer_raw(client, "mood", b"")
    length = int(response.headers[HEAD_LENGTH])
    scores, label = json.loads(response.content[:length])["outputs"]
    assert (scores["shape"], label["shape"]) == ([1, 2], [1])
    assert np.frombuffer(response.content[length : length + 8], "<f4").tolist() == pytest.approx([0.4, 0.6], abs=1e-6)
    assert response.content[length + 8 :] == b"\x08\x00\x00\x00positive"
    assert empty.json() == {"error": "text.0: the document is empty; at least 1 byte is needed"}


@pytest.mark.parametrize(("name", "steps"), [("naive", 4), ("gestures", 5)])
async def test_body_may_be_the_numbers_of_one_series(name: str, steps: int) -> None:
    values = np.arange(2 * steps, dtype="<f4").reshape(1, steps, 2)
    given = {"name": "series", "datatype": "FP32", "shape": values.shape, "data": values.ravel().tolist()}
    async with serving(forecaster(), series_classifier()) as client:
        response = await infer_raw(client, name, values.tobytes())
        in_json = (await data(client, name, given)).popitem()
        short = await infer_raw(client, name, values.tobytes()[:-2])
    head = json.loads(response.content[: int(response.headers[HEAD_LENGTH])])
    assert head["outputs"][-1]["name"] == in_json[0]
    assert head["parameters"]["observations_total"] == values.size
    assert (short.status_code, "binary_data_size" in short.json()["error"]) == (422, True)


async def test_raw_body_needs_a_model_of_one_input() -> None:
    async with serving(matcher()) as client:
        response = await infer_raw(client, "twins", b"++")
    message = (
        "0; the shapes of the inputs must follow from the length of the body, and do not of a [-1, 1] and b [-1, 1]"
    )
    assert (response.status_code, response.json()) == (422, {"error": f"{HEAD_LENGTH}: {message}"})


@pytest.mark.parametrize("is_binary", [False, True])
async def test_series_may_be_float64(*, is_binary: bool) -> None:
    """NumPy's default."""
    values = np.array([WINDOW], float)
    given: dict[str, Any] = {"name": "series", "datatype": "FP64", "shape": values.shape}
    async with serving(forecaster()) as client:
        in_float32 = await data(client, "naive", series(WINDOW))
        if is_binary:
            head = json.dumps({"inputs": [{**given, "parameters": {"binary_data_size": values.nbytes}}]}).encode()
            response = await client.post(
                "/v2/models/naive/infer", content=head + values.tobytes(), headers={HEAD_LENGTH: str(len(head))}
            )
            found = {output["name"]: output["data"] for output in answer(response)["outputs"]}
        else:
            found = await data(client, "naive", {**given, "data": [WINDOW]})
    assert found == in_float32


async def test_binary_tensors_are_read_and_written() -> None:
    raw = b"\x03\x00\x00\x00++-"
    given = {"name": "text", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    async with serving(classifier()) as client:
        response = await client.post(
            "/v2/models/mood/versions/1/infer", content=head + raw, headers={HEAD_LENGTH: str(len(head))}
        )
    length = int(response.headers[HEAD_LENGTH])
    assert np.frombuffer(response.content[length : length + 8], "<f4").tolist() == pytest.approx([0.4, 0.6], abs=1e-6)
    assert response.content[length + 8 :] == b"\x08\x00\x00\x00positive"


async def test_pairs_are_scored() -> None:
    async with serving(matcher()) as client:
        found = answer(await post(client, "twins", texts("a", "++", "--"), texts("b", "+-", "++")))
    assert found["outputs"] == [{"name": "score", "datatype": "FP32", "shape": [2], "data": [0.75, 0.5]}]
    assert found["parameters"] == {"bytes_total": 8, "bytes_used": 8, "documents_cut": 0}


async def test_recordings_are_classified() -> None:
    """Missing values are null; the steps without values at the end of a shorter recording are left out."""
    x, y = [10, None, 12, 13], [10, 12, 14, 9]
    both = [[list(step) for step in zip(x, y, strict=True)], [[x[0], y[0]], *[[None, None]] * 3]]
    async with serving(series_classifier(version=4)) as client:
        found = answer(await post(client, "gestures", series(*both)))
        native = answer(await client.post("/v1/classify", json={"series": [{"x": x, "y": y}, {"x": [10], "y": [10]}]}))
    wave = [{one["label"]: one["score"] for one in result["scores"]}["wave"] for result in native["results"]]
    scores, labels = found["outputs"]
    assert labels == {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["wave", "rest"]}
    assert (scores["name"], scores["shape"]) == ("scores", [2, 2])
    assert scores["data"][1::2] == pytest.approx(wave, abs=2e-6)
    assert found["parameters"] == {"observations_total": 9, "observations_used": 9, "imputed": 1}


async def test_recordings_may_have_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = [10, 11, 12, 13], [10, 12, 14, 9]
    sent = series([list(step) for step in zip(x, y, strict=True)])
    async with serving(series_classifier(rate=0.1)) as client:
        slow = answer(await post(client, "gestures", sent, rate_of(0.05)))
        native = answer(await client.post("/v1/classify", json={"series": {"x": x, "y": y}, "rate": 0.05}))
        same = [await data(client, "gestures", sent, *given) for given in ((), (rate_of(0.1),))]
        monkeypatch.setattr(recordings, "MAX_VALUES", 15)
        many = await post(client, "gestures", sent, rate_of(0.05))
    wave = {one["label"]: one["score"] for one in native["results"][0]["scores"]}["wave"]
    assert slow["outputs"][0]["data"][1] == pytest.approx(wave, abs=2e-6)
    assert same[0] == same[1] != slow["outputs"][0]["data"]
    assert many.status_code == 413
    assert "there would be 16 values at the rate of the model; at most 15 are allowed" in many.json()["error"]


async def test_best_classes_of_recordings_have_tritons_format() -> None:
    async with serving(series_classifier()) as client:
        outputs = [{"name": "scores", "parameters": {"classification": 1}}]
        found = await data(client, "gestures", series([[8, 8]] * 4, [[12, 12]] * 4), outputs=outputs)
    assert [entry.split(":")[1:] for entry in found["scores"]] == [["0", "rest"], ["1", "wave"]]


async def test_binary_recordings_get_the_answer_of_json() -> None:
    values = np.array([[[10, 10], [np.nan, 12], [12, 14], [13, 9]]], "<f4")
    given = {
        "name": "series", "datatype": "FP32", "shape": [1, 4, 2], "parameters": {"binary_data_size": values.nbytes}
    }  # fmt: skip
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    async with serving(series_classifier()) as client:
        response = await client.post(
            "/v2/models/gestures/infer", content=head + values.tobytes(), headers={HEAD_LENGTH: str(len(head))}
        )
        as_json = await data(client, "gestures", series([[10, 10], [None, 12], [12, 14], [13, 9]]))
    length = int(response.headers[HEAD_LENGTH])
    binary = np.frombuffer(response.content[length : length + 8], "<f4").tolist()
    assert binary == pytest.approx(as_json["scores"], abs=1e-6)
    assert response.content[length + 8 :] == b"\x04\x00\x00\x00wave"


async def test_series_are_forecast() -> None:
    async with serving(forecaster()) as client:
        found = answer(await post(client, "naive", series(WINDOW, [[0, 1]] * 4)))
    (forecast,) = found["outputs"]
    assert (forecast["shape"], forecast["data"]) == ([2, 3, 2], 3 * [4, 8] + 3 * [0, 1])
    assert found["parameters"] == {"observations_total": 15, "observations_used": 15, "imputed": 1}


@pytest.mark.parametrize(
    ("name", "inputs", "more", "message"),
    [
        ("mood", [texts("a", "+")], {}, "inputs: received an unknown one; mood needs text, or bytes and lengths"),
        ("mood", [texts("text", "+", "")], {}, "text.1: the document is empty; at least 1 byte is needed"),
        ("gestures", [series([[1, None]] * 4)], {}, "series.0.y: it has no known value"),
        (
            "gestures",
            [series([[1, 1]] * 4), rate_of(0)],
            {},
            "rate: must be a positive number of steps per second, not 0",
        ),
        (
            "gestures",
            [series([[1, 1]] * 4), rate_of(1, 2)],
            {},
            "rate: must be one number, for all recordings, not 2",
        ),
        (
            "gestures",
            [{"name": "series", "datatype": "FP32", "shape": [1, 1, 3], "data": [1, 2, 3]}],
            {},
            "series: shape [1, 1, 3]; [-1, -1, 2] is allowed",
        ),
        (
            "gestures",
            [{**series([[1, 1]] * 4), "shape": [1, 9, 2], "data": [1] * 18}],
            {"parameters": {"on_overflow": "error"}},
            "series.0: the recording has 9 steps; the model reads 8 and on_overflow is 'error'",
        ),
        (
            "mood",
            [texts("text", "+")],
            {"outputs": [{"name": "logits"}]},
            "outputs.0: no output of that name; mood has scores, label",
        ),
        (
            "mood",
            [texts("text", "+")],
            {"outputs": [{"name": "label"}, {"name": "label"}]},
            "outputs: an output is requested twice",
        ),
        (
            "mood",
            [texts("text", "+")],
            {"outputs": [{"name": "label", "parameters": {"classification": 1}}]},
            "outputs.0: classification of label; only scores can be classified",
        ),
        (
            "mood",
            [
                {"name": "bytes", "datatype": "UINT8", "shape": [1, 1], "data": [1]},
                {"name": "lengths", "datatype": "INT32", "shape": [1], "data": [2]},
            ],
            {},
            "lengths.0: 2; 0 to 1, the width of bytes, is allowed",
        ),
        (
            "mood",
            [
                {"name": "bytes", "datatype": "UINT8", "shape": [1, 1], "data": [1]},
                {"name": "lengths", "datatype": "INT32", "shape": [2], "data": [1, 1]},
            ],
            {},
            "lengths: 2 elements; 1 are needed, one for each row of bytes",
        ),
        ("twins", [texts("a", "++")], {}, "inputs: received a; twins needs a and b"),
        ("twins", [texts("a", "++"), texts("b", "++", "++")], {}, "b: 2 elements; 1 are needed, as many as in a"),
        ("twins", [texts("a", ""), texts("b", "++")], {}, "a.0: the document is empty; at least 1 byte is needed"),
        (
            "naive",
            [series([[1, None]] * 4)],
            {},
            "series.0.heat: 0 of the last 4 values of heat are there; at least 2 are needed",
        ),
    ],
)
async def test_error_names_the_wrong_value(name: str, inputs: list[Any], more: dict[str, Any], message: str) -> None:
    async with serving(classifier(), matcher(), forecaster(), series_classifier()) as client:
        response = await post(client, name, *inputs, **more)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/json")
    assert list(response.json()) == ["error"]
    assert response.json()["error"].endswith(message)


async def test_sizes_of_request_and_response_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_NUMBERS", 11)
    async with serving(classifier(), forecaster(), settings=Settings(max_documents=2)) as client:
        many = await post(client, "mood", texts("text", "+", "+", "+"))
        large = await post(client, "naive", series(WINDOW, WINDOW))
    assert (many.status_code, many.json()) == (413, {"error": "text: 3; at most 2 in one request"})
    assert (large.status_code, "12 numbers; at most 11" in large.json()["error"]) == (413, True)


async def test_unknown_model_is_an_error() -> None:
    async with serving(classifier()) as client:
        response = await post(client, "none", texts("text", "+"))
    assert (response.status_code, list(response.json())) == (404, ["error"])


async def test_timeout_parameter_sets_the_deadline() -> None:
    model = classifier()
    backend_of(model).gate.clear()
    async with serving(model, settings=Settings(deadline_s=3600)) as client:
        response = await post(client, "mood", texts("text", "+"), parameters={"timeout": 1})
        backend_of(model).gate.set()
        await asyncio.wait_for(client.engine.drain(), 60)
        assert client.count("longdoc_requests_rejected_total", model="mood", reason="client_deadline") == 1
    assert (response.status_code, list(response.json())) == (504, ["error"])
