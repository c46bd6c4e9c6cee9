"""Work that is done once for many requests, and bytes that their responses share."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

CHUNK_BYTES = 64 * 1024
"""Maximum bytes of a response that are passed to its connection at a time."""
LEVEL = 6
"""Level of gzip; higher ones take far longer for a few percent."""


class Once(Generic[T]):
    """The result of work that is done in a thread at the first call, for all callers.

    A caller that is cancelled does not stop the work. If the work raises, the next call does it again.

    Args:
        work: the work.

    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The result. Raises: what the work raises."""
        task = self._task
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._task = asyncio.create_task(asyncio.to_thread(self._work))
        return await asyncio.shield(task)


class Paced(Generic[T]):
    """Results of work that is done again and again, but with pauses.

    Each call gets the result of work that began after the call. All calls that wait for it share it. A caller that is
    cancelled does not stop the work.

    Args:
        work: the work.
        pause_s: minimum time from the end of the work to its next beginning.

    """

    def __init__(self, work: Callable[[], Awaitable[T]], pause_s: float) -> None:
        self._work = work
        self._pause_s = pause_s
        self._next: asyncio.Task[T] | None = None
        """Begins when the pause is over."""
        self._working = asyncio.Lock()
        self._earliest = 0.0
        """End of the pause, on the clock of the event loop."""

    async def get(self) -> T:
        """The next result. Raises: what the work raises."""
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._run())
        return await asyncio.shield(self._next)

    async def _run(self) -> T:
        """Do the work after the pause."""
        async with self._working:
            await asyncio.sleep(self._earliest - asyncio.get_running_loop().time())
            self._next = None
            try:
                return await self._work()
            finally:
                self._earliest = asyncio.get_running_loop().time() + self._pause_s


class Content:
    """Bytes that responses share, as they are and compressed, in chunks of at most CHUNK_BYTES.

    Creating one takes up to 0.1 s for a megabyte: do it in a thread.
    """

    def __init__(self, body: bytes) -> None:
        self.plain = _chunks(body)
        self.compressed = _chunks(gzip.compress(body, LEVEL, mtime=0))


def _chunks(body: bytes) -> Sequence[bytes]:
    """The parts of a body; one empty part if it is empty."""
    return [body[first : first + CHUNK_BYTES] for first in range(0, max(1, len(body)), CHUNK_BYTES)]
