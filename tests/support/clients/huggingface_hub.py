"""Every task of `huggingface_hub`'s clients that the service answers."""

import asyncio
import json
import sys

from huggingface_hub import AsyncInferenceClient, InferenceClient

film, query, documents = "A film to see twice.", "A parser of trees", ["Speech recognition", "Dependency parsing"]

client = InferenceClient("http://localhost:8000")
asynchronous = AsyncInferenceClient("http://localhost:8000")
embedder = InferenceClient("http://localhost:8000/embed")
labels = {
    "sync": client.text_classification(film),
    "async": asyncio.run(asynchronous.text_classification(film)),
}
found = {
    "labels": {name: [[found.label, found.score] for found in elements] for name, elements in labels.items()},
    "scores": {"sentence_similarity": client.sentence_similarity(query, documents)},
    "vectors": {"feature_extraction": embedder.feature_extraction(documents).tolist()},
}
json.dump(found, sys.stdout)
