"""Cancels work when the client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")

WATCH_AFTER_S = 0.5
"""Shorter work is not watched, which saves an asyncio task per request. Most work is shorter, even if hundreds of
clients share a GPU."""


async def cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; cancel it if the client disconnects.

    Args:
        receive: the ASGI callable of the request, whose body has been read.
        work: the work.

    Raises: ClientDisconnect; errors of `work`.

    """
    with CancelOnDisconnect() as scope:
        timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, lambda: scope.watch(_disconnected(receive)))
        try:
            return await work
        finally:
            timer.cancel()


class CancelOnDisconnect:
    """A context manager. If its watcher raises ClientDisconnect, the block is cancelled and raises it too."""

    def __init__(self) -> None:
        self._working = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._has_disconnected = False

    def __enter__(self) -> Self:
        """Enter the block."""
        return self

    def watch(self, watching: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a watcher in a task until the block ends."""
        self._watcher = asyncio.create_task(watching)
        self._watcher.add_done_callback(self._interrupt)
        return self._watcher

    def _interrupt(self, watcher: asyncio.Task[None]) -> None:
        has_disconnected = not watcher.cancelled() and isinstance(watcher.exception(), ClientDisconnect)
        if has_disconnected and self._working is not None:
            self._has_disconnected = True
            self._working.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Leave the block and cancel the watcher. Raises: ClientDisconnect if the watcher cancelled the block."""
        working, self._working = self._working, None
        if self._watcher is not None:
            self._watcher.cancel()
        if self._has_disconnected and isinstance(error, asyncio.CancelledError):
            assert working is not None
            working.uncancel()
            raise ClientDisconnect from None


async def _disconnected(receive: Receive) -> None:
    """Wait until the client disconnects, then raise ClientDisconnect."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
