"""Rankings and vectors by components of Haystack."""

import json
import sys

from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPIDocumentEmbedder
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker

query, documents = "A parser of trees", [Document(content="Speech recognition"), Document(content="Dependency parsing")]

key = Secret.from_token("...")
rankers = {
    "tei": HuggingFaceTEIRanker(url="http://localhost:8000"),
    "cohere": CohereRanker(model="aan", api_key=key, api_base_url="http://localhost:8000"),
    "jina": JinaRanker(model="aan", api_key=key, base_url="http://localhost:8000/v1/rerank"),
}
embedders = {
    "tei": HuggingFaceAPIDocumentEmbedder(
        api_type="text_embeddings_inference", api_params={"url": "http://localhost:8000/embed"}, normalize=True
    ),
    "openai": OpenAIDocumentEmbedder(model="aan", api_key=key, api_base_url="http://localhost:8000/v1"),
}


found = {
    "ranking": {
        name: [[found.content, found.score] for found in ranker.run(query=query, documents=documents)["documents"]]
        for name, ranker in rankers.items()
    },
    "vectors": {
        name: [found.embedding for found in embedder.run(documents=documents)["documents"]]
        for name, embedder in embedders.items()
    },
}
json.dump(found, sys.stdout)
