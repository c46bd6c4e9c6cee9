"""Labels and scores by both HTTP clients of `tritonclient`."""

import asyncio
import json
import sys

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

film, query, documents = "A film to see twice.", "A parser of trees", ["Speech recognition", "Dependency parsing"]


def tensor(name: str, *texts: str) -> triton.InferInput:
    given = triton.InferInput(name, [len(texts)], "BYTES")
    return given.set_data_from_numpy(np.array([text.encode() for text in texts], object))


requests = {"imdb-s3": [tensor("text", film)], "aan": [tensor("a", query, query), tensor("b", *documents)]}


async def ask() -> dict[str, triton.InferResult]:
    async with triton_aio.InferenceServerClient("localhost:8000") as client:
        return {model: await client.infer(model, inputs) for model, inputs in requests.items()}


client = triton.InferenceServerClient("localhost:8000")
answers = {
    "http": {model: client.infer(model, inputs) for model, inputs in requests.items()},
    "http.aio": asyncio.run(ask()),
}
names = client.get_model_metadata("imdb-s3")["parameters"]["labels"]
scores = {name: answer["imdb-s3"].as_numpy("scores")[0].tolist() for name, answer in answers.items()}
found = {
    "labels": {
        name: sorted(map(list, zip(names, row, strict=True)), key=lambda pair: -pair[1]) for name, row in scores.items()
    },
    "scores": {name: answer["aan"].as_numpy("score").tolist() for name, answer in answers.items()},
}
json.dump(found, sys.stdout)
