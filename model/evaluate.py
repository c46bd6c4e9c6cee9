"""`python -m model evaluate`: accuracy on the test split, the only place that reads it."""

import argparse
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm import tqdm

from model.classifier import TextClassifier
from model.data.documents import Documents, load_test
from model.errors import UserError
from model.training import checkpoint
from service.backends import create_backend
from service.codec import combine, cut, pad_rows, take
from service.manifest import Manifest, Result, newest_version, read_manifest

BATCH = 16

Run = Callable[[dict[str, NDArray[Any]]], NDArray[np.float32]]
"""Padded inputs -> logits (B, classes)."""

PUBLISHED = {"imdb": "S3Attention at 4,096 bytes, r = s1 = s2 = 8: 69.27 (paper, Table 1); TF-IDF bigrams + LR: 90.49"}


def evaluate(args: argparse.Namespace) -> None:
    """Measure a run's best checkpoint or an export on the test split; print a table and write JSON.

    Raises: BadExport if the folder is neither, or a damaged export.
    """
    folder = Path(args.folder)
    data_dir = Path(args.data_dir)
    if (folder / "best.pt").is_file():
        results = evaluate_run(folder, data_dir, args.device)
        target = folder / "evaluation.json"
        manifest = None
    else:
        folder = newest_version(folder)
        manifest = read_manifest(folder)
        results = evaluate_export(manifest, folder, data_dir, args.device)
        target = Path(args.out or f"evaluation-{manifest.name}-{manifest.version}.json")
    target.write_text(json.dumps([result.model_dump() for result in results], indent=2) + "\n")
    print(f"{'metric':<10}  {'on overflow':<12}  {'split':<6}  {'n':>6}  {'value':>8}  {'manifest':>8}")
    stated = {(r.metric, r.condition): r.value for r in manifest.results} if manifest else {}
    for r in results:
        known = stated.get((r.metric, r.condition))
        text = "" if known is None else f"{known:.4f}"
        print(f"{r.metric:<10}  {r.condition:<12}  {r.split:<6}  {r.examples:>6}  {r.value:>8.4f}  {text:>8}")
    print(f"written to {target}")


def evaluate_run(folder: Path, data_dir: Path, device: str) -> tuple[Result, ...]:
    """Measure a run's best checkpoint with PyTorch."""
    config, _, labels, state = checkpoint.load(folder / "best.pt")
    target = choose_device(device)
    model = TextClassifier(config.model, len(labels))
    checkpoint.load_weights(model, state, folder / "best.pt")
    model.eval().to(target)
    documents = load_test(config.data.name, data_dir)
    run = module_runner(model, target)
    return measure(run, documents, config.model.seq_len, config.model.seq_len // 8, (config.data.name, config.seed))


def choose_device(name: str) -> torch.device:
    """Resolve `auto`; refuse `cuda` where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device is available")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def module_runner(model: nn.Module, device: torch.device) -> Run:
    """Wrap a PyTorch model that lies on `device` and is in evaluation mode."""

    def run(inputs: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        with torch.inference_mode():
            tensors = (torch.from_numpy(inputs[name]).to(device) for name in ("bytes", "lengths"))
            output: NDArray[np.float32] = model(*tensors).cpu().numpy()
            return output

    return run


def evaluate_export(manifest: Manifest, folder: Path, data_dir: Path, device: Any) -> tuple[Result, ...]:
    """Measure an export with the backend that serves it."""
    backend = create_backend(manifest, folder, device=device)
    documents = load_test(manifest.training.data, data_dir)
    origin = (manifest.training.data, int(manifest.training.recipe["seed"]))

    def run(inputs: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        return backend.run(inputs)["logits"]

    return measure(run, documents, manifest.max_length, manifest.window_overlap, origin)


def measure(run: Run, documents: Documents, length: int, overlap: int, origin: tuple[str, int]) -> tuple[Result, ...]:
    """Accuracy with windows, as served by default, and with the head alone, from one pass.

    Args:
        run: the model.
        documents: the test split.
        length: bytes the model reads at once.
        overlap: bytes two windows share at least.
        origin: data set and seed of the model.

    """
    logits = document_logits(run, documents, length, overlap)
    data, seed = origin
    correct = {"windows": 0, "head": 0}
    for rows, label in zip(logits, documents.labels, strict=True):
        correct["windows"] += int(combine(rows).argmax()) == label
        correct["head"] += int(rows[0].argmax()) == label
    return tuple(
        Result(
            metric="accuracy",
            value=round(count / len(documents), 6),
            split="test",
            examples=len(documents),
            condition=condition,
            seeds=(seed,),
            compared_with=PUBLISHED.get(data, "nothing"),
        )
        for condition, count in correct.items()
    )


def document_logits(run: Run, documents: Documents, length: int, overlap: int) -> list[NDArray[np.float32]]:
    """Logits (rows, classes) of the windows of every document; the first window is its head."""
    cuts = [cut(len(text), length, overlap, "windows") for text in documents.texts]
    rows = [take(text, spans) for text, windows in zip(documents.texts, cuts, strict=True) for spans in windows]

    def batch_of(first: int) -> NDArray[np.float32]:
        padded, lengths = pad_rows(rows[first : first + BATCH], length)
        return run({"bytes": padded, "lengths": lengths})

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        starts = range(0, len(rows), BATCH)
        progress = tqdm(pool.map(batch_of, starts), total=len(starts), desc="test", unit="batch")
        table = np.concatenate(list(progress))
    return list(split(table, cuts))


def split(table: NDArray[np.float32], cuts: list[Any]) -> Iterator[NDArray[np.float32]]:
    """Give every document its rows of the table."""
    first = 0
    for windows in cuts:
        yield table[first : first + len(windows)]
        first += len(windows)
