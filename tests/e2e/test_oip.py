"""Open Inference Protocol v2: Triton's own client gets the answers computed offline."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from artifact.manifest import ExportManifest
from artifact.tasks.classification import ClassifierManifest
from artifact.tasks.forecasting import ForecasterManifest
from tests.support.mutations import mutate
from tests.support.offline import Columns, Offline, OfflineForecaster, OfflineMatcher, document, rows_of, same_score
from tests.support.problems import SECRET
from tests.support.server import ControlledServer, Server
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

INFER = "/v2/models/imdb-s3/infer"
TOO_LONG = "the body has 9000000 bytes; at most 8388608"
SHORT, LONG = b"A good film, \xff\x00 even so.", document(9000)


@pytest.fixture
def client_of_triton(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.url.removeprefix("http://"), concurrency=4) as client:
        yield client


def tensor(name: str, datatype: str, values: np.ndarray, binary: bool = True) -> triton.InferInput:
    given = triton.InferInput(name, list(values.shape), datatype)
    return given.set_data_from_numpy(values, binary_data=binary)


def texts(name: str, documents: Sequence[bytes], binary: bool = True) -> triton.InferInput:
    return tensor(name, "BYTES", np.array(documents, object), binary)


def parameters(result: triton.InferResult) -> dict[str, Any]:
    found: dict[str, Any] = result.get_response()["parameters"]
    return found


def check_scores(
    result: triton.InferResult, documents: Sequence[bytes], offline: Offline, how: str = "windows"
) -> None:
    scores, found = result.as_numpy("scores"), result.as_numpy("label")
    assert scores.dtype == np.float32
    assert scores.shape == (len(documents), len(offline.manifest.labels))
    assert found.shape == (len(documents),)
    for row, label, given in zip(scores, found, documents, strict=True):
        expected = offline(given, how)
        assert dict(zip(offline.manifest.labels, row.tolist(), strict=True)) == pytest.approx(expected, abs=1e-5)
        assert (label.decode() if isinstance(label, bytes) else label) == max(expected, key=lambda name: expected[name])


def test_metadata_of_server_and_models(
    client_of_triton: triton.InferenceServerClient, manifest: ClassifierManifest, forecaster: OfflineForecaster
) -> None:
    client = client_of_triton
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(manifest.name)
    assert client.is_model_ready(manifest.name, str(manifest.version))
    assert not client.is_model_ready(manifest.name, "999")
    assert not client.is_model_ready("none")
    assert client.get_server_metadata()["name"] == "longdoc-serve"
    assert client.get_server_metadata()["extensions"] == [
        "binary_tensor_data", "classification", "model_configuration", "model_repository", "parameters", "statistics",
    ]  # fmt: skip
    described = client.get_model_metadata(manifest.name)
    assert described == client.get_model_metadata(manifest.name, str(manifest.version))
    assert described == {
        "name": manifest.name,
        "versions": [str(manifest.version)],
        "platform": "onnx_onnxv1",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1, 1]}],
        "outputs": [
            {"name": "scores", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
        ],
        "parameters": {"labels": list(manifest.labels)},
    }
    assert [t["name"] for t in client.get_model_metadata("aan")["inputs"]] == ["a", "b"]
    m = forecaster.manifest
    described = client.get_model_metadata(m.name)
    assert described["inputs"][0]["shape"] == [-1, m.context_length, len(m.channels)]
    assert described["outputs"][0]["shape"] == [-1, m.horizon, len(m.channels)]
    assert described["parameters"] == {"channels": list(m.channels), "frequency": m.frequency}


def test_model_configuration_agrees_with_the_metadata(
    client: httpx.Client, client_of_triton: triton.InferenceServerClient, manifest: ClassifierManifest
) -> None:
    config = client_of_triton.get_model_config(manifest.name)
    assert config == client_of_triton.get_model_config(manifest.name, str(manifest.version))
    assert (config["name"], config["backend"], config["platform"]) == (manifest.name, "onnxruntime", "onnxruntime_onnx")
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 0
    for name in (model["name"] for model in client.get("/v1/models").json()["models"]):
        metadata, config = client_of_triton.get_model_metadata(name), client_of_triton.get_model_config(name)
        for tensors, configured in (("inputs", "input"), ("outputs", "output")):
            found = [
                (tensor["name"], tensor["data_type"].replace("STRING", "BYTES"), [-1, *tensor["dims"]])
                for tensor in config[configured]
            ]
            assert found == [(t["name"], f"TYPE_{t['datatype']}", t["shape"]) for t in metadata[tensors]]
    with pytest.raises(InferenceServerException, match="no model of that name") as raised:
        client_of_triton.get_model_config("none")
    assert raised.value.status() == "404"


def test_max_batch_size_of_the_configuration_is_the_limit(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest
) -> None:
    most = client_of_triton.get_model_config(manifest.name)["max_batch_size"]
    with pytest.raises(InferenceServerException, match=f"text: {most + 1}; at most {most} in one request"):
        client_of_triton.infer(manifest.name, [texts("text", [b"a"] * (most + 1))])
    result = client_of_triton.infer(manifest.name, [texts("text", [b"a"] * most)])
    assert result.as_numpy("scores").shape[0] == most


def test_labels_of_the_metadata_are_those_of_the_classes(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest
) -> None:
    labels = client_of_triton.get_model_metadata(manifest.name)["parameters"]["labels"]
    wanted = triton.InferRequestedOutput("scores", class_count=len(labels))
    found = client_of_triton.infer(manifest.name, [texts("text", [SHORT])], outputs=[wanted]).as_numpy("scores")
    classes = [entry.decode().split(":") for entry in found[0]]
    assert {label: int(index) for _, index, label in classes} == {label: i for i, label in enumerate(labels)}


def statistics(client: triton.InferenceServerClient, name: str) -> dict[str, Any]:
    """Return the statistics of one model."""
    (found,) = client.get_inference_statistics(name)["model_stats"]
    assert found["name"] == name
    described: dict[str, Any] = found
    return described


def test_statistics_count_requests(
    client_of_triton: triton.InferenceServerClient, manifest: ClassifierManifest
) -> None:
    client, documents, stages = client_of_triton, [SHORT, LONG], ("compute_input", "compute_infer", "compute_output")
    before, asked_ms = statistics(client, manifest.name), int(1000 * time.time())
    client.infer(manifest.name, [texts("text", documents)])
    with pytest.raises(InferenceServerException, match="the document is empty"):
        client.infer(manifest.name, [texts("text", [b""])])
    after = statistics(client, manifest.name)
    rows = sum(len(rows_of(manifest, given, "windows")) for given in documents)
    assert after["inference_count"] == before["inference_count"] + rows
    assert after["execution_count"] > before["execution_count"]
    assert asked_ms <= after["last_inference"] <= 1000 * time.time()
    for what in ("success", "fail", "queue", *stages):
        was, now = (found["inference_stats"][what] for found in (before, after))
        assert now["count"] == was["count"] + 1
        assert now["ns"] >= was["ns"]
    for what in ("success", "compute_infer"):
        assert after["inference_stats"][what]["ns"] > before["inference_stats"][what]["ns"]
    batches = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in after["batch_stats"]}
    assert sum(batches.values()) == after["execution_count"]
    assert sum(size * count for size, count in batches.items()) == after["inference_count"]


def test_statistics_cover_one_model_or_all(
    client: httpx.Client, client_of_triton: triton.InferenceServerClient, manifest: ExportManifest
) -> None:
    everything = client_of_triton.get_inference_statistics()["model_stats"]
    served = client.get("/v1/models").json()["models"]
    assert [(m["name"], m["version"]) for m in everything] == [(m["name"], str(m["version"])) for m in served]
    found = client_of_triton.get_inference_statistics(manifest.name, str(manifest.version))["model_stats"]
    assert found == [stats for stats in everything if stats["name"] == manifest.name]
    for arguments in (("none",), (manifest.name, "999")):
        with pytest.raises(InferenceServerException) as raised:
            client_of_triton.get_inference_statistics(*arguments)
        assert raised.value.status() == "404"


def test_repository_index_lists_the_served_models(
    client: httpx.Client, client_of_triton: triton.InferenceServerClient
) -> None:
    served = client.get("/v1/models").json()["models"]
    expected = [{"name": m["name"], "version": str(m["version"]), "state": "READY", "reason": ""} for m in served]
    assert client_of_triton.get_model_repository_index() == expected
    assert client.post("/v2/repository/index", json={"ready": True}).json() == expected
    check_error(client.post("/v2/repository/index", json={"ready": 1}), 422, "ready: Input should be a valid boolean")
    check_error(client.get("/v2/repository/index"), 405, "the methods of this path: POST")
    for depth, status, message in ((90_000, 400, "nested too deep"), (250_000, 413, "holds 250000 lists")):
        check_error(client.post("/v2/repository/index", content=b"[" * depth + b"]" * depth), status, message)
    assert client_of_triton.is_server_live()


def test_asyncio_client_of_triton_reads_the_same_metadata(
    server: Server, client_of_triton: triton.InferenceServerClient, manifest: ExportManifest
) -> None:
    calls: list[tuple[str, tuple[str, ...]]] = [
        *(("is_server_live", ()), ("is_server_ready", ()), ("get_server_metadata", ())),
        *(("is_model_ready", (name,)) for name in (manifest.name, "none")),
        *(("get_model_metadata", (manifest.name,)), ("get_model_config", (manifest.name,))),
        *(("get_inference_statistics", (manifest.name,)), ("get_model_repository_index", ())),
    ]

    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            return [await getattr(client, method)(*arguments) for method, arguments in calls]

    assert asyncio.run(ask()) == [getattr(client_of_triton, method)(*arguments) for method, arguments in calls]


def test_shared_memory_cannot_be_registered(server: Server) -> None:
    async def register(kind: str, *arguments: object) -> str | None:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            with pytest.raises(InferenceServerException) as raised:
                await getattr(client, f"register_{kind}_shared_memory")("region", *arguments)
        status: str | None = raised.value.status()
        return status

    assert asyncio.run(register("system", "/key", 64)) == "404"
    assert asyncio.run(register("cuda", b"handle", 0, 64)) == "404"


@pytest.mark.parametrize("binary", [True, False])
def test_documents_are_classified(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest, offline: Offline, binary: bool
) -> None:
    documents = [SHORT if binary else SHORT.decode("latin-1").encode(), LONG, b"x"]
    outputs = [triton.InferRequestedOutput(name, binary_data=not binary) for name in ("label", "scores")]
    for given in (np.array(documents, object), np.array(documents, object)[:, None]):
        for wanted in (outputs, None):
            result = client_of_triton.infer(
                manifest.name,
                [tensor("text", "BYTES", given, binary)],
                model_version=str(manifest.version),
                outputs=wanted,
                request_id="number 7",
            )
            check_scores(result, documents, offline)
            response = result.get_response()
            assert (response["id"], response["model_name"]) == ("number 7", manifest.name)
            assert response["model_version"] == str(manifest.version)
            assert [output["name"] for output in response["outputs"]] == (
                ["label", "scores"] if wanted else ["scores", "label"]
            )


def test_padded_rows_with_lengths_are_documents(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest, offline: Offline
) -> None:
    documents = [SHORT, LONG]
    rows = np.zeros((2, len(LONG) + 5), np.uint8)
    for row, given in zip(rows, documents, strict=True):
        row[: len(given)] = np.frombuffer(given, np.uint8)
    lengths = np.array([len(given) for given in documents], np.int32)
    for binary in (True, False):
        inputs = [tensor("lengths", "INT32", lengths, binary), tensor("bytes", "UINT8", rows, binary)]
        check_scores(client_of_triton.infer(manifest.name, inputs), documents, offline)


@pytest.mark.parametrize("binary", [True, False])
def test_classification_extension_returns_the_best_classes(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest, offline: Offline, binary: bool
) -> None:
    for count in (1, 2, 99):
        wanted = triton.InferRequestedOutput("scores", binary_data=binary, class_count=count)
        result = client_of_triton.infer(manifest.name, [texts("text", [LONG, SHORT])], outputs=[wanted])
        found = result.as_numpy("scores")
        assert found.shape == (2, min(count, 2))
        for row, given in zip(found, (LONG, SHORT), strict=True):
            expected = sorted(offline(given).items(), key=lambda item: -item[1])[:count]
            for entry, (label, score) in zip(row, expected, strict=True):
                value, index, name = (entry.decode() if isinstance(entry, bytes) else entry).split(":")
                assert (name, int(index)) == (label, list(offline.manifest.labels).index(label))
                assert float(value) == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_pairs_are_scored(
    client_of_triton: triton.InferenceServerClient, matcher: OfflineMatcher, binary: bool
) -> None:
    a, b = ["a paper on parsing", "one on speech"], ["a parser " * 900, "machine translation"]
    inputs = [texts("b", [t.encode() for t in b], binary), texts("a", [t.encode() for t in a], binary)]
    result = client_of_triton.infer("aan", inputs)
    scores = result.as_numpy("score")
    assert scores.dtype == np.float32
    for score, one, other in zip(scores.tolist(), a, b, strict=True):
        assert same_score(score, matcher(one, other))
    total = sum(map(len, a + b))
    assert parameters(result) == {"bytes_total": total, "bytes_used": total, "documents_cut": 0}


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
@pytest.mark.parametrize("binary", [True, False])
def test_series_are_forecast(
    client_of_triton: triton.InferenceServerClient, forecaster: OfflineForecaster, datatype: str, binary: bool
) -> None:
    m = forecaster.manifest
    columns = [forecaster.series(m.context_length, seed) for seed in range(3)]
    series = np.array(columns, np.float32 if datatype == "FP32" else np.float64).transpose(0, 2, 1)
    result = client_of_triton.infer(m.name, [tensor("series", datatype, series, binary)])
    forecast = result.as_numpy("forecast")
    assert forecast.shape == (3, m.horizon, len(m.channels))
    for found, given in zip(forecast, columns, strict=True):
        assert forecaster.agree(found.T.tolist(), forecaster(given))
    sent = series.size
    assert parameters(result) == {"observations_total": sent, "observations_used": sent, "imputed": 0}


def test_missing_values_are_interpolated_and_counted(
    client: httpx.Client, client_of_triton: triton.InferenceServerClient, forecaster: OfflineForecaster
) -> None:
    m = forecaster.manifest
    columns: Columns = forecaster.series(m.context_length)
    series = np.array(columns, np.float32).T[None].copy()
    columns[1][3] = columns[2][-1] = None
    series[0, 3, 1] = series[0, -1, 2] = np.nan
    result = client_of_triton.infer(m.name, [tensor("series", "FP32", series)])
    assert forecaster.agree(result.as_numpy("forecast")[0].T.tolist(), forecaster(columns))
    used = series.size - 2
    assert parameters(result) == {"observations_total": used, "observations_used": used, "imputed": 2}
    steps = [list(step) for step in zip(*columns, strict=True)]  # JSON has no NaN
    given = {"name": "series", "datatype": "FP32", "shape": series.shape, "data": [steps]}
    answer = client.post(f"/v2/models/{m.name}/infer", json={"inputs": [given]}).json()
    assert answer["parameters"]["imputed"] == 2
    in_json = np.reshape(answer["outputs"][0]["data"], (m.horizon, len(m.channels)))
    assert forecaster.agree(in_json.T.tolist(), forecaster(columns))


def test_truncation_is_reported(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest, offline: Offline
) -> None:
    documents, total = [LONG, SHORT], len(LONG) + len(SHORT)
    for how, used, count in (
        ("windows", total, 0), ("head", 4096 + len(SHORT), 1), ("tail", 4096 + len(SHORT), 1),
        ("head_tail", 4096 + len(SHORT), 1),
    ):  # fmt: skip
        result = client_of_triton.infer(manifest.name, [texts("text", documents)], parameters={"on_overflow": how})
        found = parameters(result)
        assert (found.pop("known", None) is not None) == offline.manifest.counts_words
        assert found == {"bytes_total": total, "bytes_used": used, "documents_cut": count}
        check_scores(result, documents, offline, how)
    with pytest.raises(InferenceServerException, match=r"text\.0: the document has 9000 bytes; the model reads 4096"):
        client_of_triton.infer(manifest.name, [texts("text", documents)], parameters={"on_overflow": "error"})


def test_concurrent_requests_get_their_own_scores(
    client_of_triton: triton.InferenceServerClient, server: Server, manifest: ExportManifest, offline: Offline
) -> None:
    documents = [document(100 * (i + 1)) for i in range(8)]
    running = [client_of_triton.async_infer(manifest.name, [texts("text", [given])]) for given in documents]
    for given, answer in zip(documents, running, strict=True):
        check_scores(answer.get_result(), [given], offline)

    async def ask() -> list[triton.InferResult]:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            asked = (client.infer(manifest.name, [texts("text", [given])]) for given in documents)
            return list(await asyncio.gather(*asked))

    for given, result in zip(documents, asyncio.run(ask()), strict=True):
        check_scores(result, [given], offline)


def test_timeout_parameter_sets_the_deadline(controlled: ControlledServer, manifest: ExportManifest) -> None:
    """The parameter is in microseconds; the header applies if it is shorter."""
    second = 1_000_000
    with triton.InferenceServerClient(controlled.url.removeprefix("http://")) as client:
        with controlled.held():
            for timeout, header in ((20_000, None), (20_000, "20000"), (20 * second, "20")):
                headers = {"X-Request-Timeout-Ms": header} if header else None
                with pytest.raises(InferenceServerException, match="the deadline passed") as raised:
                    client.infer(manifest.name, [texts("text", [SHORT])], timeout=timeout, headers=headers)
                assert raised.value.status() == "504"
        assert client.infer(manifest.name, [texts("text", [SHORT])], timeout=20 * second) is not None


def test_client_raises_the_error_message_of_the_server(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest, forecaster: OfflineForecaster
) -> None:
    m, one, text = forecaster.manifest, np.ones((1, 2), np.uint8), texts("text", [SHORT])
    series = np.zeros((1, m.context_length + 1, len(m.channels)), np.float32)
    lengths = tensor("lengths", "INT32", np.array([3], np.int32))
    asked: list[tuple[dict[str, Any], str, str]] = [
        ({"model_name": "none", "inputs": [text]}, "404", "no model of that name is served; there are: "),
        ({"model_version": "999", "inputs": [text]}, "404", f"served in version {manifest.version} only"),
        ({"inputs": [tensor("text", "UINT8", one)]}, "422", "text: datatype UINT8; BYTES is allowed"),
        ({"inputs": [tensor("text", "BYTES", np.array([[b"a", b"b"]], object))]}, "422", r"text: shape \[1, 2\]; "),
        ({"inputs": [text, lengths]}, "422", "received text, lengths; imdb-s3 needs text, or bytes and lengths"),
        ({"inputs": [lengths, tensor("bytes", "UINT8", one)]}, "422", r"lengths\.0: 3; 0 to 2, the width of bytes"),
        ({"inputs": [texts("text", [b"", b"a"])]}, "422", r"text\.0: the document is empty"),
        ({"inputs": [text], "outputs": [triton.InferRequestedOutput("x")]}, "422", "imdb-s3 has scores, label"),
        ({"inputs": [text], "outputs": [triton.InferRequestedOutput("label", class_count=1)]}, "422", "classification"),
        ({"model_name": "aan", "inputs": [texts("a", [b"abc"]), texts("b", [b"abc"] * 2)]}, "422", "b: 2 elements; 1"),
        ({"model_name": "aan", "inputs": [texts("a", [b"abc"]), texts("b", [b""])]}, "422", r"b\.0: the document"),
        (
            {"model_name": m.name, "inputs": [tensor("series", "FP32", series)]},
            "422", rf"series: shape \[1, 97, 7\]; \[-1, {m.context_length}, 7\] is allowed",
        ),
        (
            {"model_name": m.name, "inputs": [tensor("series", "FP32", np.full_like(series[:, 1:], np.nan))]},
            "422", rf"series\.0\.{m.channels[0]}: 0 of the last {m.context_length} values",
        ),
        (
            {"model_name": m.name, "inputs": [tensor("series", "FP32", np.full_like(series[:, 1:], np.inf))]},
            "422", rf"series\.0\.{m.channels[0]}\.0: value 0 of {m.channels[0]} is more than",
        ),
    ]  # fmt: skip
    for arguments, status, message in asked:
        with pytest.raises(InferenceServerException, match=message) as raised:
            client_of_triton.infer(**{"model_name": manifest.name, **arguments})
        assert raised.value.status() == status


def test_responses_are_compressed_on_request(
    client_of_triton: triton.InferenceServerClient, manifest: ExportManifest, offline: Offline
) -> None:
    result = client_of_triton.infer(manifest.name, [texts("text", [SHORT])], response_compression_algorithm="gzip")
    check_scores(result, [SHORT], offline)


def given(data: object = (SECRET,), shape: object = (1,), datatype: object = "BYTES", **more: object) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "datatype": datatype, "shape": shape, "data": data}], **more}


def check_error(response: httpx.Response, status: int, message: str = "") -> None:
    """Check that the response has the protocol's error body only."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    assert message in response.json()["error"], response.text
    assert SECRET[:20] not in response.text


