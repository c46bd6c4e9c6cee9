"""Forecasts of slow forecasters, kept in a file from one run to the next."""

import hashlib
import sqlite3
import time
from pathlib import Path

import numpy as np

from artifact.arrays import Doubles
from benchmarks.models.any_series.forecasters import LEVELS, Forecaster

TABLE = "CREATE TABLE IF NOT EXISTS forecasts (key TEXT PRIMARY KEY, forecaster TEXT, seconds REAL, quantiles BLOB)"


class Cache:
    """A SQLite file of forecasts. A forecast is found by its input, so that an interrupted benchmark goes on."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute(TABLE)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def wrap(self, name: str, forecaster: Forecaster) -> Forecaster:
        """The forecaster, which computes only what the file lacks. `name` tells forecasters and versions apart."""

        def forecast(past: Doubles, season: int, horizon: int) -> Doubles:
            key = hashlib.sha256(f"{name}/{season}/{horizon}/".encode() + past.tobytes()).hexdigest()
            row = self._file.execute("SELECT quantiles FROM forecasts WHERE key = ?", (key,)).fetchone()
            if row is not None:
                return np.frombuffer(row[0]).reshape(horizon, len(LEVELS))
            started = time.process_time()
            quantiles = forecaster(past, season, horizon)
            seconds = time.process_time() - started
            self._file.execute("INSERT INTO forecasts VALUES (?, ?, ?, ?)", (key, name, seconds, quantiles.tobytes()))
            return quantiles

        return forecast

    def seconds(self, name: str) -> tuple[int, float]:
        """Number of forecasts of a forecaster, and their mean processor time; (0, 0.0) if there are none."""
        counted = "SELECT count(*), coalesce(avg(seconds), 0.0) FROM forecasts WHERE forecaster = ?"
        ((count, mean),) = self._file.execute(counted, (name,))
        return count, mean
