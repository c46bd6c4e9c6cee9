"""The headers of a request."""

from collections.abc import Iterable

RawHeaders = Iterable[tuple[bytes, bytes]]
"""(name in lower case, value), as in an ASGI scope."""


class RequestHeaders(dict[str, str]):
    """Lower-case name -> value; of a repeated header, the first value.

    They are decoded once per request. Starlette's `Headers` searches and decodes a list at each look-up.

    Args:
        raw: the headers of the ASGI scope.

    """

    __slots__ = ("_raw",)

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        super().__init__(reversed(self._raw))

    def getlist(self, name: str) -> list[str]:
        """Values of a header, in order."""
        return [value for other, value in self._raw if other == name] if name in self else []
