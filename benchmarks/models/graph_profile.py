"""`python -m benchmarks.models.graph_profile`: where the time of the exported graphs goes, on one thread.

The shipped classifiers `imdb-s3` and `scotus` on documents of their test data, the encoder of `aan`, the forecaster
`weather`, and the paper's encoder with random weights, in ONNX Runtime with the settings of the service. Two sessions
compute each batch in turns: one without ONNX Runtime's profiler, which gives the time, and one with it, which gives the
time of each operator. The nodes of a graph are attributed to parts of the model by `benchmarks.models.graph_parts`.

The profiler's time of an operator includes some microseconds in which the profiler notes shapes, more than a small
operator takes. They are subtracted: Unsqueeze copies nothing, so the median time of a graph's Unsqueeze nodes is the
profiler's own time. The time without the profiler minus that of all operators is launch overhead: the fixed cost of
each node, and inputs and outputs.

The floating-point operations of matrix products and convolutions are compared with the peak: the fastest of a few large
matrix products in ONNX Runtime on one thread.
"""

import argparse
import functools
import json
import math
import multiprocessing
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray

from artifact.backends.onnx import SLOW_ON_CPU, load_session, session_options
from artifact.documents import pad_rows
from artifact.exports import read_manifest, version_folder
from artifact.tasks.classification import ClassifierManifest
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.interleave import interleave, timed
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from benchmarks.models.graph_parts import (
    OTHER,
    PARTS,
    Node,
    attribute,
    attribute_optimised,
    build,
    export_nodes,
    file_nodes,
)
from model.config.encoder import EncoderConfig
from model.data.documents import load_documents
from model.nn.classifier import PaperClassifier
from model.runs.load import task_of_export
from model.tasks.graphs import ExportGraph, golden_documents

PAPER = "paper's"
CASES = (
    ("imdb-s3", 512, 8),
    ("imdb-s3", 4096, 1),
    ("imdb-s3", 4096, 4),
    ("scotus", 4096, 4),
    ("scotus", 65536, 1),
    ("aan", 4096, 4),
    ("weather", 96, 16),
    (PAPER, 4096, 1),
)
"""Graph, length of a row in bytes or steps, and rows of a batch."""
GRAPHS = tuple(dict.fromkeys(name for name, _, _ in CASES))
SHOWN = 10
"""Operators in the report."""
PEAK_SHAPES = ((512, 512, 512), (1024, 1024, 1024), (512, 2048, 2048))
"""Rows, columns and inner size of the matrix products whose fastest is the peak."""
WARM_UP = 3
"""Batches of each session before the measured ones."""
PRODUCTS = ("MatMul", "FusedMatMul", "Gemm", "FusedGemm", "Conv", "FusedConv")
"""Operators whose floating-point operations are counted."""
LAUNCH = "launch overhead"
EMPTY = "Unsqueeze"
"""Operator that only changes the shape of a tensor; each graph has some."""
KERNEL_TIME = "_kernel_time"

Inputs = dict[str, NDArray[Any]]
Shape = Sequence[int]


