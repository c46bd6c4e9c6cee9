"""Vectors and rankings by `langchain-openai` and `langchain-cohere`."""

import json
import sys

from langchain_cohere import CohereRerank
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings

query, documents = "A parser of trees", ["Speech recognition", "Dependency parsing"]

embeddings = OpenAIEmbeddings(
    model="aan", base_url="http://localhost:8000/v1", api_key="...", check_embedding_ctx_length=False
)
reranker = CohereRerank(model="aan", base_url="http://localhost:8000", cohere_api_key="...")
compressed = reranker.compress_documents([Document(text) for text in documents], query)
found = {
    "vectors": {
        "documents": embeddings.embed_documents(documents),
        "queries": [embeddings.embed_query(text) for text in documents],
    },
    "ranking": {
        "rerank": [
            [documents[result["index"]], result["relevance_score"]] for result in reranker.rerank(documents, query)
        ],
        "compress_documents": [[found.page_content, found.metadata["relevance_score"]] for found in compressed],
    },
}
json.dump(found, sys.stdout)
