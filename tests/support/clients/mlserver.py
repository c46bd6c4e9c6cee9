"""Labels and scores by the codecs and types of MLServer, which has no client of its own."""

import json
import sys

import httpx
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, MetadataModelResponse

film, query, documents = "A film to see twice.", "A parser of trees", ["Speech recognition", "Dependency parsing"]

client = httpx.Client(base_url="http://localhost:8000/v2/models")


def infer(model: str, **texts: list[str]) -> InferenceResponse:
    inputs = [StringCodec.encode_input(name, values) for name, values in texts.items()]
    response = client.post(f"/{model}/infer", content=InferenceRequest(inputs=inputs).model_dump_json())
    return InferenceResponse.model_validate(response.raise_for_status().json())


labels = MetadataModelResponse.model_validate(client.get("/imdb-s3").json()).parameters.labels
scores, label = infer("imdb-s3", text=[film]).outputs
(matched,) = infer("aan", a=[query, query], b=documents).outputs
pairs = zip(labels, NumpyCodec.decode_output(scores)[0].tolist(), strict=True)
found = {
    "labels": {"codecs": sorted(map(list, pairs), key=lambda pair: -pair[1])},
    "label": {"codecs": StringCodec.decode_output(label)},
    "scores": {"codecs": NumpyCodec.decode_output(matched).tolist()},
}
json.dump(found, sys.stdout)