@dataclass(frozen=True)
class Kernel:
    """One node in the profile of a session."""

    operator: str
    microseconds: list[int]
    """Time of each run."""
    inputs: list[Shape]
    """Shapes of the inputs, without weights that ONNX Runtime packed in advance."""
    output: Shape


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    add_data_dir(parser)
    parser.add_argument("--rounds", type=int, default=20, help="measured rounds (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Peak, and of each case the seconds of each round, the time of operators and parts, and counted operations."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            exported = dict(
                zip(GRAPHS, pool.map(exported_nodes, GRAPHS, [folder / "paper.onnx"] * len(GRAPHS)), strict=True)
            )
        texts = {name: documents_of(name, args.data_dir) for name in ("imdb-s3", "scotus")}
        peaks = [peak(args.rounds, folder)]
        cases = []
        for name, length, rows in CASES:
            path = folder / "paper.onnx" if name == PAPER else version_folder(Path("exports") / name) / "model.onnx"
            inputs = batch(name, texts, length, rows)
            found = profile(path, exported[name], inputs, args.rounds, folder)
            cases.append({"graph": name, "length": length, "rows": rows, **found})
        peaks.append(peak(args.rounds, folder))
    versions = {name: int(version_folder(Path("exports") / name).name) for name in GRAPHS if name != PAPER}
    yield {"versions": versions, "peak_flops_per_s": max(peaks), "cases": cases}


def exported_nodes(name: str, paper: Path) -> list[Node]:
    """Nodes of a graph with random weights, with their modules; the paper's is also written to a file."""
    if name != PAPER:
        return export_nodes(build(version_folder(Path("exports") / name)))
    torch.manual_seed(0)
    model = PaperClassifier(EncoderConfig(mode="paper", seq_len=4096), num_classes=2)
    return export_nodes(ExportGraph("model", model, golden_documents(4096), ("logits",), (4096,)), paper)


def documents_of(name: str, data_dir: Path) -> bytes:
    """Test documents of a classifier, one after the other."""
    folder = version_folder(Path("exports") / name)
    manifest = read_manifest(folder)
    assert isinstance(manifest, ClassifierManifest)
    config = task_of_export(manifest, folder).config.data
    return b"\n".join(load_documents(config, data_dir).test.texts[:1000])


def batch(name: str, texts: Mapping[str, bytes], length: int, rows: int) -> Inputs:
    """A batch of full-length rows. The cost of `aan`, `weather` and the paper's encoder does not depend on content."""
    if name == "weather":
        channels = read_manifest(version_folder(Path("exports") / name)).inputs[0].shape[2]
        return {"series": np.random.default_rng(0).standard_normal((rows, length, channels)).astype(np.float32)}
    text = texts.get(name, texts["scotus"])
    padded, lengths = pad_rows([text[i * length : (i + 1) * length] for i in range(rows)], length)
    return {"bytes": padded, "lengths": lengths}


def peak(rounds: int, folder: Path) -> float:
    """Floating-point operations per second of the fastest of some large matrix products on one thread."""
    turns: dict[int, Callable[[], float]] = {}
    for m, n, k in PEAK_SHAPES:
        generator = np.random.default_rng(0)
        a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
        ends = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, s)
            for name, s in (("a", (m, k)), ("c", (m, n)))
        ]
        product = onnx.helper.make_node("MatMul", ["a", "b"], ["c"])
        graph = onnx.helper.make_graph([product], "product", ends[:1], ends[1:], [onnx.numpy_helper.from_array(b, "b")])
        opset = [onnx.helper.make_opsetid("", 18)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), folder / "product.onnx")
        run = functools.partial(load_session(folder / "product.onnx", ["CPUExecutionProvider"]).run, None, {"a": a})
        turns[2 * m * n * k] = functools.partial(timed, run)
    seconds = interleave(turns, rounds, warm_up=WARM_UP, label="peak")
    return max(operations / min(found) for operations, found in seconds.items())


def profile(path: Path, exported: Sequence[Node], inputs: Inputs, rounds: int, folder: Path) -> Data:
    """Measure one batch with and without the profiler, in turns."""
    settings = session_options()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / "profile")
    settings.optimized_model_filepath = str(folder / "optimised.onnx")
    providers = ["CPUExecutionProvider"]
    profiled = onnxruntime.InferenceSession(path, settings, providers=providers, disabled_optimizers=SLOW_ON_CPU)
    plain = load_session(path, providers, disabled=SLOW_ON_CPU)
    runs = {name: functools.partial(one.run, None, inputs) for name, one in (("plain", plain), ("profiled", profiled))}
    turns = {name: functools.partial(timed, run) for name, run in runs.items()}
    seconds = interleave(turns, rounds, warm_up=WARM_UP, label=path.parent.parent.name)
    kernels = read_profile(json.loads(Path(profiled.end_profiling()).read_text()))
    optimised = onnx.load(folder / "optimised.onnx").graph
    nodes = file_nodes(onnx.load(path).graph)
    attributed = attribute(nodes, exported)
    parts, guessed = attribute_optimised(file_nodes(optimised), nodes, attributed.parts)
    profiler_us = overhead(kernels)
    ms = {name: (middle(kernel.microseconds) - profiler_us) / 1000 for name, kernel in kernels.items()}
    of_rounds = zip(*(kernel.microseconds[WARM_UP:] for kernel in kernels.values()), strict=True)
    counted = count(optimised, kernels)
    return {
        "seconds": seconds["plain"],
        "profiled_seconds": seconds["profiled"],
        "kernel_seconds": [round((sum(us) - profiler_us * len(us)) / 1e6, 7) for us in of_rounds],
        "profiler_us": round(profiler_us, 3),
        "nodes": len(kernels),
        "file_nodes": len(nodes),
        "attributed": {"same": attributed.same, "renumbered": attributed.renumbered, "between": attributed.between},
        "guessed_ms": round(sum(value for name, value in ms.items() if name in guessed), 4),
        "parts_ms": totals((parts.get(name, OTHER), value) for name, value in ms.items()),
        "operators": {
            name: {"nodes": sum(kernel.operator == name for kernel in kernels.values()), "ms": value}
            for name, value in totals((kernels[node].operator, value) for node, value in ms.items()).items()
        },
        "flops": sum(counted.values()),
        "products_ms": round(sum(ms[name] for name in counted), 4),
    }


