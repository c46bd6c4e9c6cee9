"""Reads requests: limits, parsing, validation."""

import asyncio
import base64
import binascii
import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams

from artifact.encodings import MARK, codec_of, decode
from artifact.errors import InvalidInput
from artifact.matching import Text
from service.errors import DeadlineExceeded, MalformedInput, PayloadTooLarge, UnsupportedEncoding, UnsupportedMedia
from service.parser import Parser
from service.wire.call import Call
from service.wire.decompression import ACCEPTED, WINDOW_BITS
from service.wire.disconnect import cancel_on_disconnect
from service.wire.media import BINARY, JSON, NDJSON, TEXT
from service.wire.schemas import ClassifyOptions, ClassifyRequest

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

DOCUMENT_TYPES = (JSON, TEXT, BINARY, NDJSON)
"""Media types of `POST /v1/classify`."""
CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
UTF8_NAMES = ("utf_8", "ascii")
"""Codecs of charsets that stand for UTF-8; of such a text, bytes that are not UTF-8 stay as they are."""
MAX_LOCATION_LENGTH = 32
MAX_LISTS_AND_KEYS = 100_000
"""Limit of lists, objects and keys in a body: parsing a million of them takes seconds and half a gigabyte."""
MAX_VALUES = 1_000_000
"""Limit of values in a body: each is a Python object until it becomes a number in an array."""
TOKENS = b"[{:,"
"""Characters of JSON that count as tokens: one for each list, object and key, and one between two values."""
SMALL_BODY = 256 * 1024
FEW_TOKENS = 4096
"""Bodies up to these numbers of bytes and tokens are parsed on the event loop, in about 2 ms."""
TINY_BODY = FEW_TOKENS * 3 // 2
"""Valid JSON up to this size has at most FEW_TOKENS tokens: at most two of three bytes are tokens, as in `[[],[],`."""
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string of JSON, or the rest of the text if its end is missing: otherwise the search would start again at every
quotation mark in it, and take a time that is quadratic in the length of the text."""
MAX_NUMBERS = 1_000_000
"""Limit of numbers in one response: a small request can ask for many, and serializing them takes long."""
NUMBER_BYTES = 20
"""Size of a number in JSON, with its comma."""
MAX_LISTED_ERRORS = 1000
"""More validation errors are only counted: pydantic needs seconds to describe a million of them."""


def check_media_type(call: Call, *allowed: str) -> str:
    """Return the media type, in lower case. Raises: UnsupportedMedia or UnsupportedEncoding, naming those allowed."""
    check_content_encoding(call)
    given, charset = _content_type(call)
    if given not in allowed:
        raise UnsupportedMedia(f"send the body as {', '.join(allowed)}")
    if given == TEXT and charset and not codec_of(charset):
        raise UnsupportedMedia("the charset is unknown; send text as UTF-8")
    if given in (JSON, NDJSON) and charset and codec_of(charset) not in UTF8_NAMES:
        raise UnsupportedMedia(f"send {given} as UTF-8")
    return given


def _content_type(call: Call) -> tuple[str, str]:
    """Media type in lower case and charset of the body, as the client names them; empty if it does not."""
    given, _, parameters = (call.header("content-type") or "").partition(";")
    charset = CHARSET.search(parameters) if parameters else None
    return given.strip().lower(), charset[1] if charset else ""


def check_content_encoding(call: Call) -> None:
    """Raise UnsupportedEncoding if the body is compressed in an unsupported way."""
    coding = call.body.coding
    if coding and coding not in WINDOW_BITS:
        raise UnsupportedEncoding(f"send the body without Content-Encoding, or with one of {ACCEPTED}")


async def read_body(call: Call) -> bytes:
    """Read the whole body, decompressed.

    Raises: DeadlineExceeded if it does not arrive in time; MalformedInput, PayloadTooLarge, Overloaded.
    """
    if (body := call.body.take()) is not None:
        return body
    try:
        async with asyncio.timeout_at(call.deadline):
            return await call.body.read()
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body had arrived") from None


async def read_json(call: Call, schema: type[M], *, strict: bool | None = True) -> M:
    """Read a JSON body and validate it.

    Raises: UnsupportedMedia, UnsupportedEncoding, DeadlineExceeded, and what `parse_json` raises.
    """
    return await read_parsed(call, functools.partial(parse_json, schema, strict=strict))


async def read_parsed(call: Call, parse: Callable[[bytes], T]) -> T:
    """Read a JSON body and parse it. `parse` and its result must be picklable.

    Raises: UnsupportedMedia, UnsupportedEncoding, DeadlineExceeded, NotReady, and what `parse` raises.
    """
    _ = call.deadline  # report an invalid header before an invalid body
    check_media_type(call, JSON)
    if call.scope["query_string"]:
        message = "put the options into the JSON body"
        raise InvalidInput(f"{message}; the query string must be empty", [("query", "not allowed with a JSON body")])
    return await parse_body(call, parse, await read_body(call))


async def parse_body(call: Call, parse: Callable[[bytes], T], body: bytes) -> T:
    """Parse a body or a part of it; a large one in the parser process, until the client disconnects.

    Raises: DeadlineExceeded, NotReady, ClientDisconnect, and what `parse` raises.
    """
    body = body.removeprefix(MARK)
    if _is_quick(body):  # no task has to watch the connection
        return parse(body)
    try:
        async with asyncio.timeout_at(call.deadline):
            return await cancel_on_disconnect(call.body, parse_or_offload(call.parser, parse, body))
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body was parsed") from None


async def parse_or_offload(parser: Parser, parse: Callable[[bytes], T], text: bytes) -> T:
    """Parse JSON, in the parser process if it is large. Raises: NotReady, and what `parse` raises."""
    return parse(text) if _is_quick(text) else await parser.run(parse, text)


def read_query(call: Call, schema: type[M]) -> M:
    """Validate the query string. Raises: InvalidInput naming the fields."""
    if not call.scope["query_string"]:
        empty: M = _without_options(schema)
        return empty
    query = QueryParams(call.scope["query_string"])
    counts = Counter(name for name, _ in query.multi_items())
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise _refused([(_place((name,)), "given more than once") for name in twice])
    try:
        return schema.model_validate_strings(dict(query))
    except ValidationError as error:
        raise _invalid(error) from None


@functools.cache
def _without_options(schema: type[M]) -> M:
    """The options of an empty query string; models of options are immutable."""
    return schema()


async def read_documents(call: Call) -> tuple[list[bytes], ClassifyOptions]:
    """Read the documents and options of a request to classify; the media type tells their format.

    Raises: UnsupportedMedia, UnsupportedEncoding, DeadlineExceeded, InvalidInput, MalformedInput, PayloadTooLarge.
    """
    _ = call.deadline
    options: ClassifyOptions
    if check_media_type(call, *DOCUMENT_TYPES) == JSON:
        options = asked = await read_json(call, ClassifyRequest)
        texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
        documents = [text.encode() for text in texts]
    else:
        documents = [await read_body(call)]
        options = read_query(call, ClassifyOptions)
    check_count("inputs", len(documents), call.settings.max_documents)
    return [read_document(call, f"input {index}", document) for index, document in enumerate(documents)], options


def read_document(call: Call, place: str, document: str | bytes) -> bytes:
    """Bytes of a document. Raises: PayloadTooLarge naming its location if it exceeds the limit."""
    content = document.encode() if isinstance(document, str) else document
    check_size(place, content, call.settings.max_document_bytes)
    return content


def decode_text(call: Call, documents: list[bytes]) -> list[bytes]:
    """The document of a body of text as UTF-8: from the charset that the client names, or UTF-16 or UTF-32.

    Documents of other media types are returned as they are.

    Raises: UnsupportedMedia if the text is not in the named charset; PayloadTooLarge.
    """
    given, charset = _content_type(call)
    if given != TEXT:
        return documents
    named = codec_of(charset)
    try:
        decoded = decode(documents[0], "" if named in UTF8_NAMES else named)
    except ValueError as error:
        raise UnsupportedMedia(f"the text {error}; name its charset, or send UTF-8") from None
    return [read_document(call, "input 0", decoded)]


def reserve_numbers(call: Call, count: int, hint: str) -> None:
    """Check the number of numbers in a response, and count their bytes in advance.

    Args:
        call: the request.
        count: number of numbers.
        hint: what the client can do if there are too many.

    Raises: PayloadTooLarge; Overloaded if all requests together hold too many bytes.

    """
    if count > MAX_NUMBERS:
        raise PayloadTooLarge(f"the response would have {count} numbers; at most {MAX_NUMBERS} are allowed: {hint}")
    call.body.reserve(count * NUMBER_BYTES)


def read_text(call: Call, place: str, document: str | bytes) -> Text:
    """A text to match. Raises: PayloadTooLarge naming its location if it exceeds the limit of a document."""
    return Text(place, read_document(call, place, document))


def read_texts(call: Call, place: str, documents: Sequence[str]) -> list[Text]:
    """Texts to match. Raises: PayloadTooLarge naming the location of one that exceeds the limit of a document."""
    return [read_text(call, f"{place}.{number}", document) for number, document in enumerate(documents)]


def decode_base64(place: str, text: str) -> bytes:
    """Decode a document from base64. Raises: InvalidInput naming its location."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput.at(place, "not base64") from None


