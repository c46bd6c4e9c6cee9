"""Calls of a gRPC client, of Triton or of KServe; a program for the interpreter in `.venv/kserve`.

It has no package of ours. Its arguments are the client, and host and port of the server; it writes the answers as JSON.
Both clients cannot be in one process: each registers messages of the same names.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np

TEXTS = np.array([[b"A good film, \xff\x00 even so."], [b"Two hours that nobody gives back."]], object)
STEPS = np.linspace(0, 1, 96 * 7).reshape(1, 96, 7)


async def _triton(address: str) -> dict[str, Any]:
    import tritonclient.grpc as triton
    import tritonclient.grpc.aio as triton_aio
    from tritonclient.utils import InferenceServerException

    def tensor(name: str, datatype: str, values: Any) -> triton.InferInput:
        given = triton.InferInput(name, list(values.shape), datatype)
        given.set_data_from_numpy(values)
        return given

    texts = [tensor("text", "BYTES", TEXTS)]
    async with triton_aio.InferenceServerClient(address) as client_aio:
        scores = (await client_aio.infer("imdb-s3", texts)).as_numpy("scores").tolist()
    with triton.InferenceServerClient(address) as client:
        result = client.infer("imdb-s3", texts, request_id="7")
        wanted = [triton.InferRequestedOutput("scores", class_count=1)]
        best = client.infer("imdb-s3", texts, outputs=wanted, compression_algorithm="gzip")
        errors = []
        calls: list[tuple[Any, dict[str, Any]]] = [
            (client.get_model_metadata, {"model_name": "none"}),
            (client.get_model_config, {"model_name": "imdb-s3"}),
            (client.infer, {"model_name": "imdb-s3", "inputs": texts, "client_timeout": 1e-6}),
        ]
        for method, arguments in calls:
            try:
                method(**arguments)
            except InferenceServerException as error:
                errors.append(error.status())
        return {
            "ready": [client.is_server_live(), client.is_server_ready(), client.is_model_ready("imdb-s3")],
            "server": client.get_server_metadata(as_json=True)["name"],
            "inputs": client.get_model_metadata("imdb-s3", as_json=True)["inputs"],
            "id": result.get_response().id,
            "scores": [result.as_numpy("scores").tolist(), scores],
            "labels": [label.decode() for label in result.as_numpy("label")],
            "best": [row[0].decode().split(":")[2] for row in best.as_numpy("scores")],
            "forecast": client.infer("ettm2", [tensor("series", "FP64", STEPS)]).as_numpy("forecast").shape,
            "errors": errors,
        }


async def _kserve(address: str) -> dict[str, Any]:
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    client = InferenceGRPCClient(address)
    given = InferInput("text", list(TEXTS.shape), "BYTES")
    given.set_data_from_numpy(TEXTS, binary_data=True)
    result = await client.infer(InferRequest("imdb-s3", [given], request_id="7"))
    ready = [await client.is_server_live(), await client.is_server_ready(), await client.is_model_ready("imdb-s3")]
    await client.close()
    outputs = {output.name: output.as_numpy() for output in result.outputs}
    labels = [label.decode() if isinstance(label, bytes) else label for label in outputs["label"]]
    return {"ready": ready, "id": result.id, "scores": [outputs["scores"].tolist()], "labels": labels}


json.dump(asyncio.run({"triton": _triton, "kserve": _kserve}[sys.argv[1]](sys.argv[2])), sys.stdout)