def middle(microseconds: Sequence[int]) -> float:
    """Mean of the middle half of the runs after the warm-up: the profiler has whole microseconds only."""
    kept = sorted(microseconds[WARM_UP:])
    quarter = len(kept) // 4
    return statistics.mean(kept[quarter : len(kept) - quarter])


def overhead(kernels: Mapping[str, Kernel]) -> float:
    """Microseconds that the profiler adds to each node: median time of the operators that compute nothing."""
    return statistics.median(middle(one.microseconds) for one in kernels.values() if one.operator == EMPTY)


def totals(values: Any) -> dict[str, float]:
    """Sums by name, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for name, value in values:
        sums[name] += value
    return {name: round(value, 4) for name, value in sorted(sums.items(), key=lambda item: -item[1])}


def read_profile(events: Sequence[Data]) -> dict[str, Kernel]:
    """Kernels by the name of their node, from the events of ONNX Runtime's profiler. A node runs once in each run."""
    kernels: dict[str, Kernel] = {}
    for event in sorted(events, key=lambda event: int(event["ts"])):
        if event.get("cat") != "Node" or not event["name"].endswith(KERNEL_TIME):
            continue
        name, facts = event["name"].removesuffix(KERNEL_TIME), event["args"]
        if name not in kernels:
            shapes = [shape for typed in facts["input_type_shape"] for shape in typed.values()]
            outputs = [shape for typed in facts["output_type_shape"] for shape in typed.values()]
            kernels[name] = Kernel(facts["op_name"], [], shapes, outputs[0] if outputs else [])
        kernels[name].microseconds.append(int(event["dur"]))
    return kernels


def count(graph: Any, kernels: Mapping[str, Kernel]) -> dict[str, int]:
    """Floating-point operations of each product in a profile, from the optimised graph."""
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    counted = {}
    for node in graph.node:
        kernel = kernels.get(node.name)
        if kernel is not None and kernel.operator in PRODUCTS:
            attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
            weight = weights.get(node.input[1], ())  # of products of matrices, not needed
            counted[node.name] = flops(kernel.operator, kernel.inputs[0], weight, kernel.output, attributes)
    return counted


def flops(operator: str, left: Shape, right: Shape, output: Shape, attributes: Mapping[str, Any]) -> int:
    """Floating-point operations of a matrix product or a convolution: two for each product of two numbers.

    Shape:  of MatMul, FusedMatMul and Gemm, left (..., M, K), or (..., K, M) with transA, and output (..., M, N);
            of Conv, right (output channels, input channels of a group, kernel size...).
    Raises: ValueError for other operators.
    """
    if operator not in PRODUCTS:
        raise ValueError(f"operator is {operator!r}; it must be one of {', '.join(PRODUCTS)}")
    if operator in ("Conv", "FusedConv"):
        return 2 * math.prod(output) * math.prod(right[1:])
    return 2 * math.prod(output) * left[-2 if attributes.get("transA") else -1]


def label(case: Data) -> str:
    """Name of a case in tables."""
    return f"{case['graph']} {case['rows']} x {case['length']:,}"


def share_of(case: Data, ms: float) -> float:
    """Share of milliseconds of operators in the time without the profiler, in %.

    The share of all operators is the median of the ratio in each round: noise in a round affects both of its times.
    """
    pairs = zip(case["kernel_seconds"], case["seconds"], strict=True)
    computed: float = statistics.median(kernels / wall for kernels, wall in pairs)
    total: float = sum(case["parts_ms"].values())
    return 100 * computed * ms / total


def shares(case: Data) -> dict[str, float]:
    """Share of each part in the time without the profiler, in %; the rest is launch overhead."""
    found = {part: share_of(case, case["parts_ms"].get(part, 0.0)) for part in PARTS}
    return found | {LAUNCH: 100 - sum(found.values())}


