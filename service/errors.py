"""Errors of the service, without HTTP; `service.routes.errors` maps each to a status.

ServiceError
├── MalformedInput      the body cannot be parsed
├── InvalidInput        it can, but a value is not allowed
├── UnsupportedMedia    the content type is not one the route reads
├── PayloadTooLarge     bytes or rows over a limit
├── Unauthorized        no valid key
├── ModelNotFound
├── Overloaded          the queue is full
├── NotReady            no model yet, or the engine has failed
├── ShuttingDown        the door is closed
├── DeadlineExceeded    in the queue or while running
├── InferenceFailed     the backend raised
└── NonFiniteOutput     the backend returned NaN or infinity

BadExport               a folder below exports/ that cannot be served (start-up, reload)
"""

from typing import ClassVar


class ServiceError(Exception):
    """Base of what a client is told; the message never holds input, paths or traces."""

    code: ClassVar[str]
    title: ClassVar[str]


class MalformedInput(ServiceError):
    """The body cannot be parsed."""

    code = "malformed_input"
    title = "The body cannot be parsed"


class InvalidInput(ServiceError):
    """The body can be parsed, but a value is not allowed."""

    code = "invalid_input"
    title = "A value is not allowed"

    def __init__(self, message: str, errors: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []
        """(place, message) of each value that is not allowed."""


class UnsupportedMedia(ServiceError):
    """The content type is not one the route reads."""

    code = "unsupported_media_type"
    title = "The content type is not supported"


class PayloadTooLarge(ServiceError):
    """Bytes or rows over a limit."""

    code = "payload_too_large"
    title = "The request is too large"


class Unauthorized(ServiceError):
    """No valid key was sent."""

    code = "unauthorized"
    title = "A key is needed"


class ModelNotFound(ServiceError):
    """No model of that name is served."""

    code = "model_not_found"
    title = "No such model"


class RetryableError(ServiceError):
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
    """The door is closed."""

    code = "shutting_down"
    title = "The server is shutting down"


class DeadlineExceeded(ServiceError):
    """The deadline passed, in the queue or while running."""

    code = "deadline_exceeded"
    title = "The deadline passed"


class InferenceFailed(ServiceError):
    """The backend raised."""

    code = "inference_failed"
    title = "The inference failed"


class NonFiniteOutput(ServiceError):
    """The backend returned NaN or infinity."""

    code = "non_finite_output"
    title = "The model gave no finite answer"


class BadExport(Exception):
    """An export that cannot be served; the message is one line that says which and why."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """One word for the metric: missing, hash, schema, manifest, backend, golden, calibration."""


def let_go(error: BaseException | None) -> None:
    """Drop what the tracebacks of an error that was dealt with hold on to: bodies and rows, in the frames it passed.

    The error that ended a request is also in the request's future, which those frames hold: a circle that would keep
    megabytes of a refused body until Python looks for garbage.
    """
    while error is not None:
        error.__traceback__ = None
        error.__context__, error = None, error.__context__  # cut, so that even a circle of errors ends
