"""Work that is cancelled when the client disconnects."""

import asyncio

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from service.wire import disconnect
from service.wire.disconnect import CancelOnDisconnect, cancel_on_disconnect
from tests.support.contexts import receive_of


class Endless:
    """Work that ends only by cancellation."""

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
    monkeypatch.setattr(disconnect, "WATCH_AFTER_S", 0)


async def test_disconnect_cancels_the_work() -> None:
    endless = Endless()
    with pytest.raises(ClientDisconnect):
        await cancel_on_disconnect(receive_of(b"part", b"part"), endless.work())
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
    assert await cancel_on_disconnect(stays, seven()) == 7
    with pytest.raises(ValueError, match="broken"):
        await cancel_on_disconnect(stays, fail())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_short_work_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> Message:
        raise AssertionError("watched")

    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    monkeypatch.setattr(disconnect, "WATCH_AFTER_S", 3600)
    assert await cancel_on_disconnect(receive, seven()) == 7


async def test_cancelling_the_request_cancels_the_work() -> None:
    endless = Endless()
    task = asyncio.create_task(cancel_on_disconnect(receive_of(b"", leaves=False), endless.work()))
    await endless.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert endless.was_cancelled


async def test_finished_or_failed_watcher_does_not_interrupt_the_work() -> None:
    async def nothing() -> None:
        pass

    async def fault() -> None:
        raise ValueError("of the watcher")

    for watching in (nothing, fault):
        with CancelOnDisconnect() as watched:
            watcher = watched.watch(watching())
            await asyncio.wait([watcher])
            await asyncio.sleep(0)
