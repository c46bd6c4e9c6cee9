"""A ranking and vectors by `infinity-client`."""

import json
import sys

from infinity_client import Client
from infinity_client.api.default import embeddings, rerank
from infinity_client.models import OpenAIEmbeddingInputText, RerankInput

query, documents = "A parser of trees", ["Speech recognition", "Dependency parsing"]

client = Client("http://localhost:8000/v1")
ranked = rerank.sync(client=client, body=RerankInput(model="aan", query=query, documents=documents))
embedded = embeddings.sync(client=client, body=OpenAIEmbeddingInputText(model="aan", input_=documents))
found = {
    "ranking": {"rerank": [[documents[result.index], result.relevance_score] for result in ranked.results]},
    "vectors": {"embeddings": [entry.embedding for entry in embedded.data]},
}
json.dump(found, sys.stdout)
