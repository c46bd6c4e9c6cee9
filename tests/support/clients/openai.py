"""Vectors and names of models by `openai`."""

import json
import sys

from openai import NotFoundError, OpenAI

documents = ["Speech recognition", "Dependency parsing"]

client = OpenAI(base_url="http://localhost:8000/v1", api_key="...")
answer = client.embeddings.create(model="aan", input=documents)
try:
    client.embeddings.create(model="none", input=documents)
except NotFoundError as error:
    refused = error.message
found = {
    "vectors": {"default": [entry.embedding for entry in answer.data]},
    "models": {"list": [model.id for model in client.models.list()]},
    "model": {"retrieve": client.models.retrieve("aan").id},
    "unknown model": {"embeddings": refused},
}
json.dump(found, sys.stdout)
