"""The benchmark of GPUs: measurements on a CPU, and the report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifact.errors import BadExport
from artifact.exports import version_folder
from artifact.loading import LoadedModel, find_exports, load_export
from benchmarks.lib.record import Data, Record
from benchmarks.serving import gpu
from tests.support.paths import EXPORTS
from tests.support.records import expect_in_report

MODEL: Data = {
    "model": "documents@2",
    "left_to_cpu": {"Concat": 2, "Shape": 1},
    "load_s": {"onnx": 1.0},
    "device_mib": {"onnx": 300},
    "failures": {"torchscript": "documents/2: no module"},
    "batches": [
        {"on": on, "bucket": 256, "rows": rows, "ms": ms * rows}
        for on, ms in (("onnx, cuda", 1.0), (gpu.UNRECORDED, 2.0), ("onnx, cpu", 5.0))
        for rows in gpu.ROWS
    ],
}
FLOAT16: Data = {
    **MODEL,
    "model": "both@1",
    "failures": {},
    "batches": [{"on": "float16, cuda", "bucket": 256, "rows": 1, "ms": 0.5}],
}
CASE: Data = {
    "device": "cuda",
    "workers": 1,
    "bytes": 256,
    "clients": 4,
    "documents_per_second": 800.0,
    "statuses": {"200": 790, "429": 3},
    "latency_ms": [float(q) for q in range(101)],
}
PATHS: list[Data] = [
    {"path": "fast", "rows": 64, "ms": 8.0, "error": 2e-6},
    {"path": "broken", "failure": "no compiler"},
]


def test_report_shows_the_measurements(tmp_path: Path) -> None:
    data = {
        "device": "a card",
        "runtimes": {"runtime": "1.0"},
        "models": [MODEL, FLOAT16],
        "service": [
            CASE,
            {**CASE, "device": "cpu", "latency_ms": []},
            {"device": "cuda", "workers": 4, "failure": "no module"},
        ],
        "paths": PATHS,
    }
    measured = Record("gpu", "", "", "2026-01-31", "", {"cpu": "abacus", "cores": 16}, {}, {"device": "cuda"}, data)
    expected = [
        "GPU: a card. runtime 1.0. The service on the CPU uses 16 cores.",
        "| ONNX, 64 | float16, 1 | float16, 16 | float16, 64 | not recorded, 1 |",  # no TorchScript was measured
        "| documents@2 | 256 | 1.00 | 16.00 | 64.00 | - | - | - | 2.00 | 32.00 | 128.00 | 5.00 | 80.00 | 320.00 |",
        "| both@1 | 256 | - | - | - | 0.50 | - | - | - | - | - | - | - | - |",
        "| documents@2 | 1.0 | 300 | Concat 2, Shape 1 |",
        "- documents@2, torchscript: documents/2: no module",
        "| cuda | 1 | 256 | 4 | 800 | 50.0 | 99.0 | 3 |",
        "| cpu | 1 | 256 | 4 | 800 | - | - | 3 |",
        "Not started:\n\n- cuda, 4 workers: no module\n",
        "| fast | 64 | 8.00 | 8000 | 2e-06 |",
        "| broken | | failed: no compiler | | |",
    ]
    expect_in_report(gpu.BENCHMARK, measured, expected, tmp_path)


@pytest.mark.parametrize("name", ["ili", "scotus"])
def test_export_is_measured_in_each_format_and_precision(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(gpu, "ROWS", (1, 2))
    monkeypatch.setattr(gpu, "BATCHES", 1)
    found = gpu.measure_model(version_folder(EXPORTS / name), "cpu", seconds=0.0)
    ways = {"onnx", "torchscript", "float16"} if name == "ili" else {"onnx", "torchscript"}
    assert found["failures"] == {}
    assert {one["on"] for one in found["batches"]} == {f"{way}, cpu" for way in ways}
    assert all(one["ms"] > 0 for one in found["batches"])
    assert found["device_mib"] == dict.fromkeys(ways, 0)


def test_benchmark_goes_on_if_a_runtime_rejects_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(folder: Path, **options: Any) -> LoadedModel:
        if options.get("format") == "onnx" and options["precision"] == "float32":
            raise BadExport("ili/3: outputs differ", "golden")
        return load_export(folder, **options)

    monkeypatch.setattr(gpu, "load_export", load)
    found = gpu.measure_model(version_folder(EXPORTS / "ili"), "cpu", seconds=0.0)
    assert found["failures"] == {"onnx": "ili/3: outputs differ"}
    assert set(found["load_s"]) == {"torchscript", "float16"}
    assert {one["on"] for one in found["batches"]} == {"onnx, cpu", "torchscript, cpu", "float16, cpu"}


def test_batches_of_documents_differ_and_fit_the_bucket() -> None:
    model = load_export(version_folder(EXPORTS / "imdb-s3"), device="cpu")
    batches = gpu.example_batches(model, 512, 3)
    assert len(batches) == gpu.BATCHES
    assert len({row for batch in batches for row in batch}) > gpu.BATCHES
    assert all(256 < len(row) <= 512 for batch in batches for row in batch)


def test_operators_left_to_the_cpu_are_not_asked_of_a_machine_without_a_gpu() -> None:
    assert gpu.operators_on_cpu(version_folder(EXPORTS / "ili") / "model.onnx", "cpu") == {}
    assert gpu.device_name("cpu") == "none"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Parts that are measured, in order; each takes a minute of a clock."""
    found = list[tuple[str, ...]]()

    def model(folder: Path, device: str, seconds: float) -> Data:
        assert (device, seconds) == ("cpu", 0.1)
        name = f"{folder.parent.name}@{folder.name}"
        found.append(("models", name))
        return {**MODEL, "model": name, "batches": []}

    def service(device: str, workers: int, seconds: float) -> list[Data]:
        assert seconds == 1
        found.append(("service", device, str(workers)))
        return [{**CASE, "device": device, "workers": workers, "bytes": length} for length in (256, 4096)]

    monkeypatch.setattr(gpu, "measure_model", model)
    monkeypatch.setattr(gpu, "measure_service", service)
    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: 60.0 * len(found)))
    return found


