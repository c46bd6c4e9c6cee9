"""`python -m model export`: a run folder -> exports/<name>/<version>/, checked on every backend."""

import argparse
import io
import json
import logging
import os
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.classifier import TextClassifier
from model.config import RunConfig
from model.data.documents import data_terms
from model.errors import ExportMismatch
from model.evaluate import evaluate_export
from model.training import checkpoint
from model.training.checkpoint import Progress
from service.backends import create_backend
from service.backends.base import largest_error
from service.codec import pad_rows
from service.manifest import MANIFEST, SCHEMA_VERSION, Format, Manifest, is_version, sha256_of

TOLERANCE = 1e-5
FILES: dict[Format, str] = {"onnx": "model.onnx", "torchscript": "model.ts"}


def export(args: argparse.Namespace) -> Path:
    """Export a run's best checkpoint as the next version; returns its folder.

    Everything is written to a temporary folder beside the versions and renamed at the end.

    Raises: UserError; BadExport if a backend does not load; ExportMismatch if eager, TorchScript and ONNX Runtime do
        not agree.

    """
    path = Path(args.run_folder) / "best.pt"
    config, progress, labels, state = checkpoint.load(path)
    model = TextClassifier(config.model, len(labels))
    checkpoint.load_weights(model, state, path)
    model.eval()

    versions = Path(args.out) / config.name
    versions.mkdir(parents=True, exist_ok=True)
    version = 1 + max((int(p.name) for p in versions.iterdir() if is_version(p)), default=0)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=versions))
    partial.chmod(0o755)
    try:
        golden = golden_inputs(config.model.seq_len)
        write_graphs(model, golden, partial)
        logits = eager(model, golden)
        np.savez(partial / "golden.npz", allow_pickle=False, **golden, logits=logits)
        manifest = _manifest(config, progress, labels, version, partial)
        check_agreement(manifest, partial, golden, logits)
        results = evaluate_export(manifest, partial, Path(args.data_dir), args.device)
        manifest = manifest.model_copy(update={"results": results})
        (partial / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
        os.rename(partial, versions / str(version))
    except BaseException:
        shutil.rmtree(partial)
        if not any(versions.iterdir()):
            versions.rmdir()
        raise
    print(f"exported {versions / str(version)}")
    return versions / str(version)


def golden_inputs(seq_len: int) -> dict[str, np.ndarray[Any, Any]]:
    """Synthetic documents: every length's edge, NUL bytes, text-like and arbitrary bytes.

    Shape:  bytes (8, seq_len) uint8, lengths (8,) int32.
    """
    generator = np.random.default_rng(0)
    text = bytes(generator.choice(list(b"etaoin shrdlu,.\n"), seq_len).tolist())
    noise = generator.bytes(seq_len)
    rows = [b"a", bytes(2), text[:17], text[: seq_len // 2], noise[: seq_len // 2 + 1], text[:-1], text, noise]
    padded, lengths = pad_rows(rows, seq_len)
    return {"bytes": padded, "lengths": lengths}


def eager(model: nn.Module, inputs: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Logits of the PyTorch model itself, shape (B, classes)."""
    with torch.inference_mode():
        output: Tensor = model(torch.from_numpy(inputs["bytes"]), torch.from_numpy(inputs["lengths"]))
    return output.numpy()


def write_graphs(model: nn.Module, golden: dict[str, np.ndarray[Any, Any]], folder: Path) -> None:
    """Write model.onnx (dynamic batch, weights inside) and model.ts (traced, frozen)."""
    example = tuple(torch.from_numpy(golden[name][:3]) for name in ("bytes", "lengths"))
    batch = torch.export.Dim("batch")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        warnings.filterwarnings("ignore", "# The axis name: batch will not be used", UserWarning)
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            model,
            example,
            dynamo=True,
            input_names=["bytes", "lengths"],
            output_names=["logits"],
            dynamic_shapes=({0: batch}, {0: batch}),
            verbose=False,
        )
        assert program is not None
        for node in program.model.graph:
            node.metadata_props.clear()  # stack traces, with paths of this machine
        program.save(folder / FILES["onnx"], external_data=False)
        traced = torch.jit.trace(model, example)  # type: ignore[no-untyped-call]
        scripted = io.BytesIO()
        torch.jit.save(torch.jit.freeze(traced), scripted)
    _copy_without_debug_tables(scripted, folder / FILES["torchscript"])


def _copy_without_debug_tables(script: io.BytesIO, path: Path) -> None:
    """Write a TorchScript archive without its stack traces, which hold paths of this machine."""
    with zipfile.ZipFile(script) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(entry, source.read(entry))


def check_agreement(
    manifest: Manifest, folder: Path, golden: dict[str, np.ndarray[Any, Any]], expected: np.ndarray[Any, Any]
) -> None:
    """Compare every backend with eager, in one batch and row by row. Raises: ExportMismatch."""
    for format in FILES:
        backend = create_backend(manifest, folder, format=format, device="cpu")
        together = backend.run(golden)["logits"]
        alone = [backend.run({k: v[i : i + 1] for k, v in golden.items()})["logits"] for i in range(len(expected))]
        for what, got in (("in one batch", together), ("row by row", np.concatenate(alone))):
            error = largest_error(got, expected)
            if not error <= manifest.tolerance:
                raise ExportMismatch(f"{format} {what} differs from eager by {error:.2e}; allowed {manifest.tolerance}")


def _manifest(config: RunConfig, progress: Progress, labels: list[str], version: int, folder: Path) -> Manifest:
    seq_len, last = config.model.seq_len, progress.history[-1]
    terms, non_commercial = data_terms(config.data.name)
    return Manifest.model_validate(
        {
            "schema_version": SCHEMA_VERSION,
            "name": config.name,
            "version": version,
            "task": config.task,
            "files": [
                {
                    "path": name,
                    "sha256": sha256_of(folder / name),
                    "format": format,
                    "precision": "float32",
                    "bucket": seq_len,
                }
                for format, name in FILES.items()
            ],
            "golden": {"path": "golden.npz", "sha256": sha256_of(folder / "golden.npz")},
            "inputs": [
                {"name": "bytes", "datatype": "UINT8", "shape": (-1, seq_len)},
                {"name": "lengths", "datatype": "INT32", "shape": (-1,)},
            ],
            "outputs": [{"name": "logits", "datatype": "FP32", "shape": (-1, len(labels))}],
            "labels": labels,
            "max_length": seq_len,
            "window_overlap": seq_len // 8,
            "tolerance": TOLERANCE,
            "training": {
                "recipe": json.loads(json.dumps(config.to_dict())),
                "data": config.data.name,
                "device": progress.device,
                "seconds": round(progress.seconds, 1),
                "documents_per_second": round(last["documents_per_second"], 1),
                "peak_memory_bytes": int(last["peak_memory_bytes"]),
                "validation_accuracy": round(progress.best_accuracy, 4),
                "revision": progress.revision,
            },
            "results": [],
            "data_terms": terms,
            "non_commercial": non_commercial,
        }
    )