def parse_json(schema: type[M], body: bytes, *, strict: bool | None = True) -> M:
    """Validate a JSON body. Raises: MalformedInput if it is not JSON, InvalidInput naming the fields, PayloadTooLarge.

    Args:
        schema: type of the body.
        body: the JSON text.
        strict: whether to reject 1.0 as an integer and "1" as a number; None: as each field is declared.

    """
    check_tokens(body)
    try:
        return schema.model_validate_json(body, strict=strict)
    except ValidationError as error:
        raise _invalid(error) from None


def check_tokens(text: bytes) -> None:
    """Raise PayloadTooLarge for JSON with so many TOKENS outside strings that parsing needs much time and memory."""
    if len(text) <= MAX_LISTS_AND_KEYS:
        return
    bounds = ((b"[{:", MAX_LISTS_AND_KEYS, "lists, objects and keys"), (b",", MAX_VALUES, "values"))
    if all(_count(text, marks) <= most for marks, most, _ in bounds):
        return
    bare = STRING.sub(b"", text)
    for marks, most, what in bounds:
        if (count := _count(bare, marks)) > most:
            raise PayloadTooLarge(f"the body holds {count} {what}; at most {most}")


def _is_quick(body: bytes) -> bool:
    """Whether a body is small enough to parse on the event loop."""
    return len(body) <= TINY_BODY or (len(body) <= SMALL_BODY and _count(body, TOKENS) <= FEW_TOKENS)


