"""FastAPI as most people write it: a pydantic body, a handler in the thread pool, no batching, no bounds."""

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.classifier import Answer, Classifier

app = FastAPI()
classifier = Classifier()


class Document(BaseModel):
    """Body of a request."""

    text: str


@app.post("/classify")
def classify(document: Document) -> Answer:
    """Classify one document; not `async`, so it runs in a thread and ONNX Runtime computes beside the event loop."""
    return classifier([document.text])[0]
