"""Vectors and rankings by integrations of LlamaIndex."""

import json
import sys

from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

query, documents = "A parser of trees", ["Speech recognition", "Dependency parsing"]

embedder = TextEmbeddingsInference(base_url="http://localhost:8000", model_name="aan")
rerankers = {
    "tei": TextEmbeddingInference(base_url="http://localhost:8000", model_name="aan"),
    "cohere": CohereRerank(model="aan", base_url="http://localhost:8000", api_key="..."),
    "jina": JinaRerank(model="aan", base_url="http://localhost:8000/v1", api_key="..."),
}
found = {
    "vectors": {
        "texts": embedder.get_text_embedding_batch(documents),
        "queries": [embedder.get_query_embedding(text) for text in documents],
    },
    "ranking": {
        name: [
            [found.text, found.score]
            for found in reranker.postprocess_nodes(
                [NodeWithScore(node=TextNode(text=text)) for text in documents], query_str=query
            )
        ]
        for name, reranker in rerankers.items()
    },
}
json.dump(found, sys.stdout)
