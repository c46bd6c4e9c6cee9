"""Reads requests: limits, parsing, validation."""

import asyncio
import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams

from artifact.encodings import MARK, codec_of
from artifact.errors import InvalidInput
from artifact.tasks.matching import LocatedText
from service.errors import DeadlineExceeded, PayloadTooLarge, UnsupportedEncoding, UnsupportedMedia
from service.settings import Settings
from service.wire.context import RequestContext
from service.wire.decompression import ACCEPTED, WINDOW_BITS
from service.wire.disconnect import cancel_on_disconnect
from service.wire.media import JSON, NDJSON, TEXT
from service.wire.parsing import UTF8_NAMES, check_size, invalid, is_quick, place_of, refused

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
MAX_NUMBERS = 2_500_000
"""Limit of numbers in one response: a small request can ask for many, and serializing them takes long. It allows 2,048
vectors of 1,220 numbers; clients of OpenAI ask for as many vectors."""
NUMBER_BYTES = 20
"""Size of a number in JSON, with its comma."""


class MediaType(NamedTuple):
    """What the client says of its body."""

    name: str
    """Media type in lower case; empty if the client names none."""
    charset: str
    """Empty if the client names none."""


def check_media_type(context: RequestContext, *allowed: str) -> MediaType:
    """Return the media type. Raises: UnsupportedMedia or UnsupportedEncoding, naming those allowed."""
    check_content_encoding(context)
    name, _, parameters = context.headers.get("content-type", "").partition(";")
    charset = CHARSET.search(parameters) if parameters else None
    given = MediaType(name.strip().lower(), charset[1] if charset else "")
    if given.name not in allowed:
        raise UnsupportedMedia(f"send the body as {', '.join(allowed)}")
    if given.charset:
        if given.name == TEXT and not codec_of(given.charset):
            raise UnsupportedMedia("the charset is unknown; send text as UTF-8")
        if given.name in (JSON, NDJSON) and codec_of(given.charset) not in UTF8_NAMES:
            raise UnsupportedMedia(f"send {given.name} as UTF-8")
    return given


def check_content_encoding(context: RequestContext) -> None:
    """Raise UnsupportedEncoding if the body is compressed in an unsupported way."""
    coding = context.body.coding
    if coding and coding not in WINDOW_BITS:
        raise UnsupportedEncoding(f"send the body without Content-Encoding, or with one of {ACCEPTED}")


async def read_body(context: RequestContext) -> bytes:
    """Read the whole body, decompressed.

    Raises: DeadlineExceeded if it does not arrive in time; MalformedInput, PayloadTooLarge, Overloaded,
        ClientDisconnect.
    """
    try:
        async with asyncio.timeout_at(context.deadline):
            return await context.body.read()
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body had arrived") from None


async def read_json(context: RequestContext, parse: Callable[[bytes], T], *, ignore_query: bool = False) -> T:
    """Read a JSON body and parse it; the caller has checked the media type.

    Args:
        context: the request.
        parse: parses the body.
        ignore_query: whether the query string is ignored, or read by the caller; else it must be empty.

    Raises: InvalidInput if the query string is not empty; what `read_body` and `parse_body` raise.

    """
    if not ignore_query:
        check_no_query(context)
    return await parse_body(context, parse, await read_body(context))


def check_no_query(context: RequestContext) -> None:
    """Raise InvalidInput if the query string has options, which are expected in JSON."""
    if context.query:
        message = "put the options into the JSON body"
        raise InvalidInput(f"{message}; the query string must be empty", [("query", "not allowed with a JSON body")])


async def parse_body(context: RequestContext, parse: Callable[[bytes], T], body: bytes) -> T:
    """Parse a body or a part of it; a large one in the parser process, until the client disconnects.

    `parse` and its result must be picklable.

    Raises: DeadlineExceeded, NotReady, ClientDisconnect, and what `parse` raises.
    """
    body = body.removeprefix(MARK)
    if is_quick(body):  # no task has to watch the connection
        return parse(body)
    try:
        async with asyncio.timeout_at(context.deadline):
            return await cancel_on_disconnect(context.body, context.runtime.parser.run(parse, body))
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body was parsed") from None


def read_query(context: RequestContext, schema: type[M]) -> M:
    """Validate the query string. Raises: InvalidInput naming the fields."""
    if not context.query:
        empty: M = _without_options(schema)
        return empty
    query = QueryParams(context.query)
    counts = Counter(name for name, _ in query.multi_items())
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise refused([(place_of((name,)), "given more than once") for name in twice])
    try:
        return schema.model_validate_strings(dict(query))
    except ValidationError as error:
        raise invalid(error, schema) from None


@functools.cache
def _without_options(schema: type[M]) -> M:
    """The options of an empty query string; models of options are immutable."""
    return schema()


def read_document(settings: Settings, place: str, document: str | bytes) -> bytes:
    """Bytes of a document. Raises: PayloadTooLarge naming its location if it exceeds the limit."""
    content = document.encode() if isinstance(document, str) else document
    check_size(place, content, settings.max_document_bytes)
    return content


def reserve_numbers(context: RequestContext, count: int, hint: str) -> None:
    """Check the number of numbers in a response, and count their bytes in advance.

    Args:
        context: the request.
        count: number of numbers.
        hint: what the client can do if there are too many.

    Raises: PayloadTooLarge; Overloaded if all requests together hold too many bytes.

    """
    if count > MAX_NUMBERS:
        raise PayloadTooLarge(f"the response would have {count} numbers; at most {MAX_NUMBERS} are allowed: {hint}")
    context.body.reserve(count * NUMBER_BYTES)


def read_text(settings: Settings, place: str, document: str | bytes) -> LocatedText:
    """A text to match. Raises: PayloadTooLarge naming its location if it exceeds the limit of a document."""
    return LocatedText(place, read_document(settings, place, document))


def read_texts(settings: Settings, place: str, documents: Sequence[str]) -> list[LocatedText]:
    """Texts to match. Raises: PayloadTooLarge naming the location of one that exceeds the limit of a document."""
    return [read_text(settings, f"{place}.{number}", document) for number, document in enumerate(documents)]
