"""`python -m benchmarks.queue`: what needs a GPU, in order of worth, for a number of seconds (`make gpu`).

Each job is a benchmark in a process of its own, which continues its record and its trainings, so that nothing is
measured twice. A job whose record is complete is skipped, and a job that fails does not stop the next. SIGTERM, Ctrl-C
and the end of the time stop a job by SIGTERM.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from benchmarks.lib.record import RESULTS
from benchmarks.lib.render import benchmark_of
from benchmarks.lib.servers import ROOT
from model.errors import UserError
from model.training.device import choose_device

GRACE_S = 20.0
"""Time in which a stopped job writes its checkpoints before it is killed; kept free at the end."""
SHORTEST_S = 20.0
"""A job does not start with less time."""
DATA = "LONGDOC_DATA"


@dataclass(frozen=True)
class Job:
    """A benchmark with its arguments."""

    name: str
    content: str
    """What it measures or trains."""
    estimate_s: int
    """Time for all of it on one H100 or H200."""
    limit_s: int
    """Maximum time at once."""
    program: str
    """Module of the benchmark."""
    arguments: tuple[str, ...]
    toy: tuple[str, ...]
    """Arguments that try it within seconds on a CPU."""
    data: tuple[str, ...] = ()
    """Files that it needs in the folder of the data sets, except at toy scale."""


def arena(name: str, content: str, estimate_s: int, columns: str, rows: str, data: tuple[str, ...]) -> Job:
    """A job of `benchmarks.papers.lra`: three seeds, three runs side by side. Columns and rows are separated by |."""
    all_columns, all_rows = columns.split("|"), rows.split("|")
    return Job(
        name,
        content,
        estimate_s,
        limit_s=3600,
        program="benchmarks.papers.lra",
        arguments=("--scale", "gpu", "--jobs", "3", "--columns", *all_columns, "--rows", *all_rows),
        toy=("--scale", "toy", "--seeds", "1", "--columns", all_columns[-1], "--rows", all_rows[0]),
        data=data,
    )


IMDB = ("imdb_labelled.jsonl.xz",)
CIFAR = ("cifar10_gray_from_jpeg_train.bin.xz", "cifar10_gray_from_jpeg_test.bin.xz")
AAN = ("aan_retrieval_docs.jsonl.xz", "aan_retrieval_pairs.jsonl.xz")
JOBS = (
    Job(
        "serving",
        "the exports in both formats, the service",
        estimate_s=180,
        limit_s=240,
        program="benchmarks.serving.gpu",
        arguments=("--device", "{device}"),
        toy=("--device", "{device}", "--parts", "models", "--models", "exchange", "ili", "--batch-seconds", "0"),
    ),
    arena("text", "Text, with the curve of Figure 3", 840, "text", "s3, as published", IMDB),
    arena("text-others", "Text with other attentions", 2400, "text", "dba|softmax|skyformer", IMDB),
    Job(
        "text-rates",
        "Text, length-aware, at three learning rates",
        estimate_s=300,
        limit_s=3600,
        program="benchmarks.papers.lra_rates",
        arguments=("--seeds", "1", "--jobs", "3"),
        toy=("--scale", "toy", "--seeds", "1", "--rows", "1e-4"),
        data=IMDB,
    ),
    Job(
        "bytes",
        "`imdb-bytes`, three seeds",
        estimate_s=1500,
        limit_s=3600,
        program="benchmarks.models.bytes",
        arguments=("--cases", "S3Attention"),
        toy=("--toy",),
        data=(*IMDB, "imdb_unsup.jsonl.xz"),
    ),
    Job(
        "speed",
        "speed and memory of every attention",
        estimate_s=240,
        limit_s=600,
        program="benchmarks.papers.attention_speed_gpu",
        arguments=(),
        toy=("--rows", "s3", "--training", "--inference", "32", "64", "--batch", "2", "--rounds", "1"),
    ),
    arena(
        "other-tasks", "ListOps, Image and Retrieval", 2200, "listops|image|retrieval", "s3, as published", CIFAR + AAN
    ),
)
"""All jobs, in order of worth. Trainings but `bytes` are those of Table 8 of the S3Attention paper."""


class Queue:
    """Runs jobs one after the other until the time ends or `stop` is called."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.until = time.monotonic() + args.budget
        self.is_stopped = False
        self.has_failed = False

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Stop the running job and start no other; a signal handler."""
        self.is_stopped = True

    def run(self, jobs: Sequence[Job]) -> None:
        """Run what is missing of each job, as far as the time allows."""
        for job in jobs:
            if self.is_stopped:
                return
            try:
                outcome = self._run(job)
            except Exception as error:  # the next job may succeed
                self.has_failed = True
                outcome = f"failed: {type(error).__name__}: {error}"
            print(f"queue: {job.name}: {outcome}", flush=True)

    def _run(self, job: Job) -> str:
        """Run a job unless it is complete, lacks its data or has no time left; returns what became of it."""
        arguments, left = self._arguments(job), self.until - time.monotonic() - GRACE_S
        missing = self._missing(job, arguments)
        if not missing:
            return "complete"
        if absent := self._absent(job):
            return f"not started: {DATA} has no {absent}"
        if left < SHORTEST_S:
            return f"not started: {max(0, left):.0f} s left; missing: {', '.join(missing)}"
        print(f"queue: {job.name}: {len(missing)} parts, about {job.estimate_s} s; {left:.0f} s left", flush=True)
        started = time.monotonic()
        code, is_ended = self._finish(job, arguments, min(left, job.limit_s))
        seconds, missing = time.monotonic() - started, self._missing(job, arguments)
        if is_ended and code:
            self.has_failed = True
            return f"failed after {seconds:.0f} s, exit code {code}"
        return f"{seconds:.0f} s; missing: {', '.join(missing)}" if missing else f"complete after {seconds:.0f} s"

    def _arguments(self, job: Job) -> list[str]:
        """Command-line arguments of the job's benchmark."""
        chosen = job.toy if self.args.scale == "toy" else job.arguments
        folders = ["--out", str(self.args.out)]
        if hasattr(benchmark_of(job.program).parse([]), "runs"):
            folders += ["--runs", str(self.args.runs)]
        return [*(word.format(device=self.args.device) for word in chosen), *folders]

    def _missing(self, job: Job, arguments: Sequence[str]) -> Sequence[str]:
        """Parts that the job's record lacks."""
        benchmark = benchmark_of(job.program)
        assert benchmark.missing is not None
        return benchmark.missing(benchmark.parse(arguments))

    def _absent(self, job: Job) -> str:
        """Name of a file that the job needs and the folder of the data sets lacks; empty if there is none."""
        folder = Path(os.environ.get(DATA, "data"))
        needed = () if self.args.scale == "toy" else job.data
        return next((name for name in needed if not (folder / name).is_file()), "")

    def _finish(self, job: Job, arguments: Sequence[str], limit_s: float) -> tuple[int, bool]:
        """Run a job for some time at most; returns its exit code, and whether it has ended by itself."""
        until = time.monotonic() + limit_s
        with subprocess.Popen(
            [sys.executable, "-m", job.program, *arguments], cwd=ROOT, start_new_session=True
        ) as process:
            try:
                while process.poll() is None and not self.is_stopped and time.monotonic() < until:
                    time.sleep(0.1)
                if (code := process.poll()) is not None:
                    return code, True
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # whatever is left of it
        return process.returncode, False


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [job.name for job in JOBS]
    parser.add_argument(
        "names", nargs="*", choices=[[], *names], metavar="JOB", help=f"default: all ({', '.join(names)})"
    )
    parser.add_argument("--budget", type=float, default=520, help="seconds (default: %(default)s)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="default: %(default)s")
    parser.add_argument("--scale", choices=["full", "toy"], help="default: toy on a CPU")
    parser.add_argument("--out", type=Path, help="folder of the results (default: that of the benchmarks; runs/toy)")
    parser.add_argument("--runs", type=Path, default=Path("runs/gpu"), help="folder of unfinished trainings")
    args = parser.parse_args(arguments)
    args.scale = args.scale or ("toy" if args.device == "cpu" else "full")
    args.out = (args.out or (Path("runs/toy") if args.scale == "toy" else RESULTS)).absolute()
    args.runs = args.runs.absolute()
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs; returns 0, 1 if one has failed, 2 without the device, 143 if the queue was stopped."""
    args = parse(arguments)
    try:
        choose_device(args.device)
    except UserError as error:
        print(f"error: {error}; --device cpu tries the queue", file=sys.stderr)
        return 2
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    queue = Queue(args)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, queue.stop)
    queue.run([job for job in JOBS if not args.names or job.name in args.names])
    return 128 + signal.SIGTERM if queue.is_stopped else int(queue.has_failed)


if __name__ == "__main__":
    sys.exit(main())
