"""A transformer of DistilBERT's size with random weights, for its speed. Used by `benchmarks.models.alternatives`."""

from pathlib import Path

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from benchmarks.serving.classifiers import MAX_TOKENS, MODEL, VOCABULARY

DIM, HEADS, HIDDEN, LAYERS = 768, 12, 3072, 6


class Layer(nn.Module):
    """Post-norm transformer layer with softmax attention.

    Shape:      x (1, T, DIM); returns the same.
    Reference:  Devlin et al. 2019, arXiv:1810.04805, whose layers DistilBERT has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(3))
        self.output = nn.Linear(DIM, DIM)
        self.attention_norm = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, DIM))
        self.mlp_norm = nn.LayerNorm(DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Transform (1, T, DIM) -> (1, T, DIM)."""
        query, key, value = (
            projection(x).view(1, -1, HEADS, DIM // HEADS).transpose(1, 2) for projection in self.projections
        )
        weights = (query @ key.transpose(2, 3) * (DIM // HEADS) ** -0.5).softmax(dim=-1)  # (1, HEADS, T, T)
        mixed = (weights @ value).transpose(1, 2).reshape(1, -1, DIM)
        x = self.attention_norm(x + self.output(mixed))
        return self.mlp_norm(x + self.mlp(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Classifies a text by its first token.

    Shape:      tokens (1, T) int64, T <= 512; returns logits (1, 2).
    Reference:  Sanh et al. 2019, arXiv:1910.01108: 6 layers of BERT's width, without token types.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, DIM)
        self.positions = nn.Embedding(MAX_TOKENS, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (1, 2)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.positions(positions))
        return self.head(self.layers(x)[:, 0])  # type: ignore[no-any-return]


def export(folder: Path) -> None:
    """Write the graph in float32, for any number of tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    length = torch.export.Dim("length", min=2, max=MAX_TOKENS)
    torch.onnx.export(
        Transformer().eval(),
        (torch.zeros(1, 64, dtype=torch.int64),),
        folder / f"{MODEL}.onnx",
        input_names=["tokens"],
        output_names=["logits"],
        dynamic_shapes=({1: length},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def quantise(source: Path, folder: Path) -> None:
    """Write the graph with matrices in int8, and inputs quantised as they come (dynamic quantisation)."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = onnx.load(source / f"{MODEL}.onnx")
    del graph.graph.value_info[:]  # the exporter's shapes of transposed weights stop the quantiser
    quantize_dynamic(graph, folder / f"{MODEL}.onnx", weight_type=QuantType.QInt8)