def nested(depth: int) -> object:
    """Return a text in that many lists."""
    return [nested(depth - 1)] if depth else SECRET


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "not valid JSON"),
        (b"{", 400, "not valid JSON"),
        (b'{"inputs": "\xff"}', 400, "not valid JSON"),
        (b'{"inputs": "\\ud800"}', 400, "inputs: contains a lone surrogate"),
        (b"[" * 100_000, 400, "nested too deep; at most 1024 levels"),
        (b"[", 400, ""),
        ([], 422, "body: "),
        ({}, 422, "inputs: Field required"),
        ({"inputs": SECRET}, 422, "inputs: "),
        ({"inputs": []}, 422, "inputs: received none; imdb-s3 needs text, or bytes and lengths"),
        ({"inputs": [SECRET]}, 422, "inputs.0: "),
        ({"inputs": given()["inputs"] * 17}, 422, "inputs: "),
        ({"inputs": given()["inputs"] * 2}, 422, "inputs.1: another input has the same name"),
        ({"inputs": [{**given()["inputs"][0], "name": SECRET}]}, 422, "inputs: received an unknown one; imdb-s3 needs"),
        (given(datatype=SECRET), 422, "inputs.0.datatype: "),
        (given(datatype="STRING"), 422, "inputs.0.datatype: "),
        (given(datatype="FP32"), 422, "text: datatype FP32; BYTES is allowed"),
        (given(shape=SECRET), 422, "inputs.0.shape: "),
        (given(shape=[-1]), 422, "inputs.0.shape.0: "),
        (given(shape=[1.0]), 422, "inputs.0.shape.0: "),
        (given(shape=[True]), 422, "inputs.0.shape.0: "),
        (given(shape=[10**30]), 422, "inputs.0.shape.0: "),
        (given(shape=[16, 2**60 + 2]), 422, "inputs.0.shape.1: Input should be less than 2147483648"),
        (given(shape=[2, -5]), 422, "inputs.0.shape.1: Input should be greater than or equal to 0"),
        (given(shape=[1] * 9), 422, "inputs.0.shape: "),
        (given(shape=[]), 422, "text: shape []; [-1] is allowed"),
        (given(shape=[0], data=[]), 422, "text: at least 1 is needed"),
        (given(shape=[2]), 422, "text: 1 elements; shape [2] needs 2"),
        (given(shape=[2**31 - 1]), 413, "text: 2147483647; at most 256"),
        (given(shape=[257], data=["a"] * 257), 413, "text: 257; at most 256"),
        (given(data=["a" * (2**20 + 1)]), 413, "text.0: the document has 1048577 bytes; at most 1048576"),
        (given(data=[[SECRET]]), 422, "text: elements of type list; BYTES is allowed"),
        (given(data=nested(50)), 422, "text: elements of type list; BYTES is allowed"),
        (given(data=nested(120), shape=[1, 1]), 422, "text: elements of type list; BYTES is allowed"),
        (given(data=[[SECRET, SECRET]], shape=[1, 1]), 422, "text: the data is not nested like shape [1, 1]"),
        (given(data=[5]), 422, "text: elements of type int; BYTES is allowed"),
        (given(data=[None]), 422, "text: elements of type NoneType; BYTES is allowed"),
        (given(data=SECRET), 422, "text: neither a list as data nor a binary_data_size"),
        (given(data=None), 422, "text: neither a list as data nor a binary_data_size"),
        (given(id=5), 422, "id: "),
        (given(parameters=SECRET), 422, "parameters: "),
        (given(parameters={"timeout": -1}), 422, "parameters.timeout: "),
        (given(parameters={"timeout": SECRET}), 422, "parameters.timeout: "),
        (given(parameters={"timeout": 10**40}), 422, "parameters.timeout: "),
        (given(parameters={"on_overflow": SECRET}), 422, "parameters.on_overflow: "),
        (given(parameters={"binary_data_output": 1}), 422, "parameters.binary_data_output: "),
        (given(outputs=[{"name": SECRET}]), 422, "outputs.0: no output of that name; imdb-s3 has scores, label"),
        (given(outputs=[{"name": "label"}] * 2), 422, "outputs: an output is requested twice"),
        (given(outputs=[{"name": "scores", "parameters": {"classification": -1}}]), 422, "outputs.0.parameters."),
    ],
)
def test_bad_body_gets_an_error_that_names_the_cause(
    client: httpx.Client, body: object, status: int, message: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    check_error(client.post(INFER, content=content), status, message)


HEAD = json.dumps(
    {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 8}}]}
).encode()
ELEMENT = b"\x04\x00\x00\x00good"


