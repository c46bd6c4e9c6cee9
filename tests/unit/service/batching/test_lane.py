"""Threads of the background."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.batching.lane import MAX_NICENESS, NICENESS, background_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of single threads")


def niceness(threads: ThreadPoolExecutor) -> int:
    return threads.submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).result()


def test_only_background_threads_have_a_lower_priority() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with background_threads(1) as background, ThreadPoolExecutor(1) as others:
        assert niceness(background) == min(MAX_NICENESS, before + NICENESS)
        assert niceness(others) == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_niceness_has_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts its workers with a niceness of 15."""
    actual = os.getpriority
    with background_threads(1) as background, monkeypatch.context() as patch:
        patch.setattr(os, "getpriority", lambda kind, thread: actual(kind, thread) or 15)
        background.submit(int).result()
        patch.undo()
        assert niceness(background) == MAX_NICENESS
