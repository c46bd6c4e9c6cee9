"""`longdoc-serve batch` on a Ray cluster of two nodes: each row once, whatever is killed; the answers of the server."""

import contextlib
import csv
import gzip
import json
import lzma
import os
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import pyarrow
import pytest
from pyarrow import parquet

import artifact
from artifact.exports import version_folder
from artifact.tasks.forecasting import ForecasterManifest
from benchmarks.lib.processes import descendants
from tests.support.offline import OfflineForecaster, same_score
from tests.support.paths import EXPORTS, ROOT
from tests.support.ray_cluster import PYTHON
from tests.support.ray_commands import start, title
from tests.support.server import Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

CLASSIFIER, MATCHER, FORECASTER = EXPORTS / "imdb-s3", EXPORTS / "aan", EXPORTS / "ettm2"
REVIEW = (ROOT / "docs" / "review.txt").read_text()
TEXTS = [REVIEW, "A short one.", "long " * 2000, "Ünïcödé, with a comma and\na line break"]
ROWS = 7000
"""Rows of each file of the runs that are interrupted: four parts."""
TOTAL_PARTS = 8
ENDED_S = 300
MILLION = int(os.environ.get("BATCH_ROWS", "1000000"))
"""Rows of the slow test."""
MEMORY = 2**29
"""Bound on the private memory of each process in the slow test, in bytes."""
S3 = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


