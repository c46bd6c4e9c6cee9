"""Errors of the service, without HTTP; `service.wire.errors` maps each to a status.

LongdocError (artifact.errors)
├── MalformedInput      the body cannot be parsed
├── UnsupportedMedia    the content type is not one the route reads
├── PayloadTooLarge     bytes or rows over a limit
├── Unauthorized        no valid key
├── ModelNotFound
├── Overloaded          the queue is full
├── NotReady            no model yet, or the engine has failed
├── ShuttingDown        the server takes no more requests
└── DeadlineExceeded    in the queue or while running
"""

from artifact.errors import LongdocError


class MalformedInput(LongdocError):
    """The body cannot be parsed."""

    code = "malformed_input"
    title = "The body cannot be parsed"


class UnsupportedMedia(LongdocError):
    """The content type is not one the route reads."""

    code = "unsupported_media_type"
    title = "The content type is not supported"


class PayloadTooLarge(LongdocError):
    """Bytes or rows over a limit."""

    code = "payload_too_large"
    title = "The request is too large"


class Unauthorized(LongdocError):
    """No valid key was sent."""

    code = "unauthorized"
    title = "A key is needed"


class ModelNotFound(LongdocError):
    """No model of that name is served."""

    code = "model_not_found"
    title = "No such model"


class RetryableError(LongdocError):
    """The client may come again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Overloaded(RetryableError):
    """The queue is full."""

    code = "overloaded"
    title = "The queue is full"


class NotReady(RetryableError):
    """No model is ready, or the engine has failed."""

    code = "not_ready"
    title = "The model is not ready"


class ShuttingDown(RetryableError):
    """The server takes no more requests."""

    code = "shutting_down"
    title = "The server is shutting down"


class DeadlineExceeded(LongdocError):
    """The deadline passed, in the queue or while running."""

    code = "deadline_exceeded"
    title = "The deadline passed"


def let_go(error: BaseException | None) -> None:
    """Drop what the tracebacks of an error that was dealt with hold on to: bodies and rows, in the frames it passed.

    The error that ended a request is also in the request's future, which those frames hold: a circle that would keep
    megabytes of a refused body until Python looks for garbage.
    """
    while error is not None:
        error.__traceback__ = None
        error.__context__, error = None, error.__context__  # cut, so that even a circle of errors ends
