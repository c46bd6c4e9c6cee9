"""The client for asyncio."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Self, Unpack, cast

import httpx

from longdoc_client import frames, operations
from longdoc_client.answers import Classification, Forecast, PairScore, Ranking
from longdoc_client.errors import LongdocError
from longdoc_client.exchange import Answer, Call, Exchange
from longdoc_client.operations import (
    ClassifyOptions,
    Document,
    ForecastOptions,
    MatchOptions,
    Pair,
    RankOptions,
    SeriesInput,
)


class AsyncClient:
    """Asks a service, with retries. As `Client`, for asyncio: iterate over `_each` with `async for`.

    The arguments are those of `Client`.
    """

    def __init__(
        self,
        url: str = "http://localhost:8000",
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        concurrency: int = 4,
        **options: Any,
    ) -> None:
        self._http = httpx.AsyncClient(base_url=url, **options)
        self._http.headers.update(operations.headers(api_key))
        self._timeout_s, self._concurrency = timeout_s, operations.at_least_one(concurrency)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def classify(self, document: Document, **options: Unpack[ClassifyOptions]) -> Classification:
        """The label of a document."""
        (answer,) = await self._send(operations.classify(document, options))
        return cast("Classification", answer["results"][0])

    def classify_each(
        self,
        documents: Iterable[Document],
        *,
        return_errors: bool = False,
        progress: bool = False,
        **options: Unpack[ClassifyOptions],
    ) -> AsyncIterator[Classification]:
        """The labels of documents; with `return_errors`, an error is in the place of the answer that it concerns."""
        total = len(documents) if isinstance(documents, Sequence) else None
        calls = operations.classify_each(documents, options)
        return self._each(calls, total, return_errors=return_errors, progress=progress)

    async def classify_frame(self, texts: Any, *, progress: bool = False, **options: Unpack[ClassifyOptions]) -> Any:
        """The labels of a column of texts: a frame with its index and `label`, `score`, `known` and `error`."""
        job = frames.classify(texts, options)
        return await self._frame(job, progress=progress)

    async def classify_series(
        self, series: SeriesInput, *, rate: float | None = None, **options: Unpack[ClassifyOptions]
    ) -> Classification:
        """The label of a recording; `rate` is its number of steps per second."""
        (answer,) = await self._send(operations.classify_series(series, rate, options))
        return cast("Classification", answer["results"][0])

    async def score(self, a: str, b: str, **options: Unpack[MatchOptions]) -> PairScore:
        """The probability that two documents belong together."""
        (answer,) = await self._send(operations.score(a, b, options))
        return cast("PairScore", answer["results"][0])

    def score_each(
        self,
        pairs: Iterable[Pair],
        *,
        return_errors: bool = False,
        progress: bool = False,
        **options: Unpack[MatchOptions],
    ) -> AsyncIterator[PairScore]:
        """The scores of pairs; with `return_errors`, an error is in the place of the answer that it concerns."""
        total = len(pairs) if isinstance(pairs, Sequence) else None
        calls = operations.score_each(pairs, options)
        return self._each(calls, total, return_errors=return_errors, progress=progress)

    async def score_frame(self, pairs: Any, *, progress: bool = False, **options: Unpack[MatchOptions]) -> Any:
        """The scores of the rows of two columns of texts: a frame with their index, `score` and `error`."""
        job = frames.score(pairs, options)
        return await self._frame(job, progress=progress)

    async def rank(self, query: str, documents: Sequence[str], **options: Unpack[RankOptions]) -> Ranking:
        """Documents in the order of their scores for a query."""
        (answer,) = await self._send(operations.rank(query, documents, options))
        return cast("Ranking", answer)

    async def forecast(self, series: SeriesInput, **options: Unpack[ForecastOptions]) -> Forecast:
        """The next steps of one or several series."""
        (answer,) = await self._send(operations.forecast(series, options))
        return cast("Forecast", answer)

    async def forecast_frame(
        self,
        frame: Any,
        *,
        time_column: str | None = None,
        id_column: str | None = None,
        target_column: str | None = None,
        progress: bool = False,
        **options: Unpack[ForecastOptions],
    ) -> Any:
        """The next steps of the series of a frame, as a frame of the same form.

        A wide frame has a column of numbers for each series. A long one has the name of the series of each row in
        `id_column`, and its value in `target_column`; `error` tells why a series has no forecast. The times are in
        `time_column`, or of a wide frame in an index of pandas. Each quantile is a further column, such as `sales 0.9`.
        """
        job = frames.forecast(frame, time_column, id_column, target_column, options)
        return await self._frame(job, progress=progress)

    async def _frame(self, job: frames.Job, *, progress: bool) -> Any:
        """The frame of a job. If a request fails, the answers before it stay, and the other rows have its error."""
        found = list[Any]()
        try:
            async for answer in self._each(job.calls, job.total, return_errors=True, progress=progress):
                found.append(answer)  # those before an error stay
        except LongdocError as error:
            if not found:
                raise
            found += [error] * (job.total - len(found))
        return job.finish(found)

    async def _each(
        self, calls: Iterable[Call], total: int | None, *, return_errors: bool, progress: bool
    ) -> AsyncIterator[Any]:
        """Answers to the lines of requests, in order."""
        source, pending = iter(calls), deque[tuple[Call, asyncio.Task[list[Answer]]]]()
        try:
            with operations.bar(total, is_shown=progress) as bar:
                while True:
                    while len(pending) < self._concurrency and (call := next(source, None)) is not None:
                        pending.append((call, asyncio.create_task(self._send(call))))
                    if not pending:
                        return
                    call, task = pending.popleft()
                    answers = await task
                    bar.update(len(answers))
                    for answer in operations.answers_of(call, answers, return_errors=return_errors):
                        yield answer
        finally:
            tasks = [task for _, task in pending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, call: Call) -> list[Answer]:
        """Send a request until all of its lines are answered."""
        exchange = Exchange(call, self._timeout_s)
        while True:
            try:
                wait_s = exchange.receive(await self._http.post(**exchange.request()))
            except httpx.TransportError as error:
                wait_s = exchange.receive(error)
            if wait_s is None:
                return exchange.answers
            await asyncio.sleep(wait_s)
