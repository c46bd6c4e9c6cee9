"""`python -m model train`: a recipe -> a run folder with checkpoints, metrics and a learning curve."""

import argparse
import subprocess
from functools import partial
from pathlib import Path

import torch
from torch import nn

from model.classifier import TextClassifier
from model.config import RunConfig
from model.data.documents import Documents, DocumentSet, batches, load_training
from model.errors import UserError
from model.evaluate import choose_device, document_logits, module_runner
from model.training import checkpoint
from model.training.checkpoint import Progress
from model.training.loop import Fit, Job
from model.training.plot import learning_curve
from service.codec import combine

RECIPES = Path(__file__).parent / "recipes"
HEAD_DOCUMENTS = 256
"""Documents the head is initialised from."""


def train(args: argparse.Namespace) -> Path:
    """Run or resume a training run; returns its folder. Raises: UserError."""
    device = choose_device(args.device)
    recipe = args.recipe or ("imdb-s3" if device.type == "cuda" else "imdb-s3-cpu")
    config = RunConfig.load(find_recipe(recipe), args.set)
    folder = Path(args.runs) / f"{config.name}-seed{config.seed}"
    progress = state = None
    if args.resume:
        stored, progress, _, state = checkpoint.load(folder / "last.pt")
        if stored != config:
            raise UserError(f"{folder}/last.pt was trained with another recipe; resume with that one or start anew")
    elif folder.exists():
        raise UserError(f"{folder} exists; give --resume to go on with it, or remove it")

    data = load_training(config.data, Path(args.data_dir))
    if len(data.train) < config.training.batch_size:
        raise UserError(f"{len(data.train)} training documents are fewer than one batch, {config.training.batch_size}")
    torch.manual_seed(config.seed)
    torch.use_deterministic_algorithms(device.type == "cpu")
    model = TextClassifier(config.model, len(data.labels)).to(device)
    if state is not None:
        checkpoint.load_weights(model, state, folder / "last.pt")
    else:
        _standardise_head(model, config, data, device)
    folder.mkdir(parents=True, exist_ok=True)
    job = _job(config, model, data, folder, device)
    print(f"{len(data.train)} training and {len(data.validation)} validation documents, on {device}")
    progress = progress or Progress(device=hardware(device), revision=git_revision())
    result = Fit(job, progress, state)()
    learning_curve(result.history, folder / "learning_curve.png")
    last = result.history[-1]
    print(
        f"{folder}: best validation accuracy {result.best_accuracy:.4f}, "
        f"{last['documents_per_second']:.1f} documents/s, peak memory {last['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    return folder


def hardware(device: torch.device) -> str:
    """Name the hardware for the manifest."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def git_revision() -> str:
    """Revision of the code, with `-dirty` if it has uncommitted changes; `unknown` outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def find_recipe(name: str) -> Path:
    """Path of a recipe given as a file, or as the name of one in model/recipes."""
    path = Path(name)
    if path.suffix == ".toml":
        return path
    if not (RECIPES / f"{name}.toml").is_file():
        known = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
        raise UserError(f"no recipe {name!r}; known: {known}, or give a .toml file")
    return RECIPES / f"{name}.toml"


def accuracy(model: nn.Module, documents: Documents, seq_len: int, device: torch.device) -> float:
    """Share of documents whose windows, combined as when served, give the right label."""
    model.eval()
    logits = document_logits(module_runner(model, device), documents, seq_len, seq_len // 8)
    right = (int(combine(rows).argmax()) == label for rows, label in zip(logits, documents.labels, strict=True))
    return sum(right) / len(documents)


def _standardise_head(model: TextClassifier, config: RunConfig, data: DocumentSet, device: torch.device) -> None:
    """Initialise the head from the first documents of an epoch that training does not use."""
    count = min(HEAD_DOCUMENTS, len(data.train))
    documents, lengths, _ = next(batches(data.train, config.model.seq_len, count, config.data.crop, (config.seed, -1)))
    model.standardise_head(documents.to(device), lengths.to(device))


def _job(config: RunConfig, model: nn.Module, data: DocumentSet, folder: Path, device: torch.device) -> Job:
    training, seq_len = config.training, config.model.seq_len
    return Job(
        config=config,
        model=model,
        labels=data.labels,
        steps_per_epoch=len(data.train) // training.batch_size,
        training_batches=lambda epoch: batches(
            data.train, seq_len, training.batch_size, config.data.crop, (config.seed, epoch)
        ),
        validate=partial(accuracy, documents=data.validation, seq_len=seq_len, device=device),
        folder=folder,
        device=device,
    )
