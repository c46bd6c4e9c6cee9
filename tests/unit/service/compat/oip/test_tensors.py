"""Encoding and decoding of tensors of the Open Inference Protocol."""

import json
import re
from typing import Any

import numpy as np
import pytest

from artifact.errors import InvalidInput
from service.compat.oip.tensors import (
    HEAD_LENGTH,
    InferRequest,
    InputTensor,
    parse_head,
    split,
    tensor_response,
    tensors_of,
)
from service.errors import MalformedInput, PayloadTooLarge

PACKED = b"\x02\x00\x00\x00ab\x00\x00\x00\x00"
"""Two elements, "ab" and an empty one, each after its length."""


def parse(body: bytes, head_length: str | None) -> tuple[InferRequest, dict[str, InputTensor]]:
    """Return the JSON of a request and its inputs by name."""
    json_part, binary_part = split(body, head_length)
    head = parse_head(json_part)
    return head.request, tensors_of(head, binary_part)


def tensor(datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": "t", "datatype": datatype, "shape": shape, **more}


def body(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs, **more}).encode()


def binary(given: dict[str, Any], raw: bytes) -> tuple[bytes, str]:
    """Return a body with binary data after the JSON, and the length of the JSON."""
    head = body({**given, "parameters": {"binary_data_size": len(raw)}})
    return head + raw, str(len(head))


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]])
def test_numbers_in_json_are_flat_or_nested(data: list[Any]) -> None:
    _, tensors = parse(body(tensor("UINT8", [2, 3], data=data)), None)
    found = tensors["t"].numbers("UINT8", (-1, 3))
    assert found.dtype == np.uint8
    assert found.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_null_is_a_missing_number() -> None:
    _, tensors = parse(body(tensor("FP32", [3], data=[1, None, 1e300])), None)
    found = tensors["t"].numbers("FP32", (-1,)).tolist()
    assert (found[0], found[2]) == (1, 1e300)
    assert np.isnan(found[1])


def test_binary_numbers_follow_the_json() -> None:
    _, tensors = parse(*binary(tensor("INT32", [2, 1]), b"\x01\x00\x00\x00\xff\xff\xff\xff"))
    assert tensors["t"].numbers("INT32", (2, 1)).tolist() == [[1], [-1]]


def test_binary_data_of_several_inputs_are_concatenated() -> None:
    inputs = [
        {"name": name, "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
        for name, size in (("a", 1), ("b", 2))
    ]
    head = body(*inputs)
    _, tensors = parse(head + b"\x01\x02\x03", str(len(head)))
    assert tensors["a"].numbers("UINT8", (-1,)).tolist() == [1]
    assert tensors["b"].numbers("UINT8", (-1,)).tolist() == [2, 3]


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_strings_are_in_json_or_binary_with_their_lengths(shape: list[int]) -> None:
    _, in_json = parse(body(tensor("BYTES", shape, data=["ab", ""])), None)
    _, behind = parse(*binary(tensor("BYTES", shape), PACKED))
    assert in_json["t"].strings(2) == behind["t"].strings(2) == [b"ab", b""]


def test_more_strings_than_allowed_are_rejected() -> None:
    _, tensors = parse(body(tensor("BYTES", [2], data=["a", "b"])), None)
    with pytest.raises(PayloadTooLarge, match="t: 2; at most 1 in one request"):
        tensors["t"].strings(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensor("INT8", [1], data=[1]), "datatype INT8; UINT8 is allowed"),
        (tensor("UINT8", [1, 1], data=[1]), "shape [1, 1]; [-1] is allowed"),
        (tensor("UINT8", [1]), "neither a list as data nor a binary_data_size"),
        (tensor("UINT8", [3], data=[1, 2]), "2 elements; shape [3] needs 3"),
        (tensor("UINT8", [1], data=["1"]), "elements of type str; UINT8 is allowed"),
        (tensor("UINT8", [1], data=[256]), "an element is out of range; 0 to 255 is allowed"),
    ],
)
def test_error_names_the_wrong_numbers(given: dict[str, Any], message: str) -> None:
    _, tensors = parse(body(given), None)
    with pytest.raises(InvalidInput) as caught:
        tensors["t"].numbers("UINT8", (-1,))
    assert caught.value.errors == [("t", message)]


