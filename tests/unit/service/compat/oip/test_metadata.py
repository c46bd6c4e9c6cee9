"""Metadata, health and readiness in the Open Inference Protocol."""

from typing import Any

import pytest

from artifact import __version__
from tests.support.models import answer, classifier, forecaster, matcher, serving


def tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [-1, *shape]}


SIGNATURES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]] = {
    "mood": (
        [tensor("text", "BYTES", 1)],
        [tensor("scores", "FP32", 2), tensor("label", "BYTES")],
        {"labels": ["negative", "positive"]},
    ),
    "twins": ([tensor("a", "BYTES", 1), tensor("b", "BYTES", 1)], [tensor("score", "FP32")], {}),
    "naive": (
        [tensor("series", "FP32", 4, 2)],
        [tensor("forecast", "FP32", 3, 2)],
        {"channels": ["load", "heat"], "frequency": "1h"},
    ),
}


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
async def test_server_names_its_extensions(path: str) -> None:
    async with serving() as client:
        found = answer(await client.get(path))
    assert found == {
        "name": "longdoc-serve",
        "version": __version__,
        "extensions": [
            "binary_tensor_data",
            "classification",
            "model_configuration",
            "model_repository",
            "parameters",
            "statistics",
        ],
    }


@pytest.mark.parametrize("name", SIGNATURES)
async def test_model_names_its_tensors_and_labels(name: str) -> None:
    async with serving(classifier(), matcher(), forecaster()) as client:
        found = answer(await client.get(f"/v2/models/{name}"))
        assert answer(await client.get(f"/v2/models/{name}/versions/1")) == found
    inputs, outputs, parameters = SIGNATURES[name]
    assert found == {
        "name": name,
        "versions": ["1"],
        "platform": "onnx_onnxv1",
        "inputs": inputs,
        "outputs": outputs,
        "parameters": parameters,
    }


async def test_metadata_lists_the_served_versions() -> None:
    async with serving(classifier(version=10), classifier(version=9), matcher()) as client:
        for path in ("/v2/models/mood", "/v2/models/mood/versions/9", "/v2/models/mood@9"):
            assert answer(await client.get(path))["versions"] == ["9", "10"]
        refused = await client.get("/v2/models/mood/versions/2")
        client.engine.models.named("mood@9").batcher.close()
        statuses = {
            path: (await client.get(f"/v2/models/{path}/ready")).status_code
            for path in ("mood", "mood/versions/10", "mood/versions/9", "mood@9", "mood/versions/8", "mood@8")
        }
    assert (refused.status_code, refused.json()) == (404, {"error": "model mood is served in versions 10, 9 only"})
    assert list(statuses.values()) == [200, 200, 503, 503, 404, 404]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v2/models/none", "no model of that name is served; there are: mood"),
        ("/v2/models/mood/versions/2", "model mood is served in version 1 only"),
        ("/v2/models/none/ready", "no model of that name is served; there are: mood"),
    ],
)
async def test_unknown_model_is_an_error(path: str, error: str) -> None:
    async with serving(classifier()) as client:
        response = await client.get(path)
    assert (response.status_code, response.json()) == (404, {"error": error})


async def test_model_is_ready_while_it_accepts_requests() -> None:
    async with serving(classifier(), forecaster()) as client:
        ready = answer(await client.get("/v2/models/mood/ready"))
        client.engine.models["mood"].batcher.close()
        closed = await client.get("/v2/models/mood/versions/1/ready")
        other = await client.get("/v2/models/naive/ready")
        client.engine.begin_drain()
        draining = await client.get("/v2/models/naive/ready")
    assert ready == {"name": "mood", "ready": True}
    assert other.status_code == 200
    for response in (closed, draining):
        assert (response.status_code, response.json()) == (503, {"error": "the model is not ready"})
        assert int(response.headers["retry-after"]) >= 1


async def test_server_is_ready_while_every_model_is() -> None:
    async with serving(classifier()) as client:
        ready = answer(await client.get("/v2/health/ready"))
        client.engine.models["mood"].batcher.close()
        failed = await client.get("/v2/health/ready")
        client.engine.begin_drain()
        draining = await client.get("/v2/health/ready")
        live = answer(await client.get("/v2/health/live"))
    assert (ready, live) == ({"live": True, "ready": True}, {"live": True})
    assert (failed.status_code, failed.json()) == (503, {"error": "a model has failed"})
    assert (draining.status_code, draining.json()) == (503, {"error": "the server is about to stop"})
