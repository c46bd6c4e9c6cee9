"""Metrics of several processes that share a folder, as prometheus_client combines them.

Several workers, or the replicas on a node of a Ray cluster, share a folder. Each worker keeps its values in files
there, and the worker that gets a scrape aggregates those of all. The names of the files hold the worker's number, not
its process id: a restarted worker continues the counters of the one before it. An inherited PROMETHEUS_MULTIPROC_DIR is
ignored: the folder may be missing, or hold counters of other programs and of earlier runs.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from typing_extensions import override

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable in which prometheus_client looks up the folder of shared metrics; set by `set_worker` alone."""
RESERVED_BYTES = {"counter": 2**16, "histogram": 2**18} | {f"gauge_live{mode}": 2**16 for mode in ("sum", "max", "min")}
"""Type of a metric -> bytes reserved for a worker's values. The files are mapped into memory: if the disk were full,
the first write to a page would end the process with SIGBUS."""


def set_worker(folder: Path, index: int) -> None:
    """Make this process the worker with that number; call it before the first metric is created.

    Raises: OSError that names the folder, if the disk is full.
    """
    try:
        (folder / f"worker-{index}").write_text(str(os.getpid()))
        for kind, size in RESERVED_BYTES.items():
            with (folder / f"{kind}_{index}.db").open("ab") as stream:
                stream.write(bytes(max(0, size - stream.tell())))
    except OSError as error:
        raise OSError(f"cannot keep metrics in {folder}: {error.strerror}") from None
    os.environ[SHARED] = str(folder)
    # prometheus_client documents no way to name the files by anything but the process id
    values.ValueClass = values.MultiProcessValue(lambda: index)  # type: ignore[no-untyped-call]


def remove_gauges(folder: Path, index: int) -> None:
    """Remove the gauges of a worker that has ended, and its `longdoc_worker_*`; its counters stay."""
    (folder / f"worker-{index}").unlink(missing_ok=True)
    mark_process_dead(index, str(folder))  # type: ignore[no-untyped-call]


def forget_worker() -> None:
    """Make metrics that are created from now on belong to this process alone."""
    values.ValueClass = values.MutexValue


class SharedMetricsCollector(MultiProcessCollector):
    """Metrics of all workers, without the series of removed models.

    Args:
        registry: where the collector is registered.
        folder: folder that the workers share.
        labels: added to every sample.

    """

    def __init__(self, registry: CollectorRegistry, folder: Path, labels: Mapping[str, str]) -> None:
        self._labels = labels
        super().__init__(registry, str(folder))  # type: ignore[no-untyped-call]

    @override
    def collect(self) -> Iterable[Metric]:
        """Families with their samples."""
        for family in super().collect():  # type: ignore[no-untyped-call]
            family.samples = [
                sample._replace(labels={**sample.labels, **self._labels})
                for sample in family.samples
                if family.type != "gauge" or math.isfinite(sample.value)
            ]
            if family.samples:
                yield family


class WorkersCollector(Collector):
    """`process_*` of each worker, under the name `longdoc_worker_*`; arguments as those of `SharedMetricsCollector`."""

    def __init__(self, folder: Path, labels: Mapping[str, str]) -> None:
        self._folder = folder
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Families with one sample per worker."""
        families: dict[str, Metric] = {}
        for path in sorted(self._folder.glob("worker-*")):
            try:
                pid = int(path.read_text() or 0)  # empty while the worker writes it
            except FileNotFoundError:  # the worker has just ended
                continue
            for found in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                name = found.name.replace("process", "longdoc_worker", 1)
                family = families.setdefault(name, Metric(name, found.documentation, found.type))
                for sample in found.samples:
                    labels = {"worker": path.name.removeprefix("worker-"), **self._labels}
                    family.add_sample(sample.name.replace("process", "longdoc_worker", 1), labels, sample.value)
        yield from families.values()
