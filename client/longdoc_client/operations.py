"""What the methods of both clients send, and how they read the answers."""

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

from tqdm import tqdm

from longdoc_client.errors import RequestError
from longdoc_client.exchange import BYTES, JSON, Answer, Call, calls, encode

CLASSIFY, SCORE, RANK, FORECAST = "/v1/classify", "/v1/score", "/v1/rank", "/v1/forecast"

Document = str | bytes
"""A text, or the bytes of one, which need not be UTF-8."""
Pair = tuple[str, str]
SeriesInput = Mapping[str, Sequence[float | None]] | Sequence[Sequence[float | None]] | Sequence[float | None]
"""Values by channel or series, one list for each step or series, or the values of one; None and NaN are missing."""
Overflow = Literal["windows", "head", "tail", "head_tail", "error"]


class ClassifyOptions(TypedDict, total=False):
    """Options of `/v1/classify`."""

    model: str
    top_k: int
    detail: bool
    on_overflow: Overflow


class MatchOptions(TypedDict, total=False):
    """Options of `/v1/score`."""

    model: str
    on_overflow: Overflow


class RankOptions(MatchOptions, total=False):
    """Options of `/v1/rank`."""

    top_n: int
    return_documents: bool


class ForecastOptions(TypedDict, total=False):
    """Options of `/v1/forecast`."""

    model: str
    horizon: int
    quantiles: Sequence[float]
    season: int | Sequence[int]
    frequency: str
    start: str
    non_negative: bool


def headers(api_key: str | None) -> dict[str, str]:
    """Headers of all requests."""
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}


def at_least_one(concurrency: int) -> int:
    """The number of requests at a time. Raises: ValueError for none."""
    if concurrency < 1:
        raise ValueError(f"concurrency: expected at least 1, got {concurrency}")
    return concurrency


def query_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as a query string; None means the default."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def classify(document: Document, options: Mapping[str, Any]) -> Call:
    """One document."""
    content = document.encode() if isinstance(document, str) else document
    return Call(CLASSIFY, (content,), query_of(options), BYTES)


def classify_series(series: SeriesInput, rate: float | None, options: Mapping[str, Any]) -> Call:
    """One recording."""
    given = {"series": without_nan(series), **({} if rate is None else {"rate": rate}), **options}
    return Call(CLASSIFY, (encode(given),), media=JSON)


def score(a: str, b: str, options: Mapping[str, Any]) -> Call:
    """One pair."""
    return Call(SCORE, (encode({"pairs": [[a, b]], **options}),), media=JSON)


def rank(query: str, documents: Sequence[str], options: Mapping[str, Any]) -> Call:
    """One query."""
    return Call(RANK, (encode({"query": query, "documents": list(_several(documents)), **options}),), media=JSON)


def forecast(series: SeriesInput, options: Mapping[str, Any]) -> Call:
    """One or several series."""
    return Call(FORECAST, (encode({"series": without_nan(series), **options}),), media=JSON)


def classify_each(documents: Iterable[Document], options: Mapping[str, Any]) -> Iterator[Call]:
    """Any number of documents. Raises: TypeError or ValueError that names the document."""
    lines = (_document_line(*item) for item in enumerate(_several(documents)))
    return calls(CLASSIFY, lines, query_of(options))


def score_each(pairs: Iterable[Pair], options: Mapping[str, Any]) -> Iterator[Call]:
    """Any number of pairs. Raises: TypeError or ValueError that names the pair."""
    return calls(SCORE, (_pair_line(*item) for item in enumerate(pairs)), query_of(options))


def _several(documents: Iterable[Document]) -> Iterable[Document]:
    """The documents. Raises: TypeError for a single text, which would be read as one document a character."""
    if isinstance(documents, str | bytes):
        raise TypeError(f"documents: expected several, got one ({type(documents).__name__})")
    return documents


def _document_line(number: int, document: object) -> bytes:
    if isinstance(document, bytes):
        return encode({"base64": base64.b64encode(document).decode()})
    if isinstance(document, str):
        return _line(number, {"text": document})
    raise TypeError(f"input {number}: expected a text or bytes, got {type(document).__name__}")


def _pair_line(number: int, pair: object) -> bytes:
    match pair:
        case (str(a), str(b)):
            return _line(number, {"a": a, "b": b})
    raise TypeError(f"input {number}: expected two texts, got {pair!r:.100}")


def _line(number: int, content: Mapping[str, Any]) -> bytes:
    try:
        return encode(content)
    except UnicodeEncodeError:
        raise ValueError(f"input {number}: the text is not valid Unicode: it has half of a surrogate pair") from None


def answers_of(call: Call, found: Iterable[Answer], *, return_errors: bool) -> Iterator[Any]:
    """Answers to the lines of a request.

    Raises: RequestError for the first line that was refused; with `return_errors`, it is in the place of the answer.
    """
    for number, answer in enumerate(found, call.first):
        if "error" not in answer:
            yield {name: value for name, value in answer.items() if name != "index"}
        elif return_errors:
            yield RequestError(answer["error"], number)
        else:
            raise RequestError(answer["error"], number)


def without_nan(values: Any) -> Any:
    """Nested lists and mappings with None in the place of NaN."""
    if isinstance(values, Mapping):
        return {name: without_nan(column) for name, column in values.items()}
    if to_list := getattr(values, "tolist", None) or getattr(values, "to_list", None):  # of NumPy, pandas or polars
        values = to_list()
    if isinstance(values, Sequence) and not isinstance(values, str):
        return [without_nan(value) for value in values]
    return None if isinstance(values, float) and math.isnan(values) else values


def bar(total: int | None, *, is_shown: bool) -> "tqdm[Any]":
    """Progress bar on standard error."""
    return tqdm(total=total, unit="input", disable=not is_shown)