def _count(text: bytes, marks: bytes) -> int:
    """Number of bytes of a text that are one of `marks`."""
    return sum(text.count(mark) for mark in marks)


def _invalid(error: ValidationError) -> Exception:
    """Convert validation errors, without the input."""
    if (count := error.error_count()) > MAX_LISTED_ERRORS:
        message = f"{count} values are not allowed"
        return InvalidInput(message, [("body", message)])
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return MalformedInput("the body is not valid JSON in UTF-8")
    return _refused([(_place(e["loc"]), e["msg"]) for e in found])


def _refused(fields: list[tuple[str, str]]) -> InvalidInput:
    """An error for (location, message) pairs; it lists the first 20, and shows 3 in its message."""
    return InvalidInput("; ".join(f"{place}: {message}" for place, message in fields[:3]), fields[:20])


def _place(loc: tuple[int | str, ...]) -> str:
    """Location of an error. It is truncated, because the name of an unknown field is the client's text."""
    place = ".".join(map(str, loc)) or "body"
    return place if len(place) <= MAX_LOCATION_LENGTH else place[:MAX_LOCATION_LENGTH] + "..."


def check_count(what: str, count: int, limit: int) -> None:
    """Check the number of documents or pairs. Raises: InvalidInput for none, PayloadTooLarge for too many."""
    if count == 0:
        raise InvalidInput.at(what, "at least 1 is needed")
    if count > limit:
        raise PayloadTooLarge(f"{what}: {count}; at most {limit} in one request")


def check_size(place: str, document: bytes, limit: int) -> None:
    """Check the size of a document. Raises: PayloadTooLarge."""
    if len(document) > limit:
        raise PayloadTooLarge(f"{place}: the document has {len(document)} bytes; at most {limit}")
