"""`python -m model train`: a recipe -> a run folder with checkpoints, metrics and a learning curve."""

import argparse
import json
import re
import subprocess
from pathlib import Path

import torch

from model.cli.evaluate import choose_device
from model.config.run import S3_KEYS, EncoderConfig, RunConfig, from_dict, load_recipe
from model.data import own
from model.data.series import read_csv
from model.errors import UserError
from model.nn.attention import check_attention
from model.tasks import task_of
from model.training import checkpoint
from model.training.checkpoint import Progress
from model.training.loop import Fit, Job
from model.training.plot import learning_curve

RECIPES = Path(__file__).parents[1] / "recipes"
DEFAULTS = {"text-classification": "imdb-s3", "text-matching": "aan-s3", "forecasting": "ettm2-s3"}
OWN = {"text-classification": "documents", "text-matching": "pairs", "forecasting": "forecasting"}
"""Recipe of each task for data of one's own."""
LARGEST_BATCH = 64
FEWEST_STEPS = 700
"""Steps below which a small file is gone through more often."""
MOST_EPOCHS = 20
LONGEST_READ = 4096
"""Bytes read at once at most; windows cover what is longer."""
COVERED = 0.95
"""Share of the documents that are to fit."""
CONTEXTS = (96, 48, 24, 12)
"""Steps read from a series of one's own: the most of which it has ROWS_PER_STEP times as many."""
ROWS_PER_STEP = 15
PATCHES = 6
TEXTS = ("benchmarks/results", "docs", "*.md")
"""What a result may change without changing the code that gave it."""
SHORT_ROWS = 400
"""Rows below which validation gets a fifth instead of a tenth."""


