"""Requests -> checked values, within their limits."""

import asyncio
import functools
import re
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from artifact.errors import InvalidInput
from service.errors import DeadlineExceeded, MalformedInput, PayloadTooLarge, UnsupportedMedia
from service.parser import Parser
from service.wire.call import Call
from service.wire.departure import while_connected
from service.wire.media import BINARY, JSON, NDJSON, TEXT
from service.wire.schemas import ClassifyOptions, ClassifyRequest

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

CLASSIFIED = (JSON, TEXT, BINARY, NDJSON)
"""Media types of documents to classify."""
CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
LONGEST_PLACE = 32
MOST_LISTS_AND_KEYS = 100_000
"""Lists, objects and their keys in a body: the parser needs seconds and half a gigabyte for a million of them."""
MOST_VALUES = 1_000_000
"""Values in a body, each an object of Python before it is a number in an array."""
SMALL_BODY = 256 * 1024
FEW_TOKENS = 4096
"""A body of no more bytes and tokens than these is parsed on the event loop, within 2 ms or so."""
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
MOST_NUMBERS = 1_000_000
"""In one answer: a few short series can ask for many, and writing them stops everybody else."""
MANY_ERRORS = 1000
"""Beyond it they are counted, not listed: pydantic needs seconds to describe the million that a body can hold."""


def media_type(call: Call, *allowed: str) -> str:
    """Media type of the body, in lower case. Raises: UnsupportedMedia naming what is allowed."""
    refuse_encoding(call)
    given, _, parameters = (call.header("content-type") or "").partition(";")
    given = given.strip().lower()
    if given not in allowed:
        raise UnsupportedMedia(f"send the body as {', '.join(allowed)}")
    charset = CHARSET.search(parameters)
    if given != BINARY and charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMedia("send text as UTF-8, or bytes of any encoding as application/octet-stream")
    return given


