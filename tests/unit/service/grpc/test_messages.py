"""Messages of gRPC as bodies of HTTP, and their errors."""

import orjson
import pytest
from open_inference.grpc.protocol import ModelInferRequest

from artifact.errors import InvalidInput
from service.grpc.messages import infer_body, metadata_response


def request(datatype: str = "FP32", shape: tuple[int, ...] = (2,), **contents: list[object]) -> ModelInferRequest:
    made = ModelInferRequest(model_name="x")
    given = made.inputs.add(name="series", datatype=datatype, shape=shape)
    for field, elements in contents.items():
        getattr(given.contents, field).extend(elements)
    return made


def test_contents_become_binary_data() -> None:
    made = request(fp32_contents=[1.0, 2.5])
    made.inputs.add(name="text", datatype="BYTES", shape=[2]).contents.bytes_contents.extend([b"a", b""])
    made.outputs.add(name="scores").parameters["binary_data"].bool_param = False
    made.parameters["timeout"].int64_param = 7
    body, length = infer_body(made)
    assert orjson.loads(body[:length]) == {
        "parameters": {"timeout": 7, "binary_data_output": True},
        "inputs": [
            {"name": "series", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
            {"name": "text", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 9}},
        ],
        "outputs": [{"name": "scores", "parameters": {}}],
    }
    assert body[length:] == b"\0\0\x80\x3f\0\0\x20\x40" + b"\1\0\0\0a" + b"\0\0\0\0"


def test_datatype_that_no_model_accepts_is_left_to_the_application() -> None:
    body, length = infer_body(request("INT64", int64_contents=[1, 2]))
    assert orjson.loads(body[:length])["inputs"][0]["parameters"] == {"binary_data_size": 0}
    assert body[length:] == b""


def twice() -> ModelInferRequest:
    made = request(fp32_contents=[1.0, 2.0])
    made.raw_input_contents.append(b"12345678")
    return made


def too_many() -> ModelInferRequest:
    made = request()
    made.raw_input_contents.extend([b"", b""])
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (twice(), "inputs.0: give either contents or raw_input_contents"),
        (too_many(), "raw_input_contents: 2 elements; 1, one for each input"),
        (request(fp64_contents=[1.0, 2.0]), "fp64_contents; FP32 needs fp32_contents, or raw_input_contents"),
        (request("UINT8", uint_contents=[1, 256]), "an element is out of range; 0 to 255 is allowed"),
    ],
)
def test_wrong_data_is_named(made: ModelInferRequest, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        infer_body(made)


def test_lists_of_metadata_are_json() -> None:
    tensor = {"name": "series", "datatype": "FP32", "shape": [-1, 96, 7]}
    content = {"name": "x", "versions": ["1"], "platform": "onnx_onnxv1", "inputs": [tensor], "outputs": []}
    found = metadata_response({**content, "parameters": {"labels": ["a", "ä"], "frequency": "1h"}})
    assert dict(found.properties) == {"labels": '["a","ä"]', "frequency": "1h"}
    assert list(found.inputs[0].shape) == [-1, 96, 7]
