"""Errors of the commands of `model`, printed as one line with exit code 2."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from artifact.errors import InputError


class UserError(Exception):
    """A mistake in arguments, recipe or data; the message names what is wrong and where."""


class ExportMismatch(UserError):
    """The outputs of an export differ from those of the trained model; the message gives the measured error."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Add the path to OSErrors without one, such as a full disk. Raises: UserError, OSError."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def reading() -> Iterator[None]:
    """Let a file of user data that cannot be read be a mistake of the user. Raises: UserError."""
    try:
        yield
    except InputError as error:
        raise UserError(str(error)) from None
