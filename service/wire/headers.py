"""The headers of a request, read once: Starlette's `Headers` searches and decodes a list at each look-up."""

from collections.abc import Mapping

from starlette.types import Scope


def first_headers(scope: Scope) -> Mapping[str, str]:
    """Lower-case name -> value; of a repeated header, the first value."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header, in order; `name` is in lower case."""
    return [value.decode("latin-1") for other, value in scope["headers"] if other == name]
