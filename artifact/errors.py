"""Errors of what is computed around a model. The service adds its own, and maps each to an HTTP status.

LongdocError
├── InvalidInput        a value is not allowed
├── InferenceFailed     the backend raised
└── NonFiniteOutput     the model returned NaN or infinity

BadExport               a folder below exports/ that cannot be used
"""

from collections.abc import Callable
from typing import ClassVar


class LongdocError(Exception):
    """Base of what a client may be told; the message never holds input, paths or traces."""

    code: ClassVar[str]
    title: ClassVar[str]


class InvalidInput(LongdocError):
    """The input can be parsed, but a value is not allowed."""

    code = "invalid_input"
    title = "A value is not allowed"

    def __init__(self, message: str, errors: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []
        """(place, message) of each value that is not allowed."""

    @classmethod
    def at(cls, place: str, message: str) -> "InvalidInput":
        """One value that is not allowed, told with its place."""
        return cls(f"{place}: {message}", [(place, message)])

    def renamed(self, rename: Callable[[str], str]) -> "InvalidInput":
        """The same with other names of the places."""
        errors = [(rename(place), why) for place, why in self.errors]
        return InvalidInput("; ".join(f"{place}: {why}" for place, why in errors), errors)


class InferenceFailed(LongdocError):
    """The backend raised."""

    code = "inference_failed"
    title = "The inference failed"


class NonFiniteOutput(LongdocError):
    """The model returned NaN or infinity."""

    code = "non_finite_output"
    title = "The model gave no finite answer"


class BadExport(Exception):
    """An export that cannot be used; the message is one line that says which and why."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """One word for the metric: missing, hash, schema, manifest, unlisted, backend, golden, calibration."""