class Cluster:
    """Two nodes with a core each; `tests/support/batch_cluster.py` runs them."""

    def __init__(self, log: Path) -> None:
        with log.open("wb") as stream:
            self.process = start(
                "-m", "tests.support.batch_cluster", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream
            )
        self._log = log
        self.address = self._next()

    def _next(self) -> str:
        """The next line. Raises: AssertionError with the log if the program ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("cluster: "):
                return line.removeprefix("cluster: ").strip()
        self.process.communicate(timeout=ENDED_S)
        raise AssertionError(self._log.read_text())

    def kill_node(self) -> None:
        """Kill all processes of the second node."""
        assert self.process.stdin is not None
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        assert self._next() == "killed"

    def workers(self) -> list[int]:
        """Processes that compute a part."""
        return [pid for pid in descendants(self.process.pid) if title(pid) == "ray::MapBatches(_compute)"]

    def pause(self, *paused: int) -> int:
        """Pause a process that computes a part, besides those already paused; the batch cannot end before it goes on.

        A node has one core, so that the process is on another node than the paused ones.
        """
        while True:
            pid = wait_until(lambda: next((pid for pid in self.workers() if pid not in paused), None))
            os.kill(pid, signal.SIGSTOP)
            if pid in self.workers():
                return pid
            os.kill(pid, signal.SIGCONT)  # it completed its part before it was stopped

    def start(self, *arguments: object, folder: Path = ROOT) -> subprocess.Popen[str]:
        """Start a batch in a folder."""
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder}
        return start("-m", "service", "batch", *arguments, address=self.address, **options)

    def run(self, *arguments: object, code: int = 0) -> str:
        """Run a batch to its end; returns standard output and error."""
        return finished(self.start(*arguments), code)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=ENDED_S)


def finished(process: subprocess.Popen[str], code: int) -> str:
    written = "".join(process.communicate(timeout=ENDED_S))
    assert process.returncode == code, written
    return written


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in S3.items():
            patch.setenv(name, value)
        with Cluster(tmp_path_factory.mktemp("ray") / "log") as cluster:
            yield cluster


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read_jsonl(folder: Path) -> list[dict[str, Any]]:
    """All rows of the parts of an input, in the order of the parts."""
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rows_of_all_formats_get_the_answers_of_predict(cluster: Cluster, tmp_path: Path) -> None:
    """Row 3 is empty in every file, and row 5 has no text where the format allows it."""
    texts = [f"{text} {number}" for number in range(600) for text in TEXTS[1::2]]
    texts[3] = ""
    texts[5:6] = TEXTS
    broken = len(texts)
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)] + ["{"]
    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    with lzma.open(tmp_path / "in" / "b.csv.xz", "wt", newline="") as stream:
        csv.writer(stream).writerows([["id", "text"], *enumerate(texts), ["one cell"]])
    table = pyarrow.table({"id": range(broken + 1), "text": [*texts, None]})
    parquet.write_table(table, tmp_path / "in" / "c.parquet", row_group_size=500)
    (tmp_path / "in" / "empty.jsonl").touch()
    process = cluster.start(CLASSIFIER, "--input", "in/*/*.gz", "in/*.*", "--output", "out", folder=tmp_path)
    finished(process, 1)
    expected = artifact.load(CLASSIFIER).classify([text or "?" for text in texts])
    names = ["b.csv.xz", "c.parquet", "deep/a.jsonl.gz"]
    for name in names:
        found = read_jsonl(tmp_path / "out" / "results" / name)
        assert [row["row"] for row in found] == list(range(broken + 1)), name
        for number, (row, answer) in enumerate(zip(found, expected, strict=False)):
            if number == 3:
                assert row["error"]["code"] == "invalid_input"
            else:
                assert (row["label"], row["coverage"]) == (answer["label"], answer["coverage"])
                assert same_score(row["score"], answer["score"])
        assert set(found[broken]) == {"row", "error"}
    errors = [json.loads(line) for line in (tmp_path / "out" / "errors.jsonl").read_text().splitlines()]
    assert [error["row"] for error in errors] == [3, broken] * 3
    assert errors[-1]["source"] == f"{folder}/a.jsonl.gz:{broken + 1}"
    summary = json.loads((tmp_path / "out" / "_SUCCESS.json").read_text())
    assert (summary["rows"], summary["bad_rows"]) == (3 * broken + 3, 6)
    wanted = {**dict.fromkeys(names, broken + 1), "empty.jsonl": 0}
    assert {entry["results"]: entry["rows"] for entry in summary["inputs"]} == {
        f"results/{name}": count for name, count in wanted.items()
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("plain") / "log", "--device", "cpu") as server:
        yield server


def results_of(
    cluster: Cluster, export: Path, rows: Sequence[object], folder: Path, *options: object
) -> list[dict[str, Any]]:
    folder.mkdir()
    path = write_jsonl(folder / "rows.jsonl", rows)
    cluster.run(export, "--input", path, "--output", folder / "out", *options)
    return read_jsonl(folder / "out" / "results" / "rows.jsonl")


def test_all_tasks_get_the_answers_of_the_server(cluster: Cluster, server: Server, tmp_path: Path) -> None:
    forecaster = OfflineForecaster(version_folder(FORECASTER))
    assert isinstance(forecaster.manifest, ForecasterManifest)
    channels = forecaster.manifest.channels
    series = [forecaster.series(forecaster.manifest.context_length, seed) for seed in range(2)]
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:

        def post(path: str, body: object) -> Any:
            response = client.post(path, json=body)
            assert response.status_code == 200, response.text
            return response.json()

        options = ("--on-overflow", "head", "--top", 1, "--detail", "--text-column", "body")
        found = results_of(cluster, CLASSIFIER, [{"body": text} for text in TEXTS], tmp_path / "classify", *options)
        body = {"inputs": TEXTS, "on_overflow": "head", "top_k": 1, "detail": True}
        for row, answer in zip(found, post("/v1/classify", body)["results"], strict=True):
            assert [len(row[name]) for name in ("scores", "windows")] == [1, len(answer["windows"])]
            assert row["coverage"] == answer["coverage"]
            assert same_score(row["score"], answer["score"])

        pairs = [(a, b) for a in TEXTS for b in TEXTS]
        found = results_of(cluster, MATCHER, [{"a": a, "b": b} for a, b in pairs], tmp_path / "score")
        for row, answer in zip(found, post("/v1/score", {"pairs": pairs})["results"], strict=True):
            assert same_score(row["score"], answer["score"])

        rows = [{"query": text, "documents": TEXTS} for text in TEXTS]
        found = results_of(cluster, MATCHER, rows, tmp_path / "rank", "--task", "rank", "--top", 2)
        for row, asked in zip(found, rows, strict=True):
            answer = post("/v1/rank", {**asked, "top_n": 2})
            assert [result["index"] for result in row["results"]] == [result["index"] for result in answer["results"]]

        given: list[dict[str, Any]] = [{"series": dict(zip(channels, series[0], strict=True))}, {"series": series[1]}]
        asked_for = ("--horizon", 5, "--quantiles", 0.1, 0.9)
        found = results_of(cluster, FORECASTER, given, tmp_path / "forecast", *asked_for)
        for row, series_of in zip(found, given, strict=True):
            body = {**series_of, "horizon": 5, "quantiles": [0.1, 0.9], "model": forecaster.manifest.name}
            answer = post("/v1/forecast", body)
            assert row["coverage"] == answer["coverage"]
            for ours, theirs in ((row["forecast"], answer["forecast"]), (row["quantiles"], answer["quantiles"])):
                assert list(ours) == list(theirs) if isinstance(ours, dict) else len(ours) == len(theirs)
            values = [row["forecast"], answer["forecast"]]
            both = [list(value.values()) if isinstance(value, dict) else value for value in values]
            assert forecaster.agree(*both)


class Uninterrupted:
    """Two files of short rows, some of them bad, and the output of a run without failures."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        for name in "ab":
            texts = ("" if number % 1000 == 10 else f"Film {name} {number} is good" for number in range(ROWS))
            write_jsonl(folder / f"{name}.jsonl", ({"text": text} for text in texts))
        self.arguments = (CLASSIFIER, "--input", folder / "*.jsonl", "--output")
        cluster.run(*self.arguments, folder / "out", code=1)
        self.output = contents(folder / "out")
        assert len(self.output) == TOTAL_PARTS + 3


