"""The service with batches and a clock that the test controls.

`tests.support.server.ControlledServer` runs it as `python -m tests.support.controlled DESCRIPTOR [FLAGS]`. Each line on
the socket DESCRIPTOR is a command; the reply is sent once the command has taken effect:

- `hold LANE...`: batches in these lanes that start from now on wait;
- `release`: they continue;
- `advance SECONDS`: the clock of the event loop jumps ahead, and timers that are due fire.

A batch that contains the text of a fault raises that fault. Deadlines are hours away, a batch may take an hour, and
batches are as large as the limits allow however long they take: results do not depend on the speed of the machine.
Scrapes of metrics do not wait for each other, because tests ask for them again and again.
"""

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, get_args
from unittest.mock import patch

import uvloop

from artifact.arrays import Floats
from artifact.loading import LoadedModel
from service import metrics, server
from service.__main__ import main
from service.batching import batcher, cost
from tests.support.server import Lane
from tests.support.waiting import PATIENCE_S

STUCK_S = 3600.0
"""A batch that computes for longer counts as stuck."""
TICK_S = 900.0
"""Unit in which that time is counted: a jump of the clock counts as one tick at most."""
DEADLINE_S = 36_000.0
"""Longer than STUCK_S: a stuck batch fails its requests before their deadline."""
LANES = get_args(Lane)
"""How the names of the threads that compute batches begin."""
LAST_REQUESTS_S = 60.0
"""Time for the first request on a connection that was accepted just before listening ended."""
FAULTS: dict[bytes, type[BaseException]] = {
    b"please exit": SystemExit,
    b"please fail": RuntimeError,
    b"no memory": MemoryError,
}


class ControlledLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can jump; uvloop's cannot."""

    ahead_s = 0.0

    def time(self) -> float:
        """Return the time in seconds, jumps included."""
        return super().time() + self.ahead_s

    def advance(self, seconds: float) -> None:
        """Make the clock jump ahead."""
        self.ahead_s += seconds


class Control:
    """Carries out the commands that arrive on a socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._gates = {lane: threading.Event() for lane in LANES}
        self._release()
        self._loop: ControlledLoop | None = None

    def new_event_loop(self) -> ControlledLoop:
        """Create the server's loop."""
        self._loop = ControlledLoop()
        return self._loop

    def wrap(self, run: Callable[[LoadedModel, Sequence[bytes], int], Floats]) -> Any:
        """Wrap the function that computes batches: batches wait at the gate and raise the fault that they contain."""

        def controlled_run(model: LoadedModel, rows: Sequence[bytes], bucket: int) -> Floats:
            lane = next(lane for lane in LANES if threading.current_thread().name.startswith(lane))
            self._gates[lane].wait()
            for text, fault in FAULTS.items():
                if any(text in row for row in rows):
                    raise fault
            return run(model, rows, bucket)

        return controlled_run

    def obey(self) -> None:
        """Carry out commands until the socket closes, then release all batches."""
        commands: dict[str, Callable[..., None]] = {
            "hold": self._hold,
            "release": self._release,
            "advance": self._advance,
        }
        try:
            with self._channel.makefile("r") as lines:
                for line in lines:
                    command, *arguments = line.split()
                    commands[command](*arguments)
                    self._channel.sendall(b"done\n")
        finally:
            self._release()

    def _hold(self, *lanes: str) -> None:
        for lane in lanes:
            self._gates[lane].clear()

    def _release(self) -> None:
        for gate in self._gates.values():
            gate.set()

    def _advance(self, seconds: str) -> None:
        loop = self._loop
        assert loop is not None
        done = threading.Event()

        def advance() -> None:
            loop.advance(float(seconds))
            loop.call_soon(loop.call_soon, done.set)  # timers fire in the iteration between the two

        loop.call_soon_threadsafe(advance)
        done.wait(PATIENCE_S)


def run(descriptor: int, flags: Sequence[str]) -> int:
    """Serve under control and return the exit code."""
    control = Control(socket.socket(fileno=descriptor))
    threading.Thread(target=control.obey, daemon=True).start()
    with (
        patch.object(LoadedModel, "run", control.wrap(LoadedModel.run)),
        patch.object(batcher, "STUCK_S", STUCK_S),
        patch.object(batcher, "TICK_S", TICK_S),
        patch.object(cost, "LONGEST_BATCH_S", STUCK_S),
        patch.object(cost, "SHORTEST_BATCH_S", STUCK_S),
        patch.object(server, "LAST_REQUESTS_S", LAST_REQUESTS_S),
        patch.object(metrics, "EXPOSE_S", 0.0),
        patch.object(uvloop, "new_event_loop", control.new_event_loop),
    ):
        return main(["--deadline-s", str(DEADLINE_S), *flags])


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
