"""`python -m benchmarks.serving.plain_server KIND FOLDER`: a classifier behind a plain FastAPI app, one process.

KIND is one of `benchmarks.serving.classifiers.LOADERS`. Used by `benchmarks.models.alternatives`. The handler is a
coroutine: on one core, a thread pool would only add switches between threads.
"""

import argparse
from pathlib import Path

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.serving.classifiers import LOADERS, Classify

LABELS = ("negative", "positive")


class Document(BaseModel):
    """Request body."""

    text: str


class Answer(BaseModel):
    """Response body."""

    label: str
    score: float


def app_of(classify: Classify) -> FastAPI:
    """An app with one route, `POST /classify`."""
    app = FastAPI()

    @app.post("/classify")
    async def answer(document: Document) -> Answer:
        scores = classify(document.text)
        best = int(np.argmax(scores))
        return Answer(label=LABELS[best], score=float(scores[best]))

    return app


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(LOADERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    uvicorn.run(app_of(LOADERS[args.kind](args.folder)), port=args.port, access_log=False)


if __name__ == "__main__":
    main()