@pytest.mark.parametrize(
    ("length", "body", "status", "message"),
    [
        (str(len(HEAD)), HEAD + ELEMENT, 200, ""),
        (None, HEAD, 422, "inputs.0: binary_data_size 8; only 0 bytes of binary data are left"),
        (None, HEAD + ELEMENT, 400, "not valid JSON"),
        (str(len(HEAD)), HEAD + ELEMENT[:7], 422, "inputs.0: binary_data_size 8; only 7 bytes of binary data"),
        (str(len(HEAD)), HEAD + ELEMENT + b"!", 422, "inputs: the last 1 bytes of the body belong to no input"),
        (str(len(HEAD)), HEAD + b"\x05" + ELEMENT[1:], 422, "text: its 8 bytes are not 1 elements"),
        (str(len(HEAD)), HEAD + b"\x03" + ELEMENT[1:], 422, "text: its 8 bytes are not 1 elements"),
        (str(len(HEAD)), HEAD + b"\xff" * 8, 422, "text: its 8 bytes are not 1 elements"),
        (str(len(HEAD) + 9), HEAD + ELEMENT, 400, f"Content-Length must be an integer from 0 to {len(HEAD + ELEMENT)}"),
        ("-1", HEAD + ELEMENT, 400, "Inference-Header-Content-Length must be"),
        ("many", HEAD + ELEMENT, 400, "Inference-Header-Content-Length must be"),
        ("0", ELEMENT[4:], 200, ""),
        ("0", b"", 422, "text.0: the document is empty"),
        ("00", HEAD + ELEMENT, 400, "not valid JSON"),
    ],
)
def test_binary_bodies_are_checked(
    client: httpx.Client, length: str | None, body: bytes, status: int, message: str
) -> None:
    headers = {"Inference-Header-Content-Length": length} if length is not None else {}
    response = client.post(INFER, content=body, headers=headers)
    if status == 200:
        head = response.content[: int(response.headers.get("Inference-Header-Content-Length", len(response.content)))]
        assert json.loads(head)["outputs"][1]["datatype"] == "BYTES"
    else:
        check_error(response, status, message)


