"""Keys of a recipe that follow from a file or folder of one's own: its name, lengths and number of rows."""

import re
from dataclasses import dataclass
from pathlib import Path

from model.data import own
from model.data.series import read_csv
from model.errors import UserError

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
SHORT_ROWS = 400
"""Rows below which validation gets a fifth instead of a tenth."""

Settings = dict[str, object]
"""Key with its sections -> value."""


@dataclass(frozen=True)
class OwnData:
    """A file or folder of one's own, and the columns of it that count."""

    path: Path
    text_columns: tuple[str, ...] = ()
    """By default text, and for pairs text_a and text_b."""
    label_column: str = "label"
    time_column: str = ""
    """By default the first."""


def settings_for(task: str, data: OwnData) -> Settings:
    """What the data say about the recipe of a task. Raises: UserError naming file and line."""
    return _of_series(data) if task == "forecasting" else _of_texts(data, is_pairs=task == "text-matching")


def _of_series(data: OwnData) -> Settings:
    """Context and horizon that the rows allow."""
    rows = len(read_csv(data.path, data.time_column)[2])
    validation = 0.1 if rows >= SHORT_ROWS else 0.2
    context = next((size for size in CONTEXTS if rows >= ROWS_PER_STEP * size), CONTEXTS[-1])
    return {
        "name": _name(data.path, "series"),
        "data.time_column": data.time_column,
        "data.train_fraction": round(0.8 - validation, 1),
        "data.validation_fraction": validation,
        "model.context_length": context,
        "model.prediction_length": context,
        "model.patch_length": context // PATCHES,
        "model.encoder.seq_len": PATCHES,
    }


def _of_texts(data: OwnData, *, is_pairs: bool) -> Settings:
    """Batch, epochs and length that the number of rows and their lengths ask for."""
    columns = data.text_columns or (("text_a", "text_b") if is_pairs else ("text",))
    if len(columns) != 1 + is_pairs:
        task = "text-matching" if is_pairs else "text-classification"
        raise UserError(f"--text-column: {task} needs {1 + is_pairs}, not {len(columns)}: {' '.join(columns)}")
    found = own.read(data.path, columns, data.label_column)
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
    names = ("data.text_column", "data.other_column") if is_pairs else ("data.text_column",)
    return {
        "name": _name(data.path, "pairs" if is_pairs else "documents"),
        **dict(zip(names, columns, strict=True)),
        "data.label_column": data.label_column,
        **({"data.max_bytes": length} if is_pairs else {}),
        "model.encoder.seq_len": length // 16,
        "training.batch_size": batch,
        "training.epochs": epochs,
    }


def _name(path: Path, default: str) -> str:
    """Name of a model after its file."""
    return re.sub(r"[^a-z0-9._-]+", "-", path.name.lower().partition(".")[0])[:64].strip("._-") or default
