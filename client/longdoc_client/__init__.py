"""Python client of longdoc-serve.

`Client("http://localhost:8000").classify(["A film to see twice.", "A waste of an evening."])` returns what the service
answers, in order. `AsyncClient` has the same methods for asyncio.
"""

from longdoc_client.answers import Classification, Coverage, Forecast, PairScore, Ranking, Score
from longdoc_client.asynchronous import AsyncClient
from longdoc_client.errors import LongdocError, RequestError, Unreachable
from longdoc_client.synchronous import Client

__all__ = [
    "AsyncClient",
    "Classification",
    "Client",
    "Coverage",
    "Forecast",
    "LongdocError",
    "PairScore",
    "Ranking",
    "RequestError",
    "Score",
    "Unreachable",
]
