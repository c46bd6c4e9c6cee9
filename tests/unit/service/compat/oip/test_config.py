"""Triton's configuration of a model."""

import json
import math
from typing import Any

import pytest

from service.compat.oip.tensors import HEAD_LENGTH
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
        "input": [tensor("text", "TYPE_STRING", 1)],
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


@pytest.mark.parametrize("version", ["", "/versions/1"])
@pytest.mark.parametrize("name", ["mood", "twins", "naive"])
async def test_perf_analyzer_fills_the_inputs_from_metadata_and_configuration(name: str, version: str) -> None:
    """Metadata and configuration as `ModelParser::InitTriton` reads them, requests of two items as `-b 2` sends them.

    Reference: src/model_parser.cc and src/client_backend/triton/triton_client_backend.cc of
    triton-inference-server/perf_analyzer.
    """
    async with serving(classifier(), matcher(), forecaster()) as client:
        path = f"/v2/models/{name}{version}"
        metadata, config = answer(await client.get(path)), answer(await client.get(f"{path}/config"))
        assert config["max_batch_size"] >= 2
        assert [one["name"] for one in config["input"]] == [one["name"] for one in metadata["inputs"]]
        assert "dynamic_batching" in config
        inputs, raw = [], b""
        for given in metadata["inputs"]:
            item_shape = given["shape"][1:]
            assert -1 not in item_shape
            count = 2 * math.prod(item_shape)
            data = count * b"\x03\x00\x00\x00++-" if given["datatype"] == "BYTES" else bytes(4 * count)
            parameters = {"binary_data_size": len(data)}
            inputs.append({**given, "shape": [2, *item_shape], "parameters": parameters})
            raw += data
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        response = await client.post(f"{path}/infer", content=head + raw, headers={HEAD_LENGTH: str(len(head))})
        assert response.status_code == 200, response.text
        (stats,) = answer(await client.get(f"{path}/stats"))["model_stats"]
    assert (stats["name"], stats["version"], type(stats["execution_count"])) == (name, "1", int)
    assert stats["inference_count"] >= 1
    read = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss", "success")
    for stage in read:
        assert {type(stats["inference_stats"][stage][number]) for number in ("count", "ns")} == {int}
    assert stats["inference_stats"]["success"]["count"] == 1


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