def refuse_encoding(call: Call) -> None:
    """Take no compressed body. Raises: UnsupportedMedia."""
    encoding = call.header("content-encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise UnsupportedMedia("send the body without Content-Encoding")


async def read_body(call: Call) -> bytes:
    """The whole body. Raises: DeadlineExceeded if the client is slower than its deadline."""
    try:
        async with asyncio.timeout_at(call.deadline):
            return b"".join([part async for part in call.request.stream()])
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body had come") from None


async def read_json(call: Call, schema: type[M], *, strict: bool | None = True) -> M:
    """The body as JSON, checked; its options stand in it, not in the query string.

    Raises: UnsupportedMedia, DeadlineExceeded, and what `parse_json` raises.
    """
    return await read_parsed(call, functools.partial(parse_json, schema, strict=strict))


async def read_parsed(call: Call, parse: Callable[[bytes], T]) -> T:
    """The body, which has to be sent as JSON, as `parse` reads it. `parse` and its outcome have to be picklable.

    Raises: UnsupportedMedia, DeadlineExceeded, NotReady, and what `parse` raises.
    """
    _ = call.deadline  # a bad header is told of before a bad body
    media_type(call, JSON)
    if call.request.scope["query_string"]:
        raise InvalidInput("options of a JSON body go into the body", [("query", "not allowed with a JSON body")])
    return await parse_body(call, parse, await read_body(call))


async def parse_body(call: Call, parse: Callable[[bytes], T], body: bytes) -> T:
    """Parse a body, or a part of one, aside if that takes long, until the client leaves.

    Raises: DeadlineExceeded, NotReady, ClientDisconnect, and what `parse` raises.
    """
    if _is_quick(body):  # without a task that watches the connection
        return parse(body)
    try:
        async with asyncio.timeout_at(call.deadline):
            return await while_connected(call.request.receive, parse_aside(call.parser, parse, body))
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body was parsed") from None


async def parse_aside(parser: Parser, parse: Callable[[bytes], T], text: bytes) -> T:
    """Parse a part of a body, in the parser's process if that takes long. Raises: NotReady, and what `parse` raises."""
    return parse(text) if _is_quick(text) else await parser.run(parse, text)


def read_query(call: Call, schema: type[M]) -> M:
    """The query string, checked. Raises: InvalidInput naming the fields."""
    if not call.request.scope["query_string"]:
        return schema()
    query = call.request.query_params
    names = [name for name, _ in query.multi_items()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _refused([(_place((name,)), "given more than once") for name in twice])
    try:
        return schema.model_validate_strings(dict(query))
    except ValidationError as error:
        raise _invalid(error) from None


async def read_documents(call: Call) -> tuple[list[bytes], ClassifyOptions]:
    """Documents, within their limits, and options of a request to classify; the media type says how they came.

    Raises: UnsupportedMedia, DeadlineExceeded, InvalidInput, MalformedInput, PayloadTooLarge.
    """
    _ = call.deadline
    options: ClassifyOptions
    if media_type(call, *CLASSIFIED) == JSON:
        options = asked = await read_json(call, ClassifyRequest)
        texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
        documents = [text.encode() for text in texts]
    else:
        documents = [await read_body(call)]
        options = read_query(call, ClassifyOptions)
    check_count("inputs", len(documents), call.settings.max_documents)
    return [read_document(call, f"input {index}", document) for index, document in enumerate(documents)], options


def read_document(call: Call, place: str, document: str | bytes) -> bytes:
    """A document of the request, within its limit. Raises: PayloadTooLarge naming its place."""
    content = document.encode() if isinstance(document, str) else document
    check_size(place, content, call.settings.max_document_bytes)
    return content


def parse_json(schema: type[M], body: bytes, *, strict: bool | None = True) -> M:
    """Check a JSON body. Raises: MalformedInput if it is not JSON, InvalidInput naming the fields, PayloadTooLarge.

    Args:
        schema: what the body has to be.
        body: as it came.
        strict: whether 1.0 is no integer and "1" no number; None leaves it to each field.

    """
    bound_tokens(body)
    try:
        return schema.model_validate_json(body, strict=strict)
    except ValidationError as error:
        raise _invalid(error) from None


def bound_tokens(head: bytes) -> None:
    """Refuse JSON that would need much memory and time, whatever its strings hold. Raises: PayloadTooLarge."""
    if len(head) <= MOST_LISTS_AND_KEYS:
        return
    bounds = ((b"[{:", MOST_LISTS_AND_KEYS, "lists, objects and keys"), (b",", MOST_VALUES, "values"))
    if all(_count(head, marks) <= most for marks, most, _ in bounds):
        return
    bare = STRING.sub(b"", head)
    for marks, most, what in bounds:
        if (count := _count(bare, marks)) > most:
            raise PayloadTooLarge(f"the body holds {count} {what}; at most {most}")


def _is_quick(body: bytes) -> bool:
    """Whether to parse a body takes so little time that nobody else notices."""
    return len(body) <= SMALL_BODY and _count(body, b"[{:,") <= FEW_TOKENS


def _count(text: bytes, marks: bytes) -> int:
    """How many bytes of a text are one of some marks."""
    return sum(text.count(mark) for mark in marks)


def _invalid(error: ValidationError) -> Exception:
    """Turn pydantic's errors into ours, without the input."""
    if (count := error.error_count()) > MANY_ERRORS:
        message = f"{count} values are not allowed"
        return InvalidInput(message, [("body", message)])
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return MalformedInput("the body is not valid JSON in UTF-8")
    return _refused([(_place(e["loc"]), e["msg"]) for e in found])


def _refused(fields: list[tuple[str, str]]) -> InvalidInput:
    """Values that are not allowed, by place and message: some of many are enough."""
    return InvalidInput("; ".join(f"{place}: {message}" for place, message in fields[:3]), fields[:20])


def _place(loc: tuple[int | str, ...]) -> str:
    """Where an error stands. The name of an unknown field is the client's: cut, it cannot carry a document back."""
    place = ".".join(map(str, loc)) or "body"
    return place if len(place) <= LONGEST_PLACE else place[:LONGEST_PLACE] + "..."


def check_count(what: str, count: int, limit: int) -> None:
    """Bound the number of documents or pairs. Raises: InvalidInput for none, PayloadTooLarge."""
    if count == 0:
        raise InvalidInput.at(what, "at least 1 is needed")
    if count > limit:
        raise PayloadTooLarge(f"{what}: {count}; at most {limit} in one request")


def check_size(place: str, document: bytes, limit: int) -> None:
    """Bound one document. Raises: PayloadTooLarge."""
    if len(document) > limit:
        raise PayloadTooLarge(f"{place}: the document has {len(document)} bytes; at most {limit}")
