"""Time that forecasts of any series take: of a processor, and of a server over a loopback socket."""

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

import artifact
from artifact.arrays import Doubles
from artifact.provenance import git_revision
from artifact.univariate.features import CONTEXT
from benchmarks.lib.interleave import interleave
from benchmarks.lib.processes import cpu_s, descendants
from benchmarks.lib.record import Data
from benchmarks.lib.servers import service
from benchmarks.models.any_series.series import Series

ROUNDS = 25
WARM_UP = 2
BATCH = 128
"""Series of a batch."""
STEPS = 24
SEASON = 12
FREQUENCIES = {"yearly": "1y", "quarterly": "1q", "monthly": "1mo"}
QUANTILES = (0.1, 0.9)
TIMEOUT_S = 60.0
"""Time limit of a request."""
IN_A_ROW = 20
"""Requests for a series in a round: the processor time of a process is counted in hundredths of a second."""
MEASURED = {
    "one": f"a series of {CONTEXT} values",
    "batch": f"{BATCH} series of {CONTEXT} values at once, each",
    "request": f"a series of {CONTEXT} values over HTTP",
    "competition": "the {series:,} series of M3 over HTTP, {requests} requests",
}
"""What is measured -> its description."""


def speed(export: Path, series: Sequence[Series]) -> Data:
    """Seconds of each round of what is measured, in turns: of the processor (of a server), and elapsed.

    Args:
        export: the export, in the folder of exports.
        series: those of M3, whose forecasts are asked for in one request for each frequency and horizon.

    """
    model: Any = artifact.load(export, device="cpu")
    walk = (100 + np.random.default_rng(0).standard_normal(CONTEXT).cumsum()).tolist()
    one = {"season": SEASON, "horizon": STEPS, "quantiles": QUANTILES}
    bodies = requests_of(series)
    with service("--exports", str(export.parent), "--models", export.name) as server:
        served = partial(processor_s, server.process.pid)

        def ask_all(bodies: Iterable[Data]) -> None:
            for body in bodies:
                ask(server.url, body)

        turns: dict[str, Callable[[], Doubles]] = {
            "one": lambda: seconds_of(lambda: model.forecast(walk, **one), time.process_time),
            "batch": lambda: seconds_of(lambda: model.forecast([walk] * BATCH, **one), time.process_time) / BATCH,
            "request": lambda: seconds_of(lambda: ask_all([{"series": walk, **one}] * IN_A_ROW), served) / IN_A_ROW,
            "competition": lambda: seconds_of(lambda: ask_all(bodies), served),
        }
        rounds = interleave(turns, ROUNDS, warm_up=WARM_UP)
    return {
        **{"revision": git_revision(), "load_after": os.getloadavg()[0]},
        **{"series": len(series), "requests": len(bodies)},
        "seconds": {name: [found.tolist() for found in each] for name, each in rounds.items()},
    }


def seconds_of(run: Callable[[], Any], processor: Callable[[], float]) -> Doubles:
    """Seconds of one call, (2,): by a clock of the processor, and elapsed."""
    before = np.array([processor(), time.perf_counter()])
    run()
    passed: Doubles = np.array([processor(), time.perf_counter()]) - before
    return passed


def processor_s(pid: int) -> float:
    """Processor time so far of a process and its descendants, in seconds."""
    return sum(map(cpu_s, (pid, *descendants(pid))))


def requests_of(series: Sequence[Series]) -> list[Data]:
    """The body of a request for each frequency and horizon."""
    kind: Callable[[Series], tuple[str, int]] = lambda one: (one.frequency, len(one.future))  # noqa: E731
    bodies = list[Data]()
    for (frequency, horizon), alike in groupby(sorted(series, key=kind), kind):
        step: Data = {"frequency": FREQUENCIES[frequency]} if frequency in FREQUENCIES else {"season": 1}
        values = {one.name: one.past.tolist() for one in alike}
        bodies.append({"series": values, "horizon": horizon, "quantiles": QUANTILES, **step})
    return bodies


def ask(url: str, body: Data) -> Any:
    """The response to a request for forecasts."""
    request = Request(f"{url}/v1/forecast", json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=TIMEOUT_S) as response:
        return json.load(response)
