"""Work that ends when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")

WATCH_AFTER_S = 0.1


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, cancelling it when the client leaves. Raises: ClientDisconnect.

    To watch a connection takes a task of its own; what is answered within WATCH_AFTER_S goes without.
    """
    with Departure() as departure:
        timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, lambda: departure.watch(_leaves(receive)))
        try:
            return await work
        finally:
            timer.cancel()


class Departure:
    """A block that is left with ClientDisconnect when its watcher has raised it; with the block, the watcher ends."""

    def __init__(self) -> None:
        self._working = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._has_left = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def watch(self, watching: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a watcher beside the block."""
        self._watcher = asyncio.create_task(watching)
        self._watcher.add_done_callback(self._interrupt)
        return self._watcher

    def _interrupt(self, watcher: asyncio.Task[None]) -> None:
        has_left = not watcher.cancelled() and isinstance(watcher.exception(), ClientDisconnect)
        if has_left and self._working is not None:
            self._has_left = True
            self._working.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """End. Raises: ClientDisconnect in place of the cancellation that was ours."""
        working, self._working = self._working, None
        if self._watcher is not None:
            self._watcher.cancel()
        if self._has_left and isinstance(error, asyncio.CancelledError):
            assert working is not None
            working.uncancel()
            raise ClientDisconnect from None


async def _leaves(receive: Receive) -> None:
    """Wait until the client has closed the connection; the body has been read. Raises: ClientDisconnect."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