def test_benchmark_continues_the_record_of_the_same_exports(
    measured: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--device", "cpu", "--models", "ili", "exchange", "--out", str(tmp_path)]
    assert gpu.BENCHMARK.missing is not None
    gpu.BENCHMARK.main([*words, "--budget", "119"])  # the third part would start after the time
    assert [part for part, *_ in measured] == ["models", "models"]
    assert gpu.BENCHMARK.missing(gpu.BENCHMARK.parse(words)) == [f"service cpu {workers}" for workers in gpu.WORKERS]
    gpu.BENCHMARK.main([*words, "--budget", "3600"])
    assert len(measured) == len(set(measured)) == 2 + len(gpu.WORKERS)
    assert gpu.BENCHMARK.missing(gpu.BENCHMARK.parse(words)) == []
    assert len(gpu.BENCHMARK.missing(gpu.BENCHMARK.parse([*words[:2], *words[-2:]]))) == len(find_exports(EXPORTS)) - 2
    monkeypatch.setattr(gpu, "sha256_of", lambda _: "another export")
    assert len(gpu.BENCHMARK.missing(gpu.BENCHMARK.parse(words))) == len(measured)


def test_cpu_comes_last() -> None:
    args = gpu.BENCHMARK.parse([])
    parts = gpu.parts(args, {part: [] for part in gpu.PARTS})
    assert [part[0] for part in parts[: len(find_exports(EXPORTS))]] == ["models"] * len(find_exports(EXPORTS))
    assert parts[-2:] == [("service", "cpu", str(n)) for n in gpu.WORKERS]
    assert len(parts) == len(find_exports(EXPORTS)) + 2 * len(gpu.WORKERS)


def test_service_that_does_not_start_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("the server did not start:\nerror: no CUDA device\n")

    monkeypatch.setattr(gpu, "server", fail)
    assert gpu.measure_service("cuda", 4, 1.0) == [{"device": "cuda", "workers": 4, "failure": "error: no CUDA device"}]


def test_operators_of_an_export_that_cuda_rejects_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(folder: Path, **options: Any) -> LoadedModel:
        if options.get("format") == "onnx":
            raise BadExport("no CUDA", "backend")
        return load_export(folder, **{**options, "device": "cpu"})

    monkeypatch.setattr(gpu, "load_export", load)
    monkeypatch.setattr(gpu, "device_mib", lambda _: 0)
    found = gpu.measure_model(version_folder(EXPORTS / "ili"), "cuda", seconds=0.0)
    assert found["left_to_cpu"] == {}
    assert found["failures"].keys() == {"onnx", "float16"}
    assert {one["on"] for one in found["batches"]} == {"torchscript, cuda", "onnx, cpu"}