def train(args: argparse.Namespace) -> Path:
    """Run or resume a training run; returns its folder. Raises: UserError."""
    device = choose_device(args.device)
    config = spelled_out(choose_recipe(args))
    folder = Path(args.runs) / f"{config.name}-seed{config.seed}"
    progress = state = None
    if args.resume:
        stored, progress, _, state = checkpoint.load(folder / "last.pt")
        if stored != config:
            raise UserError(f"{folder}/last.pt was trained with another recipe; resume with that one or start anew")
    elif folder.exists():
        raise UserError(
            f"{folder} exists; give --resume to go on with it, another name or place (--set name=..., --runs ...), or "
            "remove it"
        )

    task = task_of(config)
    task.load(Path(args.data or args.data_dir))
    if task.examples_per_epoch < config.training.batch_size:
        raise UserError(
            f"an epoch holds fewer than one batch, {config.training.batch_size}; lower training.batch_size or raise "
            "training.examples_per_epoch"
        )
    print(f"{task.describe()}, on {device}")
    torch.manual_seed(config.seed)
    torch.use_deterministic_algorithms(device.type == "cpu")
    model = task.build().to(device)
    if state is not None:
        checkpoint.load_weights(model, state, folder / "last.pt")
    else:
        task.initialise(model, device)
    folder.mkdir(parents=True, exist_ok=True)
    progress = progress or Progress(device=hardware(device), revision=git_revision())
    result = Fit(Job(config, task, model, folder, device), progress, state)()
    learning_curve(result.history, task.metric, folder / "learning_curve.png")
    last = result.history[-1]
    print(
        f"{folder}: best validation {task.metric} {result.best:.4f}, {last['examples_per_second']:.1f} {task.unit}/s, "
        f"peak memory {last['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    return folder


def spelled_out(config: RunConfig) -> RunConfig:
    """The recipe with all options of its attention, which the export is to record. Raises: UserError."""
    table, encoder = config.to_dict(), config.encoder
    table["model"]["encoder"]["options"] = check_attention(encoder)
    given = [name for name in S3_KEYS if getattr(encoder, name) != getattr(EncoderConfig, name)]
    if given and encoder.attention != "s3":
        print(f"{encoder.attention} does not look at {', '.join(given)} of model.encoder, which are s3's")
    return from_dict(table)


def choose_recipe(args: argparse.Namespace) -> RunConfig:
    """The recipe named, or the task's own; for own data with what the file tells. Raises: UserError."""
    overrides = list(args.set or [])
    if args.data is not None:
        if args.task is None or args.recipe is not None:
            raise UserError(f"--data goes with --task ({', '.join(OWN)}), and without a recipe")
        path, recipe = Path(args.data), RECIPES / f"{OWN[args.task]}.toml"
        if args.task == "forecasting":
            chosen = own_series(path, args.time_column)
        else:
            chosen = own_texts(path, args.task, tuple(args.text_column or ()), args.label_column)
        return load_recipe(recipe, [*chosen, *overrides])
    if args.recipe is None:
        args.recipe = DEFAULTS[args.task or "text-classification"]
    config = load_recipe(find_recipe(args.recipe), overrides)
    task = config.to_dict()["task"]
    if args.task not in (None, task):
        raise UserError(f"recipe {args.recipe} is for {task}, not {args.task}")
    return config


def own_series(path: Path, time_column: str) -> list[str]:
    """Overrides for a CSV file of one's own: context and horizon that its rows allow."""
    rows = len(read_csv(path, time_column)[2])
    validation = 0.1 if rows >= SHORT_ROWS else 0.2
    context = next((size for size in CONTEXTS if rows >= ROWS_PER_STEP * size), CONTEXTS[-1])
    return [
        f'name="{_name(path, "series")}"',
        f"data.time_column={json.dumps(time_column, ensure_ascii=False)}",
        f"data.train_fraction={0.8 - validation:.1f}",
        f"data.validation_fraction={validation}",
        f"model.context_length={context}",
        f"model.prediction_length={context}",
        f"model.patch_length={context // PATCHES}",
        f"model.encoder.seq_len={PATCHES}",
    ]


def own_texts(path: Path, task: str, text_columns: tuple[str, ...], label_column: str) -> list[str]:
    """Overrides for documents or pairs of one's own: batch, epochs and length that their number and lengths ask for."""
    is_pairs = task == "text-matching"
    columns = text_columns or (("text_a", "text_b") if is_pairs else ("text",))
    if len(columns) != 1 + is_pairs:
        raise UserError(f"--text-column: {task} needs {1 + is_pairs}, not {len(columns)}: {' '.join(columns)}")
    found = own.read(path, columns, label_column)
    rows = [row for row in found if row[2]] or found  # what has no label is left out
    sizes = sorted(len(text) for _, texts, _ in rows for text in texts)
    wanted = sizes[min(len(sizes) - 1, int(COVERED * len(sizes)))]
    length = next(size for size in (512, 1024, 2048, LONGEST_READ) if size >= min(wanted, LONGEST_READ))
    training = max(1, int(0.8 * len(rows)))
    batch = max(2, min(LARGEST_BATCH, training // 32 * 2))
    epochs = max(2, min(MOST_EPOCHS, round(FEWEST_STEPS * batch / training)))
    print(
        f"{len(rows)} rows, {sizes[len(sizes) // 2]:,} bytes in the median, {wanted:,} at {COVERED:.0%}: "
        f"{length:,} bytes are read at once, {batch} rows a batch, {epochs} epochs at most"
    )
    names = ("text_column", "other_column") if is_pairs else ("text_column",)
    return [
        f'name="{_name(path, "pairs" if is_pairs else "documents")}"',
        *(f"data.{key}={json.dumps(name, ensure_ascii=False)}" for key, name in zip(names, columns, strict=True)),
        f"data.label_column={json.dumps(label_column, ensure_ascii=False)}",
        *((f"data.max_bytes={length}",) if is_pairs else ()),
        f"model.encoder.seq_len={length // 16}",
        f"training.batch_size={batch}",
        f"training.epochs={epochs}",
    ]


def _name(path: Path, default: str) -> str:
    """Name of a model after its file."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.name.lower().partition(".")[0])[:64].strip("._-") or default


def hardware(device: torch.device) -> str:
    """Name the hardware for the manifest."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def git_revision() -> str:
    """Revision of the code, with `-dirty` if code has uncommitted changes; `unknown` outside a checkout."""
    try:
        revision = _git("describe", "--always", "--abbrev=12")
        paths = (":/", *(f":(top,exclude){path}" for path in TEXTS))
        is_dirty = _git("status", "--porcelain", "--untracked-files=no", "--", *paths)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{revision}-dirty" if is_dirty else revision


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def find_recipe(name: str) -> Path:
    """Path of a recipe given as a file, or as the name of one in model/recipes."""
    path = Path(name)
    if path.suffix == ".toml":
        return path
    if not (RECIPES / f"{name}.toml").is_file():
        known = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
        raise UserError(f"no recipe {name!r}; known: {known}, or give a .toml file")
    return RECIPES / f"{name}.toml"
