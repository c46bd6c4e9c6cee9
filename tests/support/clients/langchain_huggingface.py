"""`langchain-huggingface` takes no URL of a server."""

import json
import sys

from langchain_huggingface import HuggingFaceEndpointEmbeddings

try:
    HuggingFaceEndpointEmbeddings(model="http://localhost:8000/embed")
except ValueError as error:
    json.dump({"no URL": {"HuggingFaceEndpointEmbeddings": str(error)}}, sys.stdout)
