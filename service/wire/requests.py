"""Bodies and query strings -> checked values, within their limits."""

import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams

from artifact.errors import InvalidInput
from service.errors import MalformedInput, PayloadTooLarge

M = TypeVar("M", bound=BaseModel)

LONGEST_PLACE = 32
MOST_LISTS = 200_000
"""Lists and objects in a body: the parser needs seconds for a million empty ones, and nothing else runs meanwhile."""
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
MOST_NUMBERS = 1_000_000
"""In one answer: a few short series can ask for many, and writing them stops everybody else."""
MANY_ERRORS = 1000
"""Beyond it they are counted, not listed: pydantic needs seconds to describe the million that a body can hold."""


def parse_json(schema: type[M], body: bytes, *, strict: bool | None = True) -> M:
    """Check a JSON body. Raises: MalformedInput if it is not JSON, InvalidInput naming the fields, PayloadTooLarge.

    Args:
        schema: what the body has to be.
        body: as it came.
        strict: whether 1.0 is no integer and "1" no number; None leaves it to each field.

    """
    bound_lists(body)
    try:
        return schema.model_validate_json(body, strict=strict)
    except ValidationError as error:
        raise _invalid(error) from None


def bound_lists(head: bytes) -> None:
    """Refuse JSON that would keep the interpreter for long, whatever its strings hold. Raises: PayloadTooLarge."""
    if _brackets(head) > MOST_LISTS and (count := _brackets(STRING.sub(b"", head))) > MOST_LISTS:
        raise PayloadTooLarge(f"the body holds {count} lists and objects; at most {MOST_LISTS}")


def _brackets(head: bytes) -> int:
    return head.count(b"[") + head.count(b"{")


def parse_query(schema: type[M], query: QueryParams) -> M:
    """Check a query string. Raises: InvalidInput naming the fields."""
    names = [name for name, _ in query.multi_items()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = "given more than once"
        raise InvalidInput(f"a parameter is {message}", [("query", message) for _ in twice])
    try:
        return schema.model_validate_strings(dict(query))
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> Exception:
    """Turn pydantic's errors into ours, without the input."""
    if (count := error.error_count()) > MANY_ERRORS:
        message = f"{count} values are not allowed"
        return InvalidInput(message, [("body", message)])
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return MalformedInput("the body is not valid JSON in UTF-8")
    fields = [(_place(e["loc"]), e["msg"]) for e in found[:20]]
    return InvalidInput("; ".join(f"{place}: {message}" for place, message in fields[:3]), fields)


def _place(loc: tuple[int | str, ...]) -> str:
    """Where an error stands. The name of an unknown field is the client's: cut, it cannot carry a document back."""
    place = ".".join(map(str, loc)) or "body"
    return place if len(place) <= LONGEST_PLACE else place[:LONGEST_PLACE] + "..."


def check_count(what: str, count: int, limit: int) -> None:
    """Bound the number of documents or pairs. Raises: InvalidInput for none, PayloadTooLarge."""
    if count == 0:
        raise InvalidInput(f"{what}: at least 1 is needed", [(what, "at least 1 is needed")])
    if count > limit:
        raise PayloadTooLarge(f"{what}: {count}; at most {limit} in one request")


def check_size(place: str, document: bytes, limit: int) -> None:
    """Bound one document. Raises: PayloadTooLarge."""
    if len(document) > limit:
        raise PayloadTooLarge(f"{place}: the document has {len(document)} bytes; at most {limit}")
