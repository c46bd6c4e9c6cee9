"""Rankings by `cohere`, whose two clients use different routes."""

import asyncio
import json
import sys

import cohere
from cohere.errors import NotFoundError

query, documents = "A parser of trees", ["Speech recognition", "Dependency parsing"]

version_1 = cohere.Client(api_key="...", base_url="http://localhost:8000")
version_2 = cohere.ClientV2(api_key="...", base_url="http://localhost:8000")
asynchronous = cohere.AsyncClientV2(api_key="...", base_url="http://localhost:8000")
answers = {
    "version 1": version_1.rerank(model="aan", query=query, documents=documents),
    "version 2": version_2.rerank(model="aan", query=query, documents=documents),
    "asynchronous": asyncio.run(asynchronous.rerank(model="aan", query=query, documents=documents)),
}
try:
    version_2.rerank(model="none", query=query, documents=documents)
except NotFoundError as error:
    refused = error.body["message"]
found = {
    "ranking": {
        name: [[documents[result.index], result.relevance_score] for result in answer.results]
        for name, answer in answers.items()
    },
    "unknown model": {"version 2": refused},
}
json.dump(found, sys.stdout)
