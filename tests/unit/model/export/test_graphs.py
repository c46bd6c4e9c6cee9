"""Files of a graph for several buckets."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from artifact.backends.onnx import OnnxBackend
from model.export.graphs import check_graph, eager, write_graph
from model.tasks.graphs import ExportGraph, golden_documents

BUCKETS = (8, 16, 32, 64)


class Sums(nn.Module):
    """Weighted sums of the bytes of documents."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 1, 2 * 256).reshape(256, 2))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Sums (B, 2) of documents (B, N) of `lengths` bytes (B,)."""
        is_real = torch.arange(document.shape[1]) < lengths.unsqueeze(1)
        return (nn.functional.embedding(document.long(), self.weight) * is_real.unsqueeze(-1)).sum(dim=1)


@pytest.mark.parametrize(("count", "own"), [(0, []), (1, [8]), (2, [8, 16]), (9, [8, 16, 32])])
def test_short_buckets_but_never_the_last_have_files_of_their_own(count: int, own: list[int], tmp_path: Path) -> None:
    source = ExportGraph("model", Sums(), golden_documents(BUCKETS[-1]), ("logits",), BUCKETS, num_short=count)
    outputs = eager(source)
    graph = write_graph(source, outputs, tmp_path)
    check_graph(source, graph, outputs, tmp_path, tolerance=1e-6)
    paths = {bucket: file.path for bucket, file in graph.files_of("onnx").items()}
    assert paths == {bucket: f"model.{bucket}.onnx" if bucket in own else "model.onnx" for bucket in BUCKETS}
    for bucket in own:
        (shape,) = [one.type.tensor_type.shape for one in onnx.load(tmp_path / paths[bucket]).graph.input[:1]]
        assert shape.dim[1].dim_value == bucket
    backend = OnnxBackend({bucket: tmp_path / path for bucket, path in paths.items()}, graph)
    for bucket in BUCKETS:
        document = np.arange(bucket, dtype=np.uint8)[None]
        (found,) = backend.run({"bytes": document, "lengths": np.array([bucket], np.int32)}).values()
        assert found == pytest.approx(np.linspace(0, 1, 512).reshape(256, 2)[:bucket].sum(0, keepdims=True), rel=1e-6)