def test_data_nested_unlike_the_shape_are_rejected() -> None:
    _, tensors = parse(body(tensor("UINT8", [2, 2], data=[[1, 2, 3], [4]])), None)
    with pytest.raises(InvalidInput, match=re.escape("t: the data is not nested like shape [2, 2]")):
        tensors["t"].numbers("UINT8", (-1, 2))


def test_binary_data_of_the_wrong_size_are_rejected() -> None:
    _, numbers = parse(*binary(tensor("INT32", [2]), b"\x01\x00\x00\x00"))
    with pytest.raises(InvalidInput, match=re.escape("t: binary_data_size 4; shape [2] needs 8")):
        numbers["t"].numbers("INT32", (-1,))
    _, strings = parse(*binary(tensor("BYTES", [3]), PACKED))
    with pytest.raises(InvalidInput, match="t: its 10 bytes are not 3 elements"):
        strings["t"].strings(3)


@pytest.mark.parametrize(
    ("content", "head_length", "error", "message"),
    [
        (b"{", None, MalformedInput, "the body is not valid JSON in UTF-8"),
        (body(), "x", MalformedInput, f"{HEAD_LENGTH} must be an integer from 0 to 14"),
        (body(), "15", MalformedInput, f"{HEAD_LENGTH} must be an integer from 0 to 14"),
        (body() + b"more", "14", InvalidInput, "inputs: the last 4 bytes of the body belong to no input"),
        (b"{}", None, InvalidInput, "inputs: Field required"),
        (
            body(tensor("UINT8", [1], data=[1]), tensor("UINT8", [1], data=[1])),
            None,
            InvalidInput,
            "inputs.1: another input has the same name",
        ),
        (
            body(tensor("UINT8", [1], data=[1], parameters={"binary_data_size": 0})),
            None,
            InvalidInput,
            "inputs.0: give either data or binary_data_size",
        ),
        (
            body(tensor("UINT8", [1], parameters={"binary_data_size": 1})),
            None,
            InvalidInput,
            "inputs.0: binary_data_size 1; only 0 bytes of binary data are left",
        ),
    ],
)
def test_wrong_body_is_rejected(content: bytes, head_length: str | None, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        parse(content, head_length)


def test_null_counts_as_absent() -> None:
    asked, _ = parse(body(parameters=None, outputs=None), None)
    assert (asked.parameters.binary_data_output, asked.outputs) == (False, [])


OUTPUTS = [
    ("numbers", np.array([[1.5], [2.0]], np.float32)),
    ("texts", np.array(["ab", ""], object)),
]


def test_response_has_its_tensors_in_json() -> None:
    response = tensor_response({"id": "7"}, [(name, values, False) for name, values in OUTPUTS])
    assert response.headers["content-type"] == "application/json"
    assert json.loads(bytes(response.body)) == {
        "id": "7",
        "outputs": [
            {"name": "numbers", "datatype": "FP32", "shape": [2, 1], "data": [1.5, 2.0]},
            {"name": "texts", "datatype": "BYTES", "shape": [2], "data": ["ab", ""]},
        ],
    }


def test_response_has_binary_tensors_after_the_json() -> None:
    response = tensor_response({}, [(name, values, True) for name, values in OUTPUTS])
    content, length = bytes(response.body), int(response.headers[HEAD_LENGTH])
    assert response.headers["content-type"] == "application/octet-stream"
    assert [output["parameters"] for output in json.loads(content[:length])["outputs"]] == [
        {"binary_data_size": 8},
        {"binary_data_size": 10},
    ]
    assert content[length:] == np.array([1.5, 2.0], "<f4").tobytes() + PACKED
