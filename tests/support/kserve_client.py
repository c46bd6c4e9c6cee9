"""Runs calls of KServe's own client; a program for the interpreter in `.venv/kserve`, which has no package of ours.

Reads from stdin, as JSON, a list of `{"protocol": "v1" or "v2", "method": ..., "arguments": {...}}`, where `method` is
one of `kserve.InferenceRESTClient`. With V2, `data` of `infer` is `{"inputs": [{"name", "shape", "datatype", "data"}],
"is_binary": bool}`. Writes the list of results; `{"error": text, "status": code}` is that of an HTTP error.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, InferResponse, RESTConfig


def request_of(model: str, data: dict[str, Any]) -> InferRequest:
    """A V2 request, its tensors as JSON or as binary data."""
    inputs = []
    for tensor in data["inputs"]:
        dtype = object if tensor["datatype"] == "BYTES" else np.float32
        values = np.array(tensor["data"], dtype).reshape(tensor["shape"])
        given = InferInput(tensor["name"], tensor["shape"], tensor["datatype"])
        given.set_data_from_numpy(values, binary_data=data["is_binary"])
        inputs.append(given)
    return InferRequest(model, inputs, request_id="7")


def result_of(answer: object) -> object:
    """A result as JSON has it."""
    if not isinstance(answer, InferResponse):
        return answer
    outputs = {output.name: output.as_numpy() for output in answer.outputs}
    return {
        "id": answer.id,
        "model_name": answer.model_name,
        "parameters": answer.parameters,
        "outputs": {name: values.astype("O").tolist() for name, values in outputs.items()},
    }


async def run(call: dict[str, Any]) -> object:
    """The result of one call."""
    arguments = dict(call["arguments"])
    if call["protocol"] == "v2" and call["method"] == "infer":
        arguments["data"] = request_of(arguments["model_name"], arguments["data"])
    async with InferenceRESTClient(RESTConfig(protocol=call["protocol"])) as client:
        try:
            return result_of(await getattr(client, call["method"])(**arguments))
        except httpx.HTTPStatusError as error:
            return {"error": str(error), "status": error.response.status_code}


async def main() -> None:
    """Run all calls, one after the other."""
    results = [await run(call) for call in json.load(sys.stdin)]
    json.dump(results, sys.stdout, default=lambda value: value.decode() if isinstance(value, bytes) else str(value))


asyncio.run(main())
