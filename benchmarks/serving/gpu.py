"""`python -m benchmarks.serving.gpu`: the exports on a GPU beside a CPU, alone and behind HTTP, for three minutes.

Needs the extra `gpu`. Measures: every export on both devices, by bucket and rows in a batch, with recorded CUDA graphs
and without, with the memory that it takes and the operators that ONNX Runtime leaves to the CPU; the service with 1 to
256 clients. Each part is recorded when it is measured; a restarted benchmark continues. `--device cpu` rehearses it on
a machine without a GPU. A study of the paper's encoder (`paths`) is at revision bab4542103ad.
"""

import argparse
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime

from artifact.backends.base import Device
from artifact.backends.cuda import CudaBackend
from artifact.errors import BadExport
from artifact.exports import read_manifest, sha256_of
from artifact.loading import LoadedModel, find_exports, load_export
from artifact.manifest import MANIFEST, Format, Precision
from artifact.tasks.forecasting import ForecasterManifest
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.load import closed_loop, post, run
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.servers import PACKAGES, TEXT, document, server
from benchmarks.lib.table import table

EXPORTS = Path("exports")
ROWS = (1, 16, 64)
BATCHES = 8
"""Batches of different documents that are computed in turn."""
CLIENTS = (1, 16, 256)
DOCUMENTS = ((256, "imdb-s3"), (4096, "imdb-s3"), (65_536, "scotus"))
"""Bytes of a document, and the model that classifies it."""
WORKERS = (1, 4)
UNRECORDED = "onnx, cuda, not recorded"
PARTS = ("models", "service")
Part = tuple[str, ...]
"""One of PARTS, and what is measured: an export; a device and the number of workers."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="default: %(default)s")
    parser.add_argument("--budget", type=float, default=180, help="seconds after which no part starts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="exports to measure (default: all)")
    parser.add_argument("--seconds", type=float, default=1, help="duration of each load (default: %(default)s)")
    parser.add_argument("--batch-seconds", type=float, default=0.1, help="of each batch size (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Results after each part, in order of worth; continues the record of the same device, runtimes and exports."""
    until = time.monotonic() + args.budget
    data = recorded(args)
    for part, *what in parts(args, data):
        if time.monotonic() > until:
            return
        if part == "models":
            data[part].append(measure_model(EXPORTS / what[0], args.device, args.batch_seconds))
        else:
            data[part] += measure_service(what[0], int(what[1]), args.seconds)
        yield data


def recorded(args: argparse.Namespace) -> Data:
    """Data of the record, or new ones if it is of another device, of other runtimes or other exports."""
    hashes = [sha256_of(folder / MANIFEST) for folder in find_exports(EXPORTS)]
    facts = {
        "device": device_name(args.device),
        "runtimes": {"ONNX Runtime": onnxruntime.__version__, "PyTorch": version("torch")},
        "exports": sha256("".join(hashes).encode()).hexdigest()[:12],
    }
    found = earlier("gpu", args.out)
    is_same = all(found.get(key) == value for key, value in facts.items())
    return found if is_same else {**facts, **{part: [] for part in PARTS}}


def parts(args: argparse.Namespace, data: Data) -> list[Part]:
    """Parts that the data lack, in order of worth."""
    models = [folder for folder in find_exports(EXPORTS) if folder.parent.name in (args.models or [folder.parent.name])]
    wanted: list[Part] = [
        *(("models", str(folder.relative_to(EXPORTS))) for folder in models),
        *(("service", args.device, str(workers)) for workers in WORKERS),
        *(("service", "cpu", str(workers)) for workers in WORKERS if args.device != "cpu"),
    ]
    done: set[Part] = {("models", one["model"].replace("@", "/")) for one in data["models"]}
    done |= {("service", one["device"], str(one["workers"])) for one in data["service"]}
    return [part for part in wanted if part[0] in args.parts and part not in done]


def device_name(device: str) -> str:
    """Name, memory in MiB and driver of the GPU; `none` in a rehearsal."""
    return "none" if device == "cpu" else query("name,memory.total,driver_version")


def measure_model(folder: Path, device: Device, seconds: float) -> Data:
    """One export on a device and on one core of the CPU."""
    found: Data = {
        "model": f"{folder.parent.name}@{folder.name}",
        "load_s": {},
        "device_mib": {},
        "failures": {},
        "left_to_cpu": {},
        "batches": [],
    }
    models: dict[str, LoadedModel] = {}
    ways: list[tuple[str, Format, Precision]] = [("onnx", "onnx", "float32"), ("torchscript", "torchscript", "float32")]
    if read_manifest(folder).float16 is not None:
        ways.append(("float16", "onnx", "float16"))
    for way, format, precision in ways:
        before = device_mib(device)
        try:  # verifies the golden outputs
            models[f"{way}, {device}"] = model = load_export(folder, format=format, device=device, precision=precision)
        except BadExport as error:
            found["failures"][way] = str(error)
            continue
        found["load_s"][way] = round(model.load_seconds, 3)
        found["device_mib"][way] = device_mib(device) - before
    path = min(files_on_cuda(folder).values())  # all buckets have the same file
    if f"onnx, {device}" in models:  # the libraries of CUDA are loaded
        found["left_to_cpu"] = operators_on_cpu(path, device)
    if device == "cuda" and (onnx := models.get("onnx, cuda")) is not None and onnx.manifest.fixed_shapes is not None:
        without = onnx.manifest.model_copy(update={"fixed_shapes": None})
        models[UNRECORDED] = replace(onnx, backend=CudaBackend(files_on_cuda(folder), without))
    models["onnx, cpu"] = load_export(folder, device="cpu")
    for name, model in models.items():
        lengths = model.row_lengths
        for bucket in sorted({lengths[0], lengths[-1]}):
            for rows in ROWS:
                ms = median_ms(model, example_batches(model, bucket, rows), bucket, seconds)
                found["batches"].append({"on": name, "bucket": bucket, "rows": rows, "ms": ms})
    return found


