"""Plain FastAPI: a pydantic body, a handler in the thread pool, no batching, no bounded queue."""

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.classifier import Answer, Classifier

app = FastAPI()
classifier = Classifier()


class Document(BaseModel):
    """Request body."""

    text: str


@app.post("/classify")
def classify(document: Document) -> Answer:
    """Classify one document; not `async`, so that it runs in a thread and does not block the event loop."""
    return classifier([document.text])[0]
