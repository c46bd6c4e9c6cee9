"""The graphs of the repository's exports have the operators that the current code writes for their recipes."""

import json
import shutil
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from artifact.exports import read_manifest, version_folder
from model.config.stored import from_stored
from model.export.graphs import eager, write_float16, write_graph
from model.export.operators import check_script
from model.nn.classifier import TwoViewClassifier
from model.nn.float16 import Float16Blocks
from model.nn.matcher import Matcher, ViewsMatcher
from model.nn.stem import NgramStem
from model.tasks import task_of
from model.tasks.graphs import ExportGraph
from model.tasks.two_views import NGRAMS
from tests.support.exported import has_attention, repeated_weights
from tests.support.paths import EXPORTS

SHIPPED = sorted(path.name for path in EXPORTS.iterdir() if path.is_dir())
QUICK = "ettm2"
"""Export whose graphs are written in every run; the scripts of all are traced in every run."""


def operators(path: Path) -> Counter[str]:
    """Count the operators of a graph and of the functions it calls.

    Without those that compute tables of one value: which tables these are depends on the weights.
    """
    model = onnx.load(path)
    nodes = chain(model.graph.node, *(function.node for function in model.functions))
    return Counter(node.op_type for node in nodes if node.op_type != "ConstantOfShape")


def script_operators(path: Path) -> Counter[str]:
    """Count the operators of a traced TorchScript file."""
    return Counter(node.kind() for node in torch.jit.load(path).inlined_graph.nodes() if "Constant" not in node.kind())


def facts_of(manifest: dict[str, Any]) -> dict[str, Any]:
    names = ("labels", "channels", "mean", "scale", "rate", "own_scale", "frequency")
    facts = {key: manifest[key] for key in names if key in manifest}
    chosen = manifest["training"].get("ngram_view")
    return facts | ({NGRAMS: chosen} if chosen is not None else {})


def sources_of(folder: Path) -> Sequence[ExportGraph]:
    """Return the graphs that the recipe of an export produces, without its weights."""
    manifest = json.loads((folder / "manifest.json").read_text())
    task = task_of(from_stored(manifest["training"]["recipe"]), facts_of(manifest))
    model = task.build().eval()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():  # the exporter would remove the multiplication by ones of an untrained model
                tensor.add_(0.03)
    if isinstance(model, TwoViewClassifier | Matcher | ViewsMatcher):  # tables have 8 or 16 bits after training
        model.quantise()
    return task.graphs(model)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICK else [pytest.mark.slow]) for name in SHIPPED]
)
def test_graphs_have_the_operators_that_the_recipe_produces(name: str, tmp_path: Path) -> None:
    folder = version_folder(EXPORTS / name)
    for source in sources_of(folder):
        with warnings.catch_warnings():
            write_graph(source, eager(source), tmp_path)
        written = sorted(path.name for path in tmp_path.glob(f"{source.name}.*onnx"))
        in_float32 = [path.name for path in folder.glob(f"{source.name}.*onnx") if "float16" not in path.name]
        assert written == sorted(in_float32)
        for file in written:
            assert operators(folder / file) == operators(tmp_path / file)
        script = f"{source.name}.ts"
        assert script_operators(folder / script) == script_operators(tmp_path / script)
        check_script(tmp_path / script)


@pytest.mark.parametrize("name", SHIPPED)
def test_scripts_have_the_operators_that_the_recipe_produces(name: str, tmp_path: Path) -> None:
    folder = version_folder(EXPORTS / name)
    for source in sources_of(folder):
        example = tuple(torch.from_numpy(array[:3]) for array in source.golden.values())
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(torch.jit.freeze(torch.jit.trace(source.module.eval(), example)), tmp_path / "traced.ts")
            assert script_operators(folder / f"{source.name}.ts") == script_operators(tmp_path / "traced.ts")


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("*/*/*.ts")), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_weights_are_stored_once(path: Path) -> None:
    assert repeated_weights(path) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_manifest_names_an_attention_if_the_graph_has_one(name: str) -> None:
    folder = version_folder(EXPORTS / name)
    encoder = read_manifest(folder).training.recipe["model"]["encoder"]
    assert (encoder is not None and encoder["num_layers"] > 0) == has_attention(folder / "model.onnx")


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("*/*/*.ts")), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_shipped_scripts_are_computed_on_cuda(path: Path) -> None:
    check_script(path)


@pytest.mark.parametrize(("name", "has_fixed_shapes"), [("imdb-s3", True), ("aan", False), ("ili", False)])
def test_graph_in_float16_is_made_of_those_for_cuda(name: str, has_fixed_shapes: bool) -> None:
    """The matcher's has no MatMulInteger, so that one file computes all batches."""
    source = sources_of(version_folder(EXPORTS / name))[0]
    half = source.in_float16()
    assert half is not None
    assert (half.name, half.buckets, half.outputs) == ("model.float16", source.buckets, source.outputs)
    for module in (half.module, half.fixed) if has_fixed_shapes else (half.module,):
        assert module is not None
        assert any(isinstance(part, Float16Blocks) for part in module.modules())
        assert all(part.avoids_int8 for part in module.modules() if isinstance(part, NgramStem))
    assert (half.fixed is not None) == has_fixed_shapes


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_float16_graphs_have_the_operators_that_the_recipe_produces(name: str, tmp_path: Path) -> None:
    folder = version_folder(EXPORTS / name)
    source = sources_of(folder)[0].in_float16()
    shipped = sorted(path.name for path in folder.glob("*.float16.*onnx"))
    if source is None:
        assert shipped == []
        return
    outputs, manifest = eager(source), read_manifest(folder)
    shutil.copy(folder / "model.onnx", tmp_path)
    graph = write_float16(source, outputs, manifest, tmp_path)
    assert graph.weights_from == "model.onnx"
    assert shipped == sorted(path.name for path in tmp_path.glob("*.float16.*onnx"))
    for file in shipped:
        assert operators(folder / file) == operators(tmp_path / file)


@pytest.mark.parametrize(
    ("name", "operator"),
    [("imdb-s3", "NonZero"), ("scotus", "NonZero"), ("un-debate", "NonZero"), ("aan", "MatMulInteger")],
)
def test_file_for_cuda_holds_few_weights(name: str, operator: str) -> None:
    folder = version_folder(EXPORTS / name)
    assert (folder / "model.fixed.onnx").stat().st_size < 0.05 * (folder / "model.onnx").stat().st_size
    assert operators(folder / "model.onnx")[operator]
    assert not operators(folder / "model.fixed.onnx")[operator]


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("*/*/*.onnx")), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_no_graph_contains_the_dft_operator(path: Path) -> None:
    """The operator is slow on CPUs, and CUDA does not support it."""
    assert not operators(path)["DFT"]