def files_on_cuda(folder: Path) -> dict[int, Path]:
    """ONNX file of each bucket that CUDA uses for unrecorded batches."""
    return {bucket: folder / path for bucket, path in read_manifest(folder).cuda_files().items()}


def device_mib(device: Device) -> int:
    """Used memory of the GPU in MiB; 0 in a rehearsal."""
    return 0 if device == "cpu" else int(query("memory.used"))


def query(what: str) -> str:
    """Properties of the GPU, separated by commas."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def operators_on_cpu(path: Path, device: Device) -> dict[str, int]:
    """Operators of the nodes that ONNX Runtime leaves to the CPU, with their number; empty in a rehearsal."""
    if device == "cpu":
        return {}
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = onnxruntime.InferenceSession(path, settings, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    left = Counter[str]()
    for part in session.get_provider_graph_assignment_info():
        if part.ep_name == "CPUExecutionProvider":
            left.update(node.op_type for node in part.get_nodes())
    return dict(left.most_common())


def example_batches(model: LoadedModel, bucket: int, rows: int) -> list[list[bytes]]:
    """Batches of rows of a model: random windows of a series, or documents of more than half of the bucket's bytes."""
    generator = np.random.default_rng(0)
    if isinstance(model.manifest, ForecasterManifest):
        return [[row.tobytes() for row in generator.standard_normal((rows, bucket // 4), np.float32)]] * BATCHES
    text, lengths = document(bucket), generator.integers(bucket // 2 + 1, bucket + 1, (BATCHES, rows))
    return [[text[-length:] for length in batch] for batch in lengths]


def median_ms(model: LoadedModel, batches: list[list[bytes]], bucket: int, seconds: float) -> float:
    """Median milliseconds of a batch; each is computed at least once after one that is not measured."""
    model.run(batches[0], bucket)
    found, until = list[float](), time.perf_counter() + seconds
    while len(found) < len(batches) or time.perf_counter() < until:
        batch = batches[len(found) % len(batches)]
        started = time.perf_counter()
        model.run(batch, bucket)
        found.append(time.perf_counter() - started)
    return round(1000 * float(np.median(found)), 4)


def measure_service(device: str, workers: int, seconds: float) -> list[Data]:
    """The service with increasing numbers of clients, each of which sends its next document when it has an answer."""
    command = ["-m", "service", "--port", "0", "--device", device, "--workers", str(workers)]
    try:
        return _measure_service(command, device, workers, seconds)
    except RuntimeError as error:  # it did not start
        return [{"device": device, "workers": workers, "failure": str(error).strip().splitlines()[-1][:300]}]


def _measure_service(command: Sequence[str], device: str, workers: int, seconds: float) -> list[Data]:
    found = []
    with server(command) as target:
        for length, model in DOCUMENTS:
            request = [post(f"{target.url}/v1/classify?model={model}", document(length), TEXT)]
            run(closed_loop(target.url, request, connections=4 * workers, seconds=seconds / 2))  # warm-up
            for clients in CLIENTS:
                outcome = run(closed_loop(target.url, request, connections=clients, seconds=seconds))
                found.append(
                    {
                        "device": device,
                        "workers": workers,
                        "bytes": length,
                        "clients": clients,
                        "documents_per_second": round(outcome.throughput, 1),
                        "statuses": outcome.statuses(),
                        "latency_ms": outcome.percentiles_ms(),
                    }
                )
    return found


def report(record: Record) -> str:
    """Report with a table for each part."""
    data, device = record.data, record.settings["device"]
    cores = record.hardware["cores"]
    runtimes = ", ".join(f"{name} {number}" for name, number in data["runtimes"].items())
    used = f"GPU: {data['device']}. {runtimes}. The service on the CPU uses {cores} cores."
    parts = [used, "## Exports", models(data, device)]
    if data.get("service"):
        parts += ["## Service", service(data["service"])]
    if data.get("paths"):
        parts += ["## The paper's encoder", paths(data["paths"])]
    return "\n\n".join(parts)


def models(data: Data, device: str) -> str:
    """Milliseconds per batch of each export, and what the runtime leaves to the CPU."""
    columns = {
        f"onnx, {device}": "ONNX",
        f"float16, {device}": "float16",
        UNRECORDED: "not recorded",
        f"torchscript, {device}": "TorchScript",
        "onnx, cpu": "CPU core",
    }
    measured = {one["on"] for model in data["models"] for one in model["batches"]}
    columns = {on: name for on, name in columns.items() if on in measured}
    rows, loads = [], []
    for model in data["models"]:
        times = {(one["on"], one["bucket"], one["rows"]): one["ms"] for one in model["batches"]}
        for bucket in sorted({one["bucket"] for one in model["batches"]}):
            cells = [model["model"], f"{bucket:,}"]
            for on in columns:
                cells += [f"{times[on, bucket, count]:.2f}" if (on, bucket, count) in times else "-" for count in ROWS]
            rows.append(cells)
        left = ", ".join(f"{name} {count}" for name, count in model["left_to_cpu"].items())
        loads.append(
            [
                model["model"],
                f"{model['load_s']['onnx']:.1f}" if "onnx" in model["load_s"] else "-",
                str(model["device_mib"].get("onnx", "-")),
                left or "none",
            ]
        )
    heads = ["export", "bytes of a row", *(f"{name}, {count}" for name in columns.values() for count in ROWS)]
    failures = [f"- {m['model']}, {name}: {text}" for m in data["models"] for name, text in m["failures"].items()]
    text = (
        f"Milliseconds per batch of 1, 16 and 64 rows, {BATCHES} batches in turn: ONNX Runtime on the GPU with "
        "recorded CUDA graphs and without, TorchScript on the GPU, ONNX Runtime on one core. Exports "
        "whose outputs differ from the golden ones by more than their tolerance have no times.\n\n"
        f"{table(heads, rows)}\n"
        "Loading an export records its batches. Memory: of the GPU, for the weights and the recorded batches.\n\n"
        f"{table(['export', 'load, s', 'memory, MiB', 'operators left to the CPU'], loads)}"
    )
    if failures:
        text += "\nRefused, because they fail on the golden inputs or differ from the golden outputs:\n\n" + "\n".join(
            failures
        )
    return text


def service(cases: Sequence[Data]) -> str:
    """Documents per second and latency of the service."""
    rows = [
        [
            case["device"],
            str(case["workers"]),
            f"{case['bytes']:,}",
            str(case["clients"]),
            f"{case['documents_per_second']:.0f}",
            *([f"{case['latency_ms'][q]:.1f}" for q in (50, 99)] if case["latency_ms"] else ["-", "-"]),
            str(sum(count for status, count in case["statuses"].items() if status != "200")),
        ]
        for case in (json.loads(json.dumps(case)) for case in cases)
        if "failure" not in case
    ]
    failures = [
        f"- {case['device']}, {case['workers']} workers: {case['failure']}\n" for case in cases if "failure" in case
    ]
    heads = ["device", "workers", "bytes", "clients", "documents/s", "p50 ms", "p99 ms", "refused"]
    text = table(heads, rows) + "\nThe load runs on the same machine, in one process."
    return text + "".join(("\n\nNot started:\n\n", *failures) if failures else ())


def paths(found: Sequence[Data]) -> str:
    """Milliseconds per batch of the paper's encoder."""
    rows = []
    for one in found:
        cells = (
            ["", f"failed: {one['failure']}", "", ""] if "failure" in one else [f"{one['rows']}", f"{one['ms']:.2f}"]
        )
        if "failure" not in one:
            cells += [f"{1000 * one['rows'] / one['ms']:.0f}", f"{one['error']:.0e}"]
        rows.append([one["path"], *cells])
    return (
        "The paper's classifier with random weights, documents of 4,096 bytes. Error: the largest difference to "
        "float32 on the CPU, over the largest logit.\n\n"
        f"{table(['path', 'rows', 'ms', 'documents/s', 'error'], rows)}"
    )


def draw(record: Record, path: Path) -> None:
    """Throughput of the service against the number of clients, one panel for each length."""
    cases = [case for case in record.data.get("service", []) if "failure" not in case]
    figure, panels = chart.figure((10, 3.4), columns=len(DOCUMENTS))
    for (length, model), axes in zip(DOCUMENTS, panels, strict=True):
        for device, workers in sorted({(case["device"], case["workers"]) for case in cases}):
            chosen = [c for c in cases if (c["device"], c["workers"], c["bytes"]) == (device, workers, length)]
            label = f"{device}, {workers} worker{'s' if workers > 1 else ''}"
            axes.plot(
                [c["clients"] for c in chosen], [c["documents_per_second"] for c in chosen], marker="o", label=label
            )
        axes.set(xscale="log", xlabel="clients", title=f"{length:,} bytes ({model})", ylim=(0, None))
        ticks = sorted({case["clients"] for case in cases})
        axes.set_xticks(ticks, [str(clients) for clients in ticks])
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("documents/s")
    if cases:
        panels[0].legend(fontsize=8)
    chart.save(figure, path)


BENCHMARK = Benchmark.of(
    "GPU",
    measure,
    report,
    draw,
    options,
    tuple(name for name in PACKAGES if name != "onnxruntime"),
    lambda args: [" ".join(part) for part in parts(args, recorded(args))],
)

if __name__ == "__main__":
    BENCHMARK.main()