def test_size_of_a_shape_does_not_wrap_around(client: httpx.Client) -> None:
    """The tensor would have 3 * 2^64 bytes."""
    series = {"name": "series", "datatype": "FP32", "shape": [2**30, 2**30, 12], "parameters": {"binary_data_size": 0}}
    head = json.dumps({"inputs": [series]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = client.post("/v2/models/japanese-vowels/infer", content=head, headers=headers)
    check_error(answer, 422, f"series: binary_data_size 0; shape [1073741824, 1073741824, 12] needs {3 * 2**64}")


def test_errors_name_the_padded_row_that_was_sent(client: httpx.Client) -> None:
    word = list("word".encode("utf-16"))
    for row, length, why in (([1, 2], 0, "the document is empty"), (word, len(word), "the document is UTF-16")):
        rows = {"name": "bytes", "datatype": "UINT8", "shape": [2, len(row)], "data": [*b"a" * len(row), *row]}
        lengths = {"name": "lengths", "datatype": "INT32", "shape": [2], "data": [1, length]}
        check_error(client.post(INFER, json={"inputs": [rows, lengths]}), 422, f"bytes.1: {why}")


def test_numbers_in_json_are_checked(client: httpx.Client, forecaster: OfflineForecaster) -> None:
    m = forecaster.manifest
    lengths = {"name": "lengths", "datatype": "INT32", "shape": [1], "data": [2]}
    rows = {"name": "bytes", "datatype": "UINT8", "shape": [1, 2], "data": [1, 2]}
    for changed, message in (
        ({"data": [1, 256]}, "bytes: an element is out of range; 0 to 255 is allowed"),
        ({"data": [1, -1]}, "bytes: an element is out of range; 0 to 255 is allowed"),
        ({"data": [1, 1.0]}, "bytes: elements of type float; UINT8 is allowed"),
        ({"data": [1, True]}, "bytes: elements of type bool; UINT8 is allowed"),
        ({"data": [1, None]}, "bytes: elements of type NoneType; UINT8 is allowed"),
        ({"data": [[1], [2]]}, "bytes: the data is not nested like shape [1, 2]"),
        ({"shape": [2, 1]}, "lengths: 1 elements; 2 are needed, one for each row of bytes"),
        ({"shape": [2**31 - 1, 0], "data": []}, "bytes: 2147483647; at most 256"),
        ({"data": [1, 2], "parameters": {"binary_data_size": 2}}, "give either data or binary_data_size"),
    ):
        response = client.post(INFER, json={"inputs": [{**rows, **changed}, lengths]})
        check_error(response, 413 if "at most" in message else 422, message)
    shape = [1, m.context_length, len(m.channels)]
    for value, message in ((1e300, "series.0."), ("1", "type str"), (True, "type bool"), ([], "not nested")):
        data: list[object] = [value] * (shape[1] * shape[2])
        body = {"inputs": [{"name": "series", "datatype": "FP32", "shape": shape, "data": data}]}
        check_error(client.post(f"/v2/models/{m.name}/infer", json=body), 422, message)


def test_unknown_fields_are_ignored_and_null_counts_as_absent(client: httpx.Client) -> None:
    plain = client.post(INFER, json=given(data=["a good film"])).json()
    assert "id" not in plain
    more = given(data=["a good film"], id=None, outputs=None, parameters={"priority": 1, "mine": [1]}, colour=1)
    more["inputs"][0] |= {"parameters": {"content_type": "str"}, "colour": 1}
    assert client.post(INFER, json=more).json() == plain
    more = given(
        data=["a good film"], parameters=None, outputs=[{"name": "scores", "parameters": None}, {"name": "label"}]
    )
    more["inputs"][0]["parameters"] = None
    assert client.post(INFER, json=more).json() == plain


@pytest.mark.parametrize("size", [None, 1])
def test_chunked_body_is_read_whole(server: Server, size: int | None) -> None:
    """A client may send every byte in a chunk of its own."""
    body = json.dumps(given(data=["a good film"])).encode().ljust(65_536)
    parts = (body[first : first + (size or len(body))] for first in range(0, len(body), size or len(body)))
    with Wire(server.url) as wire:
        head = request(INFER, None, content_type="application/json", transfer_encoding="chunked")
        answer = wire.send(head + chunked(*parts) + LAST_CHUNK).answer()
    plain = server.post(INFER, content=body)
    assert (answer.status, json.loads(answer.body)) == (200, plain.json())


def test_any_media_type_is_read(client: httpx.Client) -> None:
    """Triton's client sends no media type; curl sends that of a form."""
    content = json.dumps(given(data=["a"])).encode()
    for kind in ("", "application/json", "application/x-www-form-urlencoded", "application/octet-stream"):
        assert client.post(INFER, content=content, headers={"content-type": kind}).status_code == 200
    lines = {"content-type": "application/x-ndjson"}
    check_error(client.post(INFER, content=b" " * 9_000_000, headers=lines), 413, TOO_LONG)


def test_body_with_too_many_values_is_rejected(client: httpx.Client) -> None:
    """Parsing millions of lists would block other requests for seconds; brackets inside strings do not count."""
    check_error(client.post(INFER, content=b" " * 9_000_000), 413, TOO_LONG)
    for unit in (b"[],", b"[[]],", b'{"a":{}},'):
        content = b'{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":[' + unit * (8_000_000 // len(unit))
        check_error(client.post(INFER, content=content[:-1] + b"]}]}"), 413, "lists, objects and keys; at most")
    brackets = given(data=["[{" * 200_000])
    assert client.post(INFER, json=brackets).status_code == 200


def test_too_large_an_answer_gets_413(client_of_triton: triton.InferenceServerClient) -> None:
    series = np.zeros((170, 96, 21), np.float32)
    with pytest.raises(InferenceServerException, match="the response would have 2570400 numbers") as raised:
        client_of_triton.infer("weather", [tensor("series", "FP32", series)])
    assert raised.value.status() == "413"


def test_errors_of_other_v2_routes_have_the_same_shape(client: httpx.Client) -> None:
    check_error(client.get("/v2/models/none"), 404, "no model of that name")
    check_error(client.get("/v2/models/imdb-s3/versions/999"), 404, "served in version")
    check_error(client.get("/v2/nothing"), 404, "no such path; the OpenAPI document lists all")
    check_error(client.get(INFER), 405, "the methods of this path: POST")
    for path in ("/v2/health/live", "/v2/health/ready", "/metrics"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_key_is_needed_except_for_health(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "0", "--default-forecaster", "ettm2", "--api-keys", "sesame")
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        assert client.is_server_ready()
        questions: list[Callable[[], object]] = [
            lambda: client.get_server_metadata(),
            lambda: client.get_model_metadata("imdb-s3"),
            lambda: client.get_model_config("imdb-s3"),
            lambda: client.get_inference_statistics(),
            lambda: client.get_model_repository_index(),
            lambda: client.infer("imdb-s3", [texts("text", [SHORT])]),
        ]
        for ask in questions:
            with pytest.raises(InferenceServerException, match="send a valid key") as raised:
                ask()
            assert raised.value.status() == "401"
        headers = {"authorization": "Bearer sesame"}
        assert client.get_server_metadata(headers=headers)["name"] == "longdoc-serve"
        assert client.infer("imdb-s3", [texts("text", [SHORT])], headers=headers) is not None


def test_draining_server_is_not_ready_but_still_answers(start: Callable[..., Server], offline: Offline) -> None:
    server = start("--drain-delay-s", "3600", "--default-forecaster", "ettm2")
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        server.drain()
        assert not client.is_server_ready()
        assert client.is_server_live()
        assert not client.is_model_ready("imdb-s3")
        check_scores(client.infer("imdb-s3", [texts("text", [SHORT])]), [SHORT], offline)
        check_error(server.get("/v2/models/imdb-s3/ready"), 503, "is not ready")
        states = {(entry["state"], entry["reason"]) for entry in client.get_model_repository_index()}
        assert states == {("UNAVAILABLE", "the server is about to stop")}
        assert server.post("/v2/repository/index", json={"ready": True}).json() == []
    assert server.stop() == 0


def test_mutated_bodies_get_clear_errors(client: httpx.Client, forecaster: OfflineForecaster) -> None:
    m: ForecasterManifest = forecaster.manifest
    series = {"name": "series", "datatype": "FP32", "shape": [1, m.context_length, len(m.channels)]}
    series["data"] = np.array(forecaster.series(m.context_length)).T.ravel().tolist()
    seeds = [
        (INFER, json.dumps(given(data=["ab", "c"], shape=[2])).encode(), None),
        (INFER, HEAD + ELEMENT, str(len(HEAD))),
        (f"/v2/models/{m.name}/infer", json.dumps({"inputs": [series]}).encode(), None),
    ]
    generator = random.Random(0)
    for _ in range(400):
        path, seed, length = generator.choice(seeds)
        headers = {"Inference-Header-Content-Length": length} if length else {}
        response = client.post(path, content=mutate(seed, generator), headers=headers)
        assert response.status_code in (200, 400, 413, 422), response.text
        assert ("outputs" if response.status_code == 200 else "error") in response.json()


def test_infer_is_in_the_openapi_document(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    paths = document["paths"]
    for path in ("/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"):
        described = paths[path]["post"]
        assert set(described["requestBody"]["content"]) == {"application/json", "application/octet-stream"}
        named = {p["name"] for p in described["parameters"]}
        assert named >= {"name", "Inference-Header-Content-Length"}
        assert ("version" in named) == ("version" in path)
        schema = described["responses"]["422"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/InferError"}
    assert set(document["components"]["schemas"]["InferError"]["properties"]) == {"error"}
