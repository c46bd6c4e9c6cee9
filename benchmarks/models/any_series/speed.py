"""Time that forecasts of any series take: of a processor, and of a server over a loopback socket."""

import json
import os
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

import artifact
from artifact.provenance import git_revision
from artifact.univariate.features import CONTEXT
from benchmarks.lib.interleave import interleave, timed
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
MEASURED = {
    "one": (f"a series of {CONTEXT} values", "processor"),
    "batch": (f"{BATCH} series of {CONTEXT} values at once, each", "processor"),
    "request": (f"a series of {CONTEXT} values over HTTP", "wall"),
    "competition": ("the {series:,} series of M3 over HTTP, {requests} requests", "wall"),
}
"""What is measured -> its description, and the clock."""


def speed(export: Path, series: Sequence[Series]) -> Data:
    """Seconds of each round of what is measured, in turns.

    Args:
        export: the export, in the folder of exports.
        series: those of M3, whose forecasts are asked for in one request for each frequency and horizon.

    """
    model: Any = artifact.load(export, device="cpu")
    walk = (100 + np.random.default_rng(0).standard_normal(CONTEXT).cumsum()).tolist()
    one = {"season": SEASON, "horizon": STEPS, "quantiles": QUANTILES}
    bodies = requests_of(series)
    with service("--exports", str(export.parent), "--models", export.name) as server:
        turns: dict[str, Callable[[], float]] = {
            "one": lambda: timed(lambda: model.forecast(walk, **one), time.process_time),
            "batch": lambda: timed(lambda: model.forecast([walk] * BATCH, **one), time.process_time) / BATCH,
            "request": lambda: timed(lambda: ask(server.url, {"series": walk, **one})),
            "competition": lambda: timed(lambda: [ask(server.url, body) for body in bodies]),
        }
        seconds = interleave(turns, ROUNDS, warm_up=WARM_UP)
    size = {"series": len(series), "requests": len(bodies)}
    return {"revision": git_revision(), "load_after": os.getloadavg()[0], **size, "seconds": seconds}


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
