"""Graphs of a model: modules to export, their golden inputs, and functions that compute them."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.backends import create_backend
from artifact.backends.base import Device
from artifact.documents import ID_UNIT, WORD_FIELDS, pad_rows
from artifact.manifest import Graph
from model.nn.float16 import with_float16_blocks

Arrays = dict[str, NDArray[Any]]
GraphFunction = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]
"""A function that computes one graph: inputs by name -> its first output."""


@dataclass(frozen=True)
class ExportGraph:
    """A module that is exported as one graph."""

    name: str
    """Base name of its files: NAME.onnx, NAME.ts."""
    module: nn.Module
    golden: Arrays
    """Synthetic inputs, in the order of the module's arguments."""
    outputs: tuple[str, ...]
    """Names of the outputs."""
    buckets: tuple[int, ...]
    """Supported lengths of the inputs' second axis, ascending; the golden inputs have the last."""
    fixed: nn.Module | None = None
    """The same function for CUDA, with shapes that do not depend on values and with equal parameters. None if CUDA can
    use `module`."""
    fixed_for_all_batches: bool = False
    """Whether CUDA uses `fixed` for every batch: `module` has operators without a CUDA kernel or waits for values."""
    num_short: int = 0
    """Number of the shortest buckets that have an ONNX file of their own, NAME.LENGTH.onnx, in which the length is a
    constant; the last bucket never has."""

    def only(self, bucket: int) -> "ExportGraph":
        """The same graph for one bucket."""
        golden = {name: array[:, :bucket] if array.ndim == 2 else array for name, array in self.golden.items()}
        return replace(self, golden=golden, buckets=(bucket,))

    def in_float16(self) -> "ExportGraph | None":
        """The graph for CUDA with encoder blocks in float16, as NAME.float16; None if it has no blocks."""
        module, fixed = self.module, self.fixed
        if fixed is not None and self.fixed_for_all_batches:
            module, fixed = fixed, None
        converted = with_float16_blocks(module)
        if converted is None:
            return None
        other = None if fixed is None else with_float16_blocks(fixed)
        return ExportGraph(f"{self.name}.float16", converted, self.golden, self.outputs, self.buckets, other)


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an .npz file, compressed by LZMA, which NumPy reads: a quarter smaller than what NumPy writes.

    In one go: NumPy's own writer raises a second error on closing after the disk is full.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            target.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_LZMA)
    path.write_bytes(archive.getbuffer())


def module_functions(sources: Sequence[ExportGraph], device: torch.device) -> list[GraphFunction]:
    """PyTorch modules as `GraphFunction`s; moves them to `device` and sets evaluation mode."""
    return [_module_function(source.module.eval().to(device), list(source.golden), device) for source in sources]


def _module_function(module: nn.Module, names: Sequence[str], device: torch.device) -> GraphFunction:
    return lambda inputs: module_outputs(module, [inputs[name] for name in names], device)[0]


def module_outputs(
    module: nn.Module, inputs: Sequence[NDArray[Any]], device: torch.device
) -> list[NDArray[np.float32]]:
    """Outputs of a PyTorch module, which returns a tensor or a tuple of tensors."""
    with torch.inference_mode():
        outputs = module(*(torch.from_numpy(array).to(device) for array in inputs))
        return [output.cpu().numpy() for output in (outputs if isinstance(outputs, tuple) else (outputs,))]


def backend_function(graph: Graph, folder: Path, device: Device) -> GraphFunction:
    """A graph of an export as a `GraphFunction`, computed by the backend that serves it."""
    backend = create_backend(graph, folder, device=device)
    output = graph.outputs[0].name
    return lambda inputs: backend.run(inputs)[output]


def golden_documents(length: int) -> Arrays:
    """Synthetic documents: minimum and maximum lengths, NUL bytes, text-like and random bytes.

    Shape:  bytes (8, length) uint8, lengths (8,) int32.
    """
    generator = np.random.default_rng(0)
    text = bytes(generator.choice(list(b"etaoin shrdlu,.\n"), length).tolist())
    noise = generator.bytes(length)
    rows = [b"a", bytes(2), text[:17], text[: length // 2], noise[: length // 2 + 1], text[:-1], text, noise]
    padded, lengths = pad_rows(rows, length)
    return {"bytes": padded, "lengths": lengths}


def golden_encodings(dim: int, num_words: int) -> Arrays:
    """Random encodings of documents: a and b, both (8, dim + num_words * WORD_FIELDS) float32.

    The documents have from no words to all; one word in two is unknown, and the keys of most are also in the other
    document.
    """
    generator = np.random.default_rng(0)
    encodings = generator.standard_normal((2, 8, dim)).astype(np.float32)
    words = np.zeros((2, 8, num_words, WORD_FIELDS), np.float32)
    for document in np.ndindex(2, 8):
        count = num_words * document[1] // 7
        keys = np.sort(generator.choice(np.arange(1, num_words + num_words // 4 + 1), count, replace=False))
        whole = (keys + generator.integers(2, size=count)) * generator.choice((-1, 1), count)
        words[document][:count] = np.stack((keys * 2.0**-24, keys * (keys % 2) * ID_UNIT, whole * 2.0**-24), axis=1)
    both = np.concatenate((encodings, words.reshape(2, 8, -1)), axis=2)
    return dict(zip("ab", both, strict=True))


def golden_windows(length: int, channels: int) -> Arrays:
    """Random walks, including a constant one and one that is zero except at its end: (3, length, channels) float32."""
    generator = np.random.default_rng(0)
    series = generator.standard_normal((3, length, channels)).cumsum(axis=1).astype(np.float32)
    series[0], series[1, :-1] = 3.0, 0.0
    return {"series": series}
