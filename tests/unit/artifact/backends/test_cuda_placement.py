"""Where ONNX Runtime's CUDA provider places the nodes of the shipped graphs. Slow: it installs the package."""

from pathlib import Path

import pytest

from artifact.exports import read_manifest, version_folder
from artifact.loading import find_exports
from tests.support.cuda_without_gpu import CudaWithoutGpu
from tests.support.exported import files_for_cuda
from tests.support.paths import EXPORTS

SHAPE_OPERATORS = {
    *("Add", "Cast", "Concat", "Div", "Gather", "Max", "Min", "Mul"),
    *("Neg", "Reshape", "Shape", "Slice", "Squeeze", "Sub", "Unsqueeze"),
}
"""Arithmetic on a few numbers that become shapes."""


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> CudaWithoutGpu:
    return CudaWithoutGpu(tmp_path_factory.mktemp("cuda"))


@pytest.mark.slow
def test_cuda_can_record_every_graph(provider: CudaWithoutGpu) -> None:
    """The CUDA provider refuses to record a graph with a node or a copy on the CPU, except for shapes."""
    recorded = set[Path]()
    for folder in find_exports(EXPORTS):
        manifest = read_manifest(folder)
        for graph in (*manifest.graphs, manifest.in_precision("float16")):
            assert graph.fixed_shapes is not None
            recorded.add(folder / graph.fixed_shapes.path)
    paths = sorted(recorded)
    found = provider.left_to_cpu(paths, is_recorded=True)
    assert len(found) == len(paths) > 0
    assert {path: set(left) - SHAPE_OPERATORS for path, left in found.items() if set(left) - SHAPE_OPERATORS} == {}


@pytest.mark.slow
def test_cuda_leaves_only_shapes_to_the_cpu(provider: CudaWithoutGpu) -> None:
    paths = files_for_cuda()
    found = provider.left_to_cpu(paths)
    assert len(found) == len(paths) > 0
    assert {path: set(left) - SHAPE_OPERATORS for path, left in found.items() if set(left) - SHAPE_OPERATORS} == {}


@pytest.mark.slow
def test_cuda_leaves_the_sum_in_int8_to_the_cpu(provider: CudaWithoutGpu) -> None:
    """If this fails, CUDA computes MatMulInteger, and the matcher no longer needs a separate file."""
    ((_, left),) = provider.left_to_cpu([version_folder(EXPORTS / "aan") / "model.onnx"]).items()
    assert set(left) - SHAPE_OPERATORS == {"MatMulInteger"}


@pytest.mark.slow
def test_graph_that_waits_for_values_cannot_be_recorded(provider: CudaWithoutGpu) -> None:
    """The check can fail: the general graph of a classifier of words finds its words by their values."""
    path = version_folder(EXPORTS / "imdb-s3") / "model.onnx"
    ((_, left),) = provider.left_to_cpu([path], is_recorded=True).items()
    assert "cannot use the graph capture feature" in left[0]
