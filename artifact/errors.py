"""Errors of inference. The service adds its own and maps each to an HTTP status.

LongdocError
├── InvalidInput        a value is not allowed
├── InferenceFailed     the backend raised
└── NonFiniteOutput     the model returned NaN or infinity

BadExport               a folder below exports/ that cannot be used
InputError              a file, row or option of a command that cannot be used
"""

from collections.abc import Callable
from typing import ClassVar


class LongdocError(Exception):
    """Base class of the errors reported to clients. The message never contains input, paths or stack traces."""

    code: ClassVar[str]
    title: ClassVar[str]


class InvalidInput(LongdocError):
    """The input is well-formed, but a value is not allowed."""

    code = "invalid_input"
    title = "A value is not allowed"

    def __init__(self, message: str, errors: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []
        """(location, message) of each invalid value."""

    @classmethod
    def at(cls, location: str, message: str) -> "InvalidInput":
        """Error for one invalid value, with its location."""
        return cls(f"{location}: {message}", [(location, message)])

    def renamed(self, rename: Callable[[str], str]) -> "InvalidInput":
        """Copy of this error with renamed locations."""
        errors = [(rename(location), why) for location, why in self.errors]
        return InvalidInput("; ".join(f"{location}: {why}" for location, why in errors), errors)


class InferenceFailed(LongdocError):
    """The backend raised an exception."""

    code = "inference_failed"
    title = "The inference failed"


class NonFiniteOutput(LongdocError):
    """The model returned NaN or infinity."""

    code = "non_finite_output"
    title = "The model gave no finite answer"


class BadExport(Exception):
    """An export cannot be used. The message is one line that names the export and the reason."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """Metric label: missing, size, hash, schema, manifest, unlisted, backend, golden, timeout, calibration, task,
        unreadable or failed."""


class InputError(Exception):
    """A file, row or option of a command that cannot be used. The message is one line that names it."""
