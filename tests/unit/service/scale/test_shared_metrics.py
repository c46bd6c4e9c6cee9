"""Replicas that share a folder: their counters are summed and continued, their gauges end with them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.scale.shared_metrics import SharedMetrics
from tests.support.paths import ROOT

REPLICA = """
import sys
from pathlib import Path
from service.metrics import Metrics
from service.scale.shared_metrics import SharedMetrics

shared = SharedMetrics(Path(sys.argv[1]))
metrics = Metrics(shared.folder, "this node")
requests, in_flight = metrics.http_requests.labels("/", "GET", 200), metrics.in_flight.labels("m")
for line in sys.stdin:
    if line == "count\\n":
        requests.inc()
        in_flight.inc()
        print(flush=True)
    else:
        shared.remove_ended()
        print(metrics.expose().decode() + "end", flush=True)
"""
COUNTER, GAUGE, PROCESS = "longdoc_http_requests_total", "longdoc_requests_in_flight", "longdoc_worker_open_fds"


class Replica:
    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", REPLICA, str(folder)],
            cwd=ROOT, env=dict(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, command: str, end: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        lines = list[str]()
        while not lines or lines[-1] != end:
            lines.append(self.process.stdout.readline())
            assert lines[-1], "the replica ended"
        return "".join(lines[:-1])

    def count(self) -> None:
        """Count a request that stays in flight."""
        self.ask("count", "\n")

    def shown(self) -> dict[str, list[float]]:
        """Values of COUNTER, GAUGE and PROCESS; each sample has the label of the node."""
        found: dict[str, list[float]] = {COUNTER: [], GAUGE: [], PROCESS: []}
        for family in text_string_to_metric_families(self.ask("expose", "end\n")):
            for sample in family.samples:
                assert sample.labels.get("node") == "this node" or family.name == "python_info", sample
                found.setdefault(sample.name, []).append(sample.value)
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def replicas(folder: Path, count: int) -> Iterator[list[Replica]]:
    with ExitStack() as stack:
        started = [Replica(folder) for _ in range(count)]
        for replica in started:
            stack.callback(replica.kill)
            replica.count()
        yield started


def test_counters_and_gauges_of_replicas_are_summed(tmp_path: Path) -> None:
    with replicas(tmp_path / "new" / "folder", 3) as started:
        for replica in started:
            found = replica.shown()
            assert (found[COUNTER], found[GAUGE], len(found[PROCESS])) == ([3], [3], 3)
            assert not [name for name in found if name.startswith("process_")], "the parent is a process of Ray"


def test_ended_replica_keeps_its_counters_and_not_its_gauges(tmp_path: Path) -> None:
    with replicas(tmp_path, 2) as (first, second):
        first.kill()
        found = second.shown()
        assert (found[COUNTER], found[GAUGE], len(found[PROCESS])) == ([2], [1], 1)
        with replicas(tmp_path, 1) as (third,):
            found = third.shown()
            assert (found[COUNTER], found[GAUGE], len(found[PROCESS])) == ([3], [2], 2)
            numbers = sorted(path.name for path in tmp_path.glob("counter_*"))
            assert numbers == ["counter_0.db", "counter_1.db"], "the new replica has the number of the ended one"


def test_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        SharedMetrics(tmp_path / "file")
