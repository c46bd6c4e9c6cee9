"""Parses and checks what requests contain, in any process: nothing here needs the server.

The processes that parse large bodies import this module, so it imports little.
"""

import base64
import binascii
import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from artifact.encodings import codec_of, decode
from artifact.errors import InvalidInput
from service.errors import MalformedInput, PayloadTooLarge, UnsupportedMedia

M = TypeVar("M", bound=BaseModel)

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
MAX_LISTED_ERRORS = 1000
"""More validation errors are only counted: pydantic needs seconds to describe a million of them."""
MAX_SHOWN_ERRORS = 20
"""Number of validation errors that a response lists."""
SAME_MEANING = (
    ("inputs", "input", "text", "texts", "document", "documents", "sentences", "instances", "data", "content", "body"),
    ("series", "values", "recording", "recordings", "instances", "data", "inputs"),
    ("pairs", "documents", "texts", "inputs", "instances", "data"),
    ("query", "question", "source_sentence", "input"),
    ("top_k", "top_n", "limit"),
    ("horizon", "prediction_length", "steps"),
    ("frequency", "freq"),
)
"""Names of fields here and in other services that mean the same."""
CLOSE = 0.7
"""Ratio of `difflib` from which a name counts as a misspelt field."""
NOT_JSON = "the body is not valid JSON in UTF-8"
MAX_LEVELS = 200
"""Maximum depth of JSON that pydantic parses."""
BRACKET = re.compile(rb"[\[\]{}]")
SURROGATE = re.compile("[\ud800-\udfff]")


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
        raise invalid(error, schema, body) from None


def with_options(asked: M, options: BaseModel) -> M:
    """A request with the options of its query string. Raises: InvalidInput if its body has others.

    A default contradicts nothing: generated clients send them in the body, the query string, or both.
    """
    defaults = {name: field.default for name, field in type(options).model_fields.items()}
    given = {name: value for name, value in options if value != defaults[name]}
    if other := [name for name, value in given.items() if getattr(asked, name) not in (value, defaults[name])]:
        raise refused([(name, "the query string and the body have different values") for name in other])
    return asked.model_copy(update=given)


def malformed(body: bytes, levels: int = MAX_LEVELS) -> MalformedInput:
    """Why a body cannot be parsed as JSON; `levels` is the maximum depth that the parser reads."""
    if _is_deeper(body, levels):
        return MalformedInput(f"the body is nested too deep; at most {levels} levels of lists and objects are allowed")
    try:
        place = _lone_surrogate(json.loads(body))
    except (ValueError, RecursionError):
        place = None
    if place is None:
        return MalformedInput(NOT_JSON)
    return MalformedInput(f"{place_of(place)}: contains a lone surrogate, which UTF-8 cannot encode")


def _is_deeper(text: bytes, levels: int) -> bool:
    """Whether more than `levels` lists and objects are one inside the other, up to a bracket that closes none."""
    depth = 0
    for bracket in BRACKET.finditer(STRING.sub(b"", text)):
        depth += 1 if bracket[0] in b"[{" else -1
        if not 0 <= depth <= levels:
            break
    return depth > levels


def _lone_surrogate(value: object) -> tuple[int | str, ...] | None:
    """Location of the first text or key in a JSON value that contains a lone surrogate; that of a key is its object."""
    if isinstance(value, str):
        return () if SURROGATE.search(value) else None
    if isinstance(value, dict):
        if any(SURROGATE.search(key) for key in value):
            return ()
        items: Iterable[tuple[int | str, object]] = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    found = ((key, _lone_surrogate(item)) for key, item in items)
    return next(((key, *place) for key, place in found if place is not None), None)


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


def is_quick(body: bytes) -> bool:
    """Whether a body is small enough to parse on the event loop."""
    return len(body) <= TINY_BODY or (len(body) <= SMALL_BODY and _count(body, TOKENS) <= FEW_TOKENS)


def _count(text: bytes, marks: bytes) -> int:
    """Number of bytes of a text that are one of `marks`."""
    return sum(text.count(mark) for mark in marks)


SERIES_TAGS = ("named", "positional", "flat", "several")
"""Tags of the forms of a series in `service.wire.schemas`, which Pydantic puts after the name of the field."""
ID_TAGS = ("constrained-str", "constrained-int")
"""Tags of the types of an id, likewise."""
TEXT_TAGS = ("text", "list", "batch")
"""Tags of one text or several, likewise."""


def invalid(error: ValidationError, schema: type[BaseModel], body: bytes = b"") -> Exception:
    """Convert validation errors of a schema, without the input; `body` is that of JSON."""
    if (count := error.error_count()) > MAX_LISTED_ERRORS:
        message = f"{count} values are not allowed"
        return InvalidInput(message, [("body", message)])
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return malformed(body)
    fields = []
    for one in found[:MAX_SHOWN_ERRORS]:
        place, message = place_of(one["loc"]), one["msg"]
        if one["type"] == "extra_forbidden" and len(one["loc"]) == 1:
            message = _unknown(place, schema)
        elif one["type"] == "model_type":  # Pydantic's message names the class, unless it has parsed the JSON itself
            message = "Input should be an object"
        fields.append((place, message))
    return refused(fields)


def _unknown(name: str, schema: type[BaseModel]) -> str:
    """What to do about a field that a schema does not have; `name` is not too long to compare."""
    fields = list(schema.model_fields)
    same = (field for names in SAME_MEANING if name.lower() in names for field in names if field in fields)
    use = next(same, None) or next(iter(difflib.get_close_matches(name.lower(), fields, 1, CLOSE)), None)
    return f"no such field{f', use {use}' if use else ''} (fields: {', '.join(fields)})"


def refused(fields: list[tuple[str, str]]) -> InvalidInput:
    """An error for (location, message) pairs; it lists the first of them, and shows 3 in its message."""
    return InvalidInput("; ".join(f"{place}: {message}" for place, message in fields[:3]), fields[:MAX_SHOWN_ERRORS])


def place_of(loc: tuple[int | str, ...]) -> str:
    """Location of an error, without the tag of the form of a series, an id or texts, which is not in the request.

    It is truncated, because the name of an unknown field is the client's text.
    """
    tags: dict[int | str, Sequence[str]] = {
        "series": SERIES_TAGS, "id": ID_TAGS, "inputs": TEXT_TAGS, "input": TEXT_TAGS
    }  # fmt: skip
    parts = [part for part, last in zip(loc, ("", *loc), strict=False) if part not in tags.get(last, ())]
    place = ".".join(map(str, parts)) or "body"
    return place if len(place) <= MAX_LOCATION_LENGTH else place[:MAX_LOCATION_LENGTH] + "..."


def decode_base64(place: str, text: str) -> bytes:
    """Decode a document from base64. Raises: InvalidInput naming its location."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput.at(place, "not base64") from None


def decode_text(document: bytes, charset: str, limit: int) -> bytes:
    """A body of text as UTF-8: from the charset that the client names, or UTF-16 or UTF-32.

    Args:
        document: the text.
        charset: as the client names it; may be empty.
        limit: maximum bytes of a document.

    Raises: UnsupportedMedia if the text is not in the named charset; PayloadTooLarge.

    """
    named = codec_of(charset)
    try:
        decoded = decode(document, "" if named in UTF8_NAMES else named)
    except ValueError as error:
        raise UnsupportedMedia(f"the text {error}; name its charset, or send UTF-8") from None
    check_size("input 0", decoded, limit)
    return decoded


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