@pytest.fixture(scope="module")
def uninterrupted(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    return Uninterrupted(tmp_path_factory.mktemp("whole"), cluster)


def end(pid: int) -> None:
    """Kill a paused process of a batch that has ended: it keeps its core otherwise."""
    with contextlib.suppress(ProcessLookupError):  # Ray ended it
        os.kill(pid, signal.SIGKILL)


def wait_for_parts(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until a number of parts are complete, while that of a paused process is not."""

    def are_complete() -> bool:
        assert process.poll() is None, process.communicate()
        return len(list(out.glob("results/*/part-*"))) >= count

    wait_until(are_complete)
    assert len(list(out.glob("results/*/part-*"))) < TOTAL_PARTS


def test_killed_process_and_node_lose_and_repeat_nothing(uninterrupted: Uninterrupted, tmp_path: Path) -> None:
    """In a cluster of its own: after a batch is killed, Ray Data reserves cores for it for some minutes."""
    out = tmp_path / "out"
    with Cluster(tmp_path / "log") as cluster:
        process = cluster.start(*uninterrupted.arguments, out)
        # One process after the other: one node could compute all parts before the other one has started a process.
        killed = cluster.pause()
        paused = cluster.pause(killed)
        os.kill(killed, signal.SIGKILL)
        cluster.kill_node()
        with contextlib.suppress(ProcessLookupError):  # killed with its node
            os.kill(paused, signal.SIGCONT)
        finished(process, 1)
    assert contents(out) == uninterrupted.output


def test_interrupted_run_continues(cluster: Cluster, uninterrupted: Uninterrupted, tmp_path: Path) -> None:
    """After Ctrl-C, and after the command is killed."""
    out = tmp_path / "out"
    # Tests that run in the background ignore the signal, and commands that they start would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = cluster.start(*uninterrupted.arguments, out)
    signal.signal(signal.SIGINT, before)
    paused = cluster.pause()
    wait_for_parts(out, 1, process)
    process.send_signal(signal.SIGINT)
    assert "interrupted; the same command continues" in finished(process, 130)
    end(paused)
    parts = {path: path.stat().st_mtime_ns for path in out.glob("results/*/part-*")}
    process = cluster.start(*uninterrupted.arguments, out)
    paused = cluster.pause()
    wait_for_parts(out, len(parts) + 1, process)
    process.kill()
    finished(process, -signal.SIGKILL)
    end(paused)
    assert not (out / "_SUCCESS.json").exists()
    cluster.run(*uninterrupted.arguments, out, code=1)
    assert contents(out) == uninterrupted.output
    assert {path: path.stat().st_mtime_ns for path in parts} == parts, "a complete part was written again"
    cluster.run(*uninterrupted.arguments, out, code=1)


def test_errors_are_one_line(cluster: Cluster, tmp_path: Path) -> None:
    path, out = write_jsonl(tmp_path / "in.jsonl", [{"text": "a"}]), tmp_path / "out"
    (tmp_path / "damaged.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 9)[:-9])
    cluster.run(CLASSIFIER, "--input", path, "--output", out)
    cases: list[tuple[Sequence[object], str]] = [
        (("--input", tmp_path / "*.csv", "--output", out), f"{tmp_path}/*.csv: there is no such file"),
        (("--input", path, "--output", out, "--top", 1), "was started with top = null, not 1"),
        (("--input", tmp_path / "damaged.jsonl.gz", "--output", tmp_path / "other"), "damaged.jsonl.gz: Compressed"),
        (("--input", path, "--output", tmp_path / "new", "--task", "rank"), "--task rank: imdb-s3 can classify"),
    ]
    for arguments, words in cases:
        lines = cluster.run(CLASSIFIER, *arguments, code=2).strip().splitlines()
        assert lines[-1].startswith("error: "), lines
        assert words in lines[-1]
        assert len(lines) == 1, lines


def test_inputs_and_output_in_an_object_store(cluster: Cluster, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("w+"))
        store = stack.enter_context(
            subprocess.Popen([PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=log, stderr=log)
        )
        stack.callback(store.terminate)

        def url() -> str:
            found = [word for word in (tmp_path / "log").read_text().split() if word.startswith("http://127.0.0.1:")]
            return found[0] if found else ""

        address = wait_until(url)
        client = stack.enter_context(httpx.Client(base_url=address, trust_env=False))
        client.put("/rows").raise_for_status()
        for name in "ab":
            lines = "".join(f'{{"text": "{name} {number}"}}\n' for number in range(20)) + "{\n"
            client.put(f"/rows/in/{name}.jsonl", content=lines.encode()).raise_for_status()
        options = f"?endpoint_override={address.removeprefix('http://')}&scheme=http&region=us-east-1"
        arguments = (CLASSIFIER, "--input", f"s3://rows/in/*.jsonl{options}", "--output", f"s3://rows/out{options}")
        cluster.run(*arguments, code=1)
        for name in "ab":
            rows = client.get(f"/rows/out/results/{name}.jsonl/part-000000.jsonl").raise_for_status().text.splitlines()
            assert [json.loads(row)["row"] for row in rows] == list(range(21))
        errors = client.get("/rows/out/errors.jsonl").raise_for_status().text.splitlines()
        assert [json.loads(error)["source"] for error in errors] == [f"s3://rows/in/{name}.jsonl:21" for name in "ab"]
        cluster.run(*arguments, code=1)
        client.put("/rows/in/c.jsonl", content=b"").raise_for_status()
        said = cluster.run(*arguments, code=2)
        assert "c.jsonl" in said
        assert "is new since the start" in said


class Memory(threading.Thread):
    """Records the largest private memory of each process of a command, by its title, in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.found = defaultdict[str, int](int)
        self._pid = pid
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.5):
            for pid in (self._pid, *descendants(self._pid)):
                name = "driver" if pid == self._pid else title(pid)
                with contextlib.suppress(OSError, StopIteration):
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                    kilobytes = next(line.split()[1] for line in lines if line.startswith("RssAnon:"))
                    self.found[name] = max(self.found[name], int(kilobytes) * 1024)

    def stop(self) -> dict[str, int]:
        """The memory of the driver and of the processes with tasks."""
        self._stopped.set()
        self.join()
        return {name: size for name, size in self.found.items() if name == "driver" or name.startswith("ray::")}


@pytest.mark.slow
def test_million_rows_are_computed_in_bounded_memory(tmp_path: Path) -> None:
    half = MILLION // 2
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", compresslevel=1) as stream:
        stream.writelines(f'{{"text": "Film {number} is good"}}\n' for number in range(half))
    schema = pyarrow.schema({"text": pyarrow.string()})
    with parquet.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        for first in range(half, MILLION, half):  # one large group of rows
            writer.write_table(
                pyarrow.table({"text": [f"Film {number} is dull" for number in range(first, first + half)]})
            )
    process = start("-m", "service", "batch", CLASSIFIER, "--input", tmp_path / "*.*", "--output", tmp_path / "out")
    memory = Memory(process.pid)
    memory.start()
    try:
        assert process.wait() == 0
    finally:
        largest = memory.stop()
    for name in ("a.jsonl.gz", "b.parquet"):
        count = 0
        for path in sorted((tmp_path / "out" / "results" / name).iterdir()):
            with path.open() as rows:
                for row in map(json.loads, rows):
                    assert row["row"] == count
                    assert row["coverage"]["bytes_total"] == len(f"Film {count + half * (name[0] == 'b')} is good")
                    count += 1
        assert count == half
    assert max(largest.values()) < MEMORY, largest
