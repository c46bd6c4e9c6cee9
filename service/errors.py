"""Errors of the service, without HTTP; `service.wire.errors` maps each to a status.

LongdocError (artifact.errors)
├── MalformedInput      the body cannot be parsed or decompressed
├── UnsupportedMedia    the route does not support the content type
├── UnsupportedEncoding the body has an unsupported content coding
├── PayloadTooLarge     a limit of bytes, documents or values is exceeded
├── Unauthorized        no valid API key
├── CrossOrigin         a web page of another origin sent the request
├── ModelNotFound
├── ControlRefused      a model cannot be loaded or unloaded
├── Overloaded          a queue is full, a wait too long, or too many bytes are held
├── NotReady            the model or another part of the server has failed
├── ShuttingDown        the server accepts no more requests
└── DeadlineExceeded    the deadline passed before the response was ready
"""

import contextlib
from collections.abc import Callable, Iterator

from artifact.errors import InvalidInput, LongdocError


class MalformedInput(LongdocError):
    """The body cannot be parsed or decompressed."""

    code = "malformed_input"
    title = "The body cannot be parsed"


class UnsupportedMedia(LongdocError):
    """The route does not support the content type."""

    code = "unsupported_media_type"
    title = "The content type is not supported"


class UnsupportedEncoding(LongdocError):
    """The body has an unsupported content coding."""

    code = "unsupported_encoding"
    title = "The content coding is not supported"


class PayloadTooLarge(LongdocError):
    """A limit of bytes, documents or values is exceeded."""

    code = "payload_too_large"
    title = "The request is too large"


class Unauthorized(LongdocError):
    """The request has no valid API key."""

    code = "unauthorized"
    title = "A key is needed"


class CrossOrigin(LongdocError):
    """A web page of another origin sent the request."""

    code = "cross_origin"
    title = "The origin is not allowed"


class ModelNotFound(LongdocError):
    """No model of that name is served."""

    code = "model_not_found"
    title = "No such model"


class ControlRefused(LongdocError):
    """A model cannot be loaded or unloaded."""

    code = "control_refused"
    title = "The model cannot be loaded or unloaded"


class RetryableError(LongdocError):
    """An error after which the client can retry in `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Overloaded(RetryableError):
    """A queue is full, the wait would be too long, or all requests together hold too many bytes."""

    code = "overloaded"
    title = "The server is overloaded"


class NotReady(RetryableError):
    """The model or another part of the server has failed."""

    code = "not_ready"
    title = "The model is not ready"


class ShuttingDown(RetryableError):
    """The server accepts no more requests."""

    code = "shutting_down"
    title = "The server is shutting down"


class DeadlineExceeded(LongdocError):
    """The deadline passed before the response was ready."""

    code = "deadline_exceeded"
    title = "The deadline passed"


@contextlib.contextmanager
def rename_places(rename: Callable[[str], str]) -> Iterator[None]:
    """If the block raises InvalidInput, replace each location in it by `rename(location)`. Raises: InvalidInput."""
    try:
        yield
    except InvalidInput as error:
        raise error.renamed(rename) from None


def clear_tracebacks(error: BaseException | None) -> None:
    """Drop the tracebacks of a handled error and its context, and with them the bodies and rows in their frames.

    The frames also hold the future that holds the error. Without this, the reference cycle would keep megabytes of a
    rejected body until the next garbage collection.
    """
    while error is not None:
        error.__traceback__ = None
        error.__context__, error = None, error.__context__  # cut, so that a cycle of errors ends, too
