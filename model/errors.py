"""Errors of the commands of `model`: mistakes of the user, shown as one line with exit code 2."""


class UserError(Exception):
    """A mistake in arguments, recipe or data; the message names the thing and its place."""


class ExportMismatch(UserError):
    """The exported formats do not agree with the trained model; the message carries the measured error."""
