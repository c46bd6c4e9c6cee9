"""TorchScript in PyTorch, on CPU or CUDA. The only module of the serving path that imports torch."""

from pathlib import Path
from typing import Literal

import torch

from artifact.backends.base import Array, Device, Tensors, first_line
from artifact.errors import BadExport
from artifact.manifest import Graph


class TorchScriptBackend:
    """One frozen module per file; several buckets may share a file."""

    def __init__(self, files: dict[int, Path], graph: Graph, *, device: Device) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise BadExport("device cuda: PyTorch finds no CUDA device", "backend")
        self.device: Literal["cpu", "cuda"] = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
        self._names = [spec.name for spec in graph.inputs]
        self._outputs = [spec.name for spec in graph.outputs]
        torch.set_num_threads(1)  # parallelism comes from concurrent batches
        try:
            modules = {path: torch.jit.load(path, map_location=self.device).eval() for path in set(files.values())}
        except RuntimeError as error:
            raise BadExport(f"a TorchScript file cannot be loaded: {first_line(error)}", "backend") from None
        for module in modules.values():
            _use_device(module, self.device)
        self._modules = {bucket: modules[path] for bucket, path in files.items()}

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        """Compute one batch, padded to one of the buckets."""
        del limit_s
        tensors = [torch.from_numpy(inputs[name]).to(self.device) for name in self._names]
        with torch.inference_mode():
            found = self._modules[inputs[self._names[0]].shape[1]](*tensors)
        outputs = found if isinstance(found, tuple) else (found,)
        return {name: output.cpu().numpy() for name, output in zip(self._outputs, outputs, strict=True)}


def _use_device(module: torch.jit.ScriptModule, device: str) -> None:
    """Create the tensors of a traced graph on `device`: tracing stored the device of the example, the CPU."""
    for node in module.graph.findAllNodes("prim::Constant"):  # type: ignore[attr-defined]
        if node.outputsAt(0).type().kind() == "DeviceObjType":
            node.s_("value", device)
