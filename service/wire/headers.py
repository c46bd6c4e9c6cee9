"""The headers of a request, read once: Starlette's `Headers` searches and decodes a list at each look-up."""

from collections.abc import Mapping

from starlette.types import Scope

SINGLE = (b"content-type", b"inference-header-content-length", b"x-request-timeout-ms")
"""Headers that say how the request is read."""


def first_headers(scope: Scope) -> Mapping[str, str]:
    """Lower-case name -> value; of a repeated header, the first value."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header, in order; `name` is in lower case."""
    return [value.decode("latin-1") for other, value in scope["headers"] if other == name]


def repeated_headers(scope: Scope) -> list[str]:
    """Names of the SINGLE headers that a request has more than once, with different values."""
    return [name.decode() for name in SINGLE if len(set(header_values(scope, name))) > 1]
