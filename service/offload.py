"""Runs Python code for many items in a thread, so that the event loop stays responsive.

A thread is enough for code that is interpreted: the interpreter switches to the event loop every half millisecond
(`service.server`). A single C call that takes long needs another process: `service.parser`.
"""

import asyncio
import contextvars
import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_THREADS = ThreadPoolExecutor(2, "offload")
"""More threads would not be faster, because of the GIL, and the event loop would wait for each of them."""

P = ParamSpec("P")
T = TypeVar("T")

FEW_ITEMS = 32
"""Maximum items for the event loop, where they take at most about 2 ms. An item is a document or ITEM_BYTES of one."""
ITEM_BYTES = 4096
ITEM_NUMBERS = 1000
"""Numbers of a response that count as one item: serializing them takes less than 0.1 ms."""


def count_items(documents: Iterable[bytes]) -> int:
    """Number of items of documents: one per document, and one per ITEM_BYTES of it."""
    return sum([1 + len(document) // ITEM_BYTES for document in documents])


async def offload(count: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` on `count` items; in a thread if there are more than FEW_ITEMS. Raises: what `work` raises."""
    if count <= FEW_ITEMS:
        return work(*args, **kwargs)
    run = functools.partial(contextvars.copy_context().run, work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, run)
