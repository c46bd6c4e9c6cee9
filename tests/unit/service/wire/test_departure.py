"""Work that ends when the client leaves."""

import asyncio

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from service.wire import departure
from service.wire.departure import Departure, while_connected
from tests.support.calls import receive_of
from tests.support.waiting import PATIENCE_S


class Endless:
    """Work that ends only when it is cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.was_cancelled = False

    async def work(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


@pytest.fixture(autouse=True)
def _watch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "WATCH_AFTER_S", 0)


async def test_work_is_cancelled_when_the_client_leaves() -> None:
    endless = Endless()
    with pytest.raises(ClientDisconnect):
        await while_connected(receive_of(b"part", b"part"), endless.work())
    assert endless.was_cancelled
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_result_and_error_of_the_work_are_passed_on() -> None:
    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("broken")

    stays = receive_of(b"", leaves=False)
    assert await while_connected(stays, seven()) == 7
    with pytest.raises(ValueError, match="broken"):
        await while_connected(stays, fail())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_short_work_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> Message:
        raise AssertionError("watched")

    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    monkeypatch.setattr(departure, "WATCH_AFTER_S", 3600)
    assert await while_connected(receive, seven()) == 7


async def test_cancellation_from_outside_stays_one() -> None:
    endless = Endless()
    task = asyncio.create_task(while_connected(receive_of(b"", leaves=False), endless.work()))
    await endless.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert endless.was_cancelled


async def test_watcher_that_ends_by_itself_interrupts_nothing() -> None:
    async def nothing() -> None:
        pass

    async def fault() -> None:
        raise ValueError("of the watcher")

    for watching in (nothing, fault):
        with Departure() as watched:
            watcher = watched.watch(watching())
            await asyncio.wait([watcher])
            await asyncio.sleep(0)


async def test_watcher_ends_with_the_block() -> None:
    endless = Endless()
    with Departure() as watched:
        watcher = watched.watch(endless.work())
        await endless.began.wait()
    await asyncio.wait([watcher], timeout=PATIENCE_S)
    assert endless.was_cancelled
