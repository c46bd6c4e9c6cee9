"""Work that is done once for many callers, and bytes that responses share."""

import asyncio
import gzip
import itertools
import threading
from collections.abc import Iterator

import pytest

from service.sharing import CHUNK_BYTES, Content, Once, Paced
from tests.support.waiting import wait_until_async


class Gated:
    """Work in a thread that waits until the test opens the gate, and counts how often it is done."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        self.gate.wait()
        return self.count


async def test_callers_that_wait_share_the_work_even_if_the_first_one_is_cancelled() -> None:
    work = Gated()
    shared = Once(work)
    first, *others = (asyncio.create_task(shared.get()) for _ in range(5))
    await wait_until_async(lambda: work.count)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.gate.set()
    assert await asyncio.gather(*others) == [1] * 4
    assert await shared.get() == work.count == 1


async def test_work_that_raised_is_done_again() -> None:
    outcomes: Iterator[Exception | str] = iter([ValueError("first"), "second"])

    def work() -> str:
        if isinstance(outcome := next(outcomes), Exception):
            raise outcome
        return outcome

    shared = Once(work)
    failed = await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)
    assert [type(each) for each in failed] == [ValueError] * 2
    assert await shared.get() == await shared.get() == "second"


async def test_call_gets_the_result_of_work_that_began_after_it() -> None:
    began, may_end = list[int](), asyncio.Event()

    async def work() -> int:
        began.append(len(began))
        await may_end.wait()
        return began[-1]

    paced = Paced(work, 0.0)
    first = asyncio.create_task(paced.get())
    await wait_until_async(lambda: began)
    others = [asyncio.create_task(paced.get()) for _ in range(5)]
    await asyncio.sleep(0)
    others[0].cancel()
    may_end.set()
    assert await first == 0
    assert await asyncio.gather(*others[1:]) == [1] * 4
    assert await paced.get() == 2


async def test_work_begins_after_the_pause() -> None:
    pause_s, times = 0.05, list[float]()

    async def work() -> float:
        times.append(asyncio.get_running_loop().time())
        return times[-1]

    paced = Paced(work, pause_s)
    for _ in range(3):
        assert len(set(await asyncio.gather(*(paced.get() for _ in range(10))))) == 1
    assert all(after - before > 0.9 * pause_s for before, after in itertools.pairwise(times))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES // 2])
def test_content_is_the_body_in_chunks(size: int) -> None:
    body = bytes(number * number % 251 for number in range(size))
    content = Content(body)
    assert b"".join(content.plain) == gzip.decompress(b"".join(content.compressed)) == body
    assert max(map(len, [*content.plain, *content.compressed])) <= CHUNK_BYTES
    assert len(content.plain) == max(1, -(-size // CHUNK_BYTES))
