"""Threads of the foreground and the background."""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from service.batching.lane import ACTIVE_S, MAX_NICENESS, NICENESS, BackgroundThreads, ForegroundThreads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of single threads")


class Lanes:
    """Threads of both lanes, with a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.background = BackgroundThreads(1, lambda: self.now)
        self.foreground = ForegroundThreads(1, self.background)


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    lanes = Lanes()
    with lanes.background, lanes.foreground:
        yield lanes


def niceness(threads: Executor) -> int:
    return threads.submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).result()


def test_priority_of_the_background_is_lower_while_the_foreground_is_active(lanes: Lanes) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    lower = min(MAX_NICENESS, before + NICENESS)
    assert niceness(lanes.background) == before
    for _ in range(2):
        assert niceness(lanes.foreground) == before
        lanes.now += 0.9 * ACTIVE_S
        assert niceness(lanes.background) == lower
        lanes.now += 0.2 * ACTIVE_S
        assert niceness(lanes.background) == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_niceness_has_a_maximum(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts its workers with a niceness of 15."""
    lanes.foreground.submit(int).result()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpriority", lambda *_: 15)
        lanes.background.submit(int).result()
    assert niceness(lanes.background) == MAX_NICENESS


def test_both_pools_end(lanes: Lanes) -> None:
    lanes.background.submit(int).result()
    lanes.background.yield_to_foreground()
    lanes.background.submit(int).result()
    lanes.background.shutdown()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="after shutdown"):
            lanes.background.submit(int)
        lanes.now += 2 * ACTIVE_S
