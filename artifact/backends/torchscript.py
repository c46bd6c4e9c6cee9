"""TorchScript in PyTorch, on CPU or CUDA. The only module of the serving path that imports torch."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from torch import Tensor

from artifact.arrays import Array
from artifact.backends.base import Device, Tensors, first_line
from artifact.errors import BadExport
from artifact.files import open_regular
from artifact.manifest import FileName, Graph

SHARED = "shared.json"
"""Extra file of a TorchScript file: its list of `SharedTensor`. Older files have none."""


class SharedTensor(BaseModel):
    """A constant of a TorchScript file whose bytes are in another file of the export.

    In the graph, an empty tensor of its datatype and of shape (0, i) stands for number i of the list.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: FileName
    offset: int = Field(ge=0)
    """Where the bytes of its storage start in the file."""
    length: int = Field(ge=0)
    """Size of the storage in bytes."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    start: int
    """Its first element in the storage."""


SHARED_TENSORS = TypeAdapter(tuple[SharedTensor, ...])


class TorchScriptBackend:
    """One frozen module per file; several buckets may share a file."""

    def __init__(self, files: dict[int, Path], graph: Graph, *, device: Device) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise BadExport("device cuda: PyTorch finds no CUDA device", "backend")
        self.device: Literal["cpu", "cuda"] = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
        self._names = [spec.name for spec in graph.inputs]
        self._outputs = [spec.name for spec in graph.outputs]
        torch.set_num_threads(1)  # parallelism comes from concurrent batches
        modules = {path: load_module(path, self.device) for path in set(files.values())}
        self._modules = {bucket: modules[path] for bucket, path in files.items()}

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        """Compute one batch, padded to one of the buckets."""
        del limit_s
        tensors = [torch.from_numpy(inputs[name]).to(self.device) for name in self._names]
        with torch.inference_mode():
            found = self._modules[inputs[self._names[0]].shape[1]](*tensors)
        outputs = found if isinstance(found, tuple) else (found,)
        return {name: output.cpu().numpy() for name, output in zip(self._outputs, outputs, strict=True)}


def load_module(path: Path, device: str) -> torch.jit.ScriptModule:
    """Load a TorchScript file, with the weights that it takes from other files in its folder.

    Raises: BadExport if the file is not valid, or these weights cannot be read.
    """
    extra: dict[str, Any] = {SHARED: ""}
    try:
        module: torch.jit.ScriptModule = torch.jit.load(path, map_location=device, _extra_files=extra)
        module.eval()
        shared = SHARED_TENSORS.validate_json(extra[SHARED] or "[]")
        _fill(module, shared, path.parent, device)
    except (OSError, RuntimeError, ValueError, IndexError) as error:
        raise BadExport(f"{path.name} cannot be loaded: {first_line(error)}", "backend") from None
    _use_device(module, device)
    return module


def tensor_constants(module: torch.jit.ScriptModule) -> Iterator[Any]:
    """Yield the nodes of a frozen module that hold a tensor, their attribute `value`."""
    for node in module.graph.findAllNodes("prim::Constant"):  # type: ignore[attr-defined]
        if node.output().type().kind() == "TensorType":
            yield node


def _fill(module: torch.jit.ScriptModule, shared: Sequence[SharedTensor], folder: Path, device: str) -> None:
    """Replace the empty tensors that stand for shared ones. Raises: OSError, RuntimeError, ValueError or IndexError."""
    storages: dict[tuple[str, int, int], Tensor] = {}
    for node in tensor_constants(module) if shared else ():
        empty = node.t("value")
        if empty.ndim != 2 or empty.shape[0] != 0:
            continue
        tensor = shared[empty.shape[1]]
        place = (tensor.file, tensor.offset, tensor.length)
        if place not in storages:
            storages[place] = _read(folder / tensor.file, tensor.offset, tensor.length).to(device)
        values = storages[place].view(empty.dtype)
        node.t_("value", values.as_strided(tensor.shape, tensor.stride, tensor.start))


def _read(path: Path, offset: int, length: int) -> Tensor:
    """Read a part of a file as bytes (length,). Raises: OSError; ValueError if the file is too short."""
    too_short = ValueError(f"{path.name} has fewer than {offset + length} bytes")
    with open_regular(path) as stream:
        if os.fstat(stream.fileno()).st_size < offset + length:
            raise too_short
        storage = torch.empty(length, dtype=torch.uint8)
        stream.seek(offset)
        if stream.readinto(storage.numpy().data) != length:
            raise too_short
    return storage


def _use_device(module: torch.jit.ScriptModule, device: str) -> None:
    """Create the tensors of a traced graph on `device`: tracing stored the device of the example, the CPU."""
    for node in module.graph.findAllNodes("prim::Constant"):  # type: ignore[attr-defined]
        if node.outputsAt(0).type().kind() == "DeviceObjType":
            node.s_("value", device)
