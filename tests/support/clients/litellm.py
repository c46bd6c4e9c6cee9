"""Rankings and vectors by LiteLLM, whose providers send different requests."""

import json
import sys

import litellm

query, documents = "A parser of trees", ["Speech recognition", "Dependency parsing"]


def vectors(model: str) -> list[list[float]]:
    answer = litellm.embedding(model=model, api_base="http://localhost:8000/v1", api_key="...", input=documents)
    return [entry["embedding"] for entry in answer.data]


answers = {
    model: litellm.rerank(
        model=model, api_base="http://localhost:8000", api_key="...", query=query, documents=documents
    )
    for model in ("cohere/aan", "jina_ai/aan", "hosted_vllm/aan")
}
options = {"api_base": "http://localhost:8000", "query": query, "documents": documents}
answers["infinity/aan"] = litellm.rerank(model="infinity/aan", return_documents=False, **options)
try:
    litellm.rerank(model="cohere/none", api_key="...", **options)
except litellm.NotFoundError as error:
    refused = str(error)
found = {
    "ranking": {
        model: [[documents[result["index"]], result["relevance_score"]] for result in answer.results]
        for model, answer in answers.items()
    },
    "vectors": {model: vectors(model) for model in ("openai/aan", "hosted_vllm/aan", "jina_ai/aan")},
    "unknown model": {"cohere/none": refused},
}
json.dump(found, sys.stdout)
