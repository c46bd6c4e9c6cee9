"""Python code that takes long for many items, beside the event loop.

A thread does for code that runs as bytecode: the interpreter lets the event loop have its turn every half millisecond
(`service.server`). Single calls that take long are for `service.parser`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

FEW = 32
"""Items that take less than a millisecond or two, be it a document or a piece of one."""
PIECE_BYTES = 4096


def pieces(documents: Iterable[bytes]) -> int:
    """Items that documents are: one each, and one for every 4 KiB of them."""
    return sum(1 + len(document) // PIECE_BYTES for document in documents)


async def aside(count: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on `count` items: here on few, in a thread on many. Raises: what it raises."""
    if count <= FEW:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