def report(record: Record) -> str:
    """Report with tables of the cost, parts, operators and attribution."""
    data = record.data
    cases, best = data["cases"], data["peak_flops_per_s"]
    costs, profiled, attributed, operators = [], [], [], []
    for case in cases:
        wall = statistics.median(case["seconds"])
        speeds = [case["flops"] / s if s else 0.0 for s in (case["products_ms"] / 1000, wall)]
        rates = [cell for of in speeds for cell in (f"{of / 1e9:.1f}", f"{100 * of / best:.0f}")]
        launch = 1e6 * wall * shares(case)[LAUNCH] / 100 / case["nodes"]
        cells = [f"{1000 * wall / case['rows']:.2f}", str(case["nodes"]), f"{launch:.1f}"]
        mflop = f"{case['flops'] / 1e6 / case['rows']:.0f}"
        costs.append([label(case), *cells, *([mflop, *rates] if case["flops"] else [""] * 5)])
        found = case["attributed"]
        guessed = f"{share_of(case, case['guessed_ms']):.1f}"
        unmatched = case["file_nodes"] - sum(found.values())
        slower = statistics.median(case["profiled_seconds"]) / wall
        profiled.append([label(case), f"{slower:.2f} x", f"{case['profiler_us']:.1f}"])
        attributed.append([label(case), str(case["file_nodes"]), *map(str, found.values()), str(unmatched), guessed])
        rows = [
            [name, str(of["nodes"]), f"{of['ms']:.3f}", f"{share_of(case, of['ms']):.1f}"]
            for name, of in list(case["operators"].items())[:SHOWN]
        ]
        operators += [f"### {label(case)}", "", table(["operator", "nodes", "ms a batch", "share, %"], rows)]
    found_shares = [shares(case) for case in cases]
    parts = [[part, *(f"{of[part]:.1f}" if of[part] else "" for of in found_shares)] for part in (*PARTS, LAUNCH)]
    versions = ", ".join(f"`{name}` {version}" for name, version in data["versions"].items())
    of_peak = "of the peak, %"
    heads = ["rows x length", "ms a row", "nodes", "launch, µs a node", "MFLOP a row"]
    heads += ["products, GFLOP/s", of_peak, "all, GFLOP/s", of_peak]
    return "\n".join(
        [
            f"Versions: {versions}; {PAPER}: the paper's encoder with random weights. Rows are documents of so many "
            "bytes, in `weather` windows of so many steps. One thread, medians of "
            f"{record.settings['rounds']} rounds, with and without the profiler in turns.",
            "",
            table(heads, costs),
            "Products are matrix products and convolutions, the only operators whose floating-point operations are "
            f"counted. The peak is {best / 1e9:.1f} GFLOP/s: the fastest product of large matrices in ONNX Runtime on "
            "one thread.",
            "",
            "## Parts, share of the time in %",
            "",
            table(["part", *map(label, cases)], parts),
            "Look-ups are those of words and n-grams. The embedding is that of bytes, of n-grams in `aan`, of patches "
            "in `weather`. The smoother and the skeleton attention include their norms, the attention its output "
            "layer; other norms have a part of their own. The head includes means over tokens, contributions, and in "
            "`weather` the linear map and the statistics of a window. An operator that ONNX Runtime fused from two "
            f"parts counts for one of them. The part `{OTHER}` is not attributed. Launch overhead is the rest of the "
            "time: the fixed cost of each node, and inputs and outputs. It is a small difference of two measurements, "
            "and may be below zero.",
            "",
            "## Operators, the largest ones",
            "",
            *operators,
            "## The profiler",
            "",
            "Time with the profiler, relative to that without, and the microseconds that were subtracted from each "
            f"operator: the median time of {EMPTY}, which copies nothing.",
            "",
            table(["", "time", "subtracted, µs a node"], profiled),
            "## Attribution of nodes",
            "",
            "Nodes of the file. Of these: nodes that a new export of the same architecture also has, with name and "
            "operator; nodes that differ only in the number of the name; nodes between two nodes of one part; and "
            "others. Files of earlier revisions differ from a new export. Others, nodes for which the exporter noted "
            "no module, and nodes that ONNX Runtime inserted take the part of the node before or after them; the last "
            "column is their share of the time.",
            "",
            table(["", "nodes", "same", "renumbered", "between", "others", "guessed, % of the time"], attributed),
        ]
    )


def draw(record: Record, path: Path) -> None:
    """Stacked bars of the parts."""
    cases = record.data["cases"][::-1]
    figure, (axes,) = chart.figure((11, 4.5))
    names = [
        f"{label(case)}\n{1000 * statistics.median(case['seconds']) / case['rows']:.2f} ms a row" for case in cases
    ]
    left = np.zeros(len(cases))
    for i, part in enumerate((*PARTS, LAUNCH)):
        width = np.array([max(0.0, shares(case)[part]) for case in cases])
        hatch, color = ("//", "lightgrey") if part == LAUNCH else ("", f"C{i}" if i < 10 else "black")
        axes.barh(names, width, left=left, label=part, color=color, hatch=hatch)
        left += width
    axes.set(xlabel="share of the time, %", xlim=(0, 100))
    axes.tick_params(axis="y", labelsize=8)
    figure.legend(loc="outside right center", fontsize=8)
    chart.save(figure, path)


BENCHMARK = Benchmark.of(
    "Where the time of the graphs goes", measure, report, draw, options, ("torch", "onnxruntime", "onnx", "numpy")
)

if __name__ == "__main__":
    BENCHMARK.main()
