"""`python -m benchmarks.serving.ledger`: where the processor time of a request goes, in microseconds per stage.

A load of one size and number of connections is sent to a server on one core, from another core. The processor time of
each thread of the server is measured first. Then py-spy samples the stacks of the threads: each sample counts for the
stage of its innermost frame that belongs to one, and divides the time of its thread. py-spy needs the permission to
read the memory of another process.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import orjson

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.processes import fields
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import PACKAGES, Server, document, service
from benchmarks.lib.table import table

CASES = [(size, connections) for size in (256, 4096) for connections in (1, 32)]
"""(bytes of a document, connections)."""
RATE = 500
"""Samples of each thread per second."""
IDLE = ("_worker (", "select (")
"""Innermost frames of threads that wait for work."""
STAGES = {
    "ONNX Runtime": ("onnxruntime/",),
    "metrics": ("service/metrics", "service/statistics", "prometheus_client/"),
    "JSON of the response": ("service/wire/responses", "starlette/responses", "orjson"),
    "validation": ("pydantic/", "service/wire/requests", "service/wire/schemas", "service/parser"),
    "hand-over to threads and back": ("concurrent/futures", "service/batching/lane"),
    "queue, batches": ("service/batching/",),
    "rows and answers": ("artifact/", "service/engine/served"),
    "parsing and writing HTTP": ("service/http/protocol", "uvicorn/", "httptools/"),
    "routing, dependencies, headers": (
        "service/http/", "service/wire/", "service/routes/", "service/engine/", "service/offload",
        "fastapi/", "starlette/",
    ),
}  # fmt: skip
"""Stage -> parts of the paths of its files. The first stage that has a frame's file is that of the frame."""
THREAD = re.compile(r"\((\d+)\)")
REST = "event loop, system calls"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement (default: %(default)s)")
    parser.add_argument("--model", default="imdb-s3", help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """For each case: processor time of a request in microseconds, requests per second, samples by stage."""
    cores = sorted(os.sched_getaffinity(0))
    found: Data = {"cases": {}}
    with service("--models", args.model, cores={cores[0]}) as target:
        os.sched_setaffinity(0, set(cores[1:]) or {cores[0]})
        for size, connections in CASES:
            body = orjson.dumps({"inputs": document(size).decode()})
            requests = [post(f"{target.url}/v1/classify", body, "application/json")]

            def load(seconds: float, requests: list[bytes] = requests, connections: int = connections) -> float:
                done = run(closed_loop(target.url, requests, connections=connections, seconds=seconds))
                assert set(done.statuses()) == {200}, done.statuses()
                return done.throughput * seconds

            load(1)  # warm up
            before = _thread_times(target)
            answered = load(args.seconds)
            after = _thread_times(target)
            used_us = {thread: 1e6 * (after[thread] - before.get(thread, 0.0)) / answered for thread in after}
            samples = _stages(_sample(target, args.seconds, load))
            stages = dict.fromkeys((*STAGES, REST), 0.0)
            for thread, counts in samples.items():
                for stage, count in counts.items():
                    stages[stage] += used_us.get(thread, 0.0) * count / counts.total()
            found["cases"][f"{size} bytes, {connections} connections"] = {
                "cpu_us": sum(used_us.values()),
                "per_s": answered / args.seconds,
                "stages_us": stages,
            }
            yield found


def _thread_times(target: Server) -> dict[int, float]:
    """Processor time of each thread of a server, in seconds, by its id."""
    found = {}
    for folder in Path(f"/proc/{target.process.pid}/task").iterdir():
        user, system = fields(folder / "stat")[11:13]
        found[int(folder.name)] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return found


def _sample(target: Server, seconds: float, load: Callable[[float], object]) -> list[str]:
    """Stacks that py-spy samples while a load runs, with their numbers, as `frame;frame;... count`."""
    with tempfile.NamedTemporaryFile("r", suffix=".txt") as output:
        command = [str(Path(sys.executable).with_name("py-spy")), "record", "--rate", str(RATE), "--format", "raw"]
        command += ["--threads", "--full-filenames", "--duration", str(round(seconds)), "--output", output.name]
        with subprocess.Popen([*command, "--pid", str(target.process.pid)], stdout=subprocess.DEVNULL) as sampler:
            load(seconds + 2)
        if sampler.returncode:
            raise RuntimeError(f"py-spy ended with code {sampler.returncode}")
        return output.read().splitlines()


def _stages(stacks: Iterable[str]) -> dict[int, Counter[str]]:
    """Number of samples by thread and stage."""
    found = defaultdict[int, Counter[str]](Counter)
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if frames and not frames[-1].startswith(IDLE):
            found[int(THREAD.findall(thread)[0])][stage_of(reversed(frames))] += int(count)
    return found


def stage_of(frames: Iterable[str]) -> str:
    """Stage of a stack, given its frames from the innermost one."""
    for frame in frames:
        for stage, parts in STAGES.items():
            if any(part in frame for part in parts):
                return stage
    return REST


def report(record: Record) -> str:
    """Table of microseconds by stage, a column for each case."""
    cases = record.data["cases"]

    def row(name: str, values: Callable[[Data], float]) -> list[str]:
        return [name, *(f"{values(case):.0f}" for case in cases.values())]

    rows = [[stage, *(f"{case['stages_us'][stage]:.0f}" for case in cases.values())] for stage in (*STAGES, REST)]
    rows.append(["**all**", *(f"**{case['cpu_us']:.0f}**" for case in cases.values())])
    rows.append(row("all without ONNX Runtime", lambda case: case["cpu_us"] - case["stages_us"]["ONNX Runtime"]))
    rows.append(row("requests/s", lambda case: case["per_s"]))
    return (
        f"`POST /v1/classify` with JSON to {record.settings['model']}: microseconds of processor time of the server on "
        f"one core for each request. The load has another core.\n\n{table(['stage', *cases], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.ledger",
    title="Ledger of a request",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=PACKAGES,
)

if __name__ == "__main__":
    BENCHMARK.main()
