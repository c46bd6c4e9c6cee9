"""Triton's configuration of a model."""

from typing import Any

import pytest

from service.settings import Settings
from tests.support.models import answer, classifier, forecaster, matcher, series_classifier, serving


def tensor(name: str, data_type: str, *dims: int) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, "dims": list(dims)}


async def test_configuration_describes_the_model() -> None:
    settings = Settings(max_documents=7, max_batch_rows=5)
    async with serving(classifier(version=3), settings=settings) as client:
        found = answer(await client.get("/v2/models/mood/config"))
        assert answer(await client.get("/v2/models/mood/versions/3/config")) == found
    assert found == {
        "name": "mood",
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": 7,
        "input": [tensor("text", "TYPE_STRING")],
        "output": [tensor("scores", "TYPE_FP32", 2), tensor("label", "TYPE_STRING")],
        "dynamic_batching": {"preferred_batch_size": [5], "max_queue_delay_microseconds": 0},
    }


async def test_tensors_are_those_of_the_metadata_without_the_batch_dimension() -> None:
    async with serving(classifier(), series_classifier(), matcher(), forecaster()) as client:
        for name in ("mood", "gestures", "twins", "naive"):
            metadata = answer(await client.get(f"/v2/models/{name}"))
            config = answer(await client.get(f"/v2/models/{name}/config"))
            for tensors, configured in (("inputs", "input"), ("outputs", "output")):
                assert [t["name"] for t in config[configured]] == [t["name"] for t in metadata[tensors]]
                assert [[-1, *t["dims"]] for t in config[configured]] == [t["shape"] for t in metadata[tensors]]
    assert config["input"] == [tensor("series", "TYPE_FP32", 4, 2)]


async def test_backend_has_tritons_name() -> None:
    async with serving(classifier(), settings=Settings(backend="torchscript")) as client:
        found = answer(await client.get("/v2/models/mood/config"))
    assert (found["platform"], found["backend"]) == ("pytorch_libtorch", "pytorch")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v2/models/none/config", "no model of that name is served; there are: mood"),
        ("/v2/models/mood/versions/2/config", "model mood is served in version 1 only"),
    ],
)
async def test_unknown_model_is_an_error(path: str, error: str) -> None:
    async with serving(classifier()) as client:
        response = await client.get(path)
    assert (response.status_code, response.json()) == (404, {"error": error})
