"""Derives recipe keys from user texts: name, lengths, batch size, number of epochs."""

import re
from dataclasses import dataclass
from pathlib import Path

from model.data import own
from model.data.own import NO_FILES, SPLIT_COLUMN, SPLITS, Columns, HeldOut, Row
from model.errors import UserError

PAIRS_BATCH = 64
"""Maximum number of pairs in a batch of a matcher."""
FEWEST_STEPS = 700
"""Number of training steps of a matcher to reach: small files are trained for more epochs, up to MAX_EPOCHS."""
VIEW_BATCH = 32
"""Maximum number of documents in a batch of a classifier's vector view."""
ROUND_STEPS = 400
"""Number of training steps to reach in each round of a vector view that also learns from unlabelled documents."""
LABELLED_STEPS = 3_000
"""Number of training steps to reach of a vector view that learns from labels alone."""
FEWEST_LABELLED = 5_000
"""Number of labelled documents below which a classifier has no vector view, unless there are unlabelled documents."""
MAX_EPOCHS = 20
LENGTHS = tuple(256 << i for i in range(9))
"""Numbers of bytes that a classifier can be told to read at once: 256 to 65,536."""
LONGEST_READ = 4096
"""Maximum bytes that the model reads at once unless told otherwise; longer documents are split into windows."""
COVERED = 0.95
"""Fraction of the documents that should fit into one window."""
BYTES_PER_TOKEN = 4
"""Bytes per token of the vector view, the length of a short word."""
LONGEST_SEQUENCE = 256
"""Maximum number of tokens of the vector view."""
WORD2VEC_BYTES = 50_000_000
"""Bytes that word2vec should read in all epochs; small files are read more often."""

Settings = dict[str, object]
"""Dotted key -> value."""


@dataclass(frozen=True)
class OwnData:
    """User data: the file or folder, and its columns."""

    path: Path
    text_columns: tuple[str, ...] = ()
    """Default: text; for pairs text_a and text_b."""
    label_column: str = "label"
    group_column: str = ""
    """Column with the group of each document; empty if there are no groups."""
    held_out: HeldOut = NO_FILES
    """Files of validation and test."""
    unlabelled: Path | None = None
    """File or folder of unlabelled documents."""
    encoding: str = ""
    """Encoding of texts without a byte order mark."""
    max_bytes: int | None = None
    """Bytes that a classifier reads at once, one of LENGTHS; chosen from the lengths of the documents by default."""


def settings_for(task: str, data: OwnData) -> Settings:
    """Recipe keys derived from the data of a task. Raises: UserError naming file and line."""
    return _text_settings(data, is_pairs=task == "text-matching")


def _text_settings(data: OwnData, *, is_pairs: bool) -> Settings:
    """Batch size, epochs and length, from the number of rows and their lengths."""
    columns = data.text_columns or (("text_a", "text_b") if is_pairs else ("text",))
    if len(columns) != 1 + is_pairs:
        task = "text-matching" if is_pairs else "text-classification"
        raise UserError(f"--text-column: {task} needs {1 + is_pairs}, not {len(columns)}: {' '.join(columns)}")
    has_files = data.held_out != NO_FILES
    split_column = "" if has_files else SPLIT_COLUMN
    found = own.read(data.path, Columns(columns, data.label_column, split_column, data.group_column, data.encoding))
    rows = [row for row in found if row.label] or found  # rows without a label are ignored
    sizes = sorted(len(text) for row in rows for text in row.texts)
    wanted = sizes[min(len(sizes) - 1, int(COVERED * len(sizes)))]
    length = data.max_bytes or next(
        size for size in (512, 1024, 2048, LONGEST_READ) if size >= min(wanted, LONGEST_READ)
    )
    training = max(1, _training_rows(rows, data.held_out))
    print(
        f"{len(rows)} rows, {sizes[len(sizes) // 2]:,} bytes in the median, {wanted:,} at {COVERED:.0%}: "
        f"{length:,} bytes are read at once"
    )
    names = ("data.text_column", "data.other_column") if is_pairs else ("data.text_column",)
    settings: Settings = {
        "name": name_of(data.path, "pairs" if is_pairs else "documents"),
        **dict(zip(names, columns, strict=True)),
        "data.label_column": data.label_column,
        "data.encoding": data.encoding,
        "data.split_column": SPLIT_COLUMN if any(row.split for row in found) else "",
        "data.validation_file": data.held_out.validation is not None,
        "data.test_file": data.held_out.test is not None,
    }
    if is_pairs:
        batch, epochs = _batch_and_epochs(training, PAIRS_BATCH, FEWEST_STEPS, fewest=2)
        print(f"{batch} rows a batch, {epochs} epochs at most")
        return settings | {
            "data.max_bytes": length,
            "model.encoder.seq_len": length // 16,
            "training.batch_size": batch,
            "training.epochs": epochs,
        }
    settings |= {"data.group_column": data.group_column, "model.ngram_view.max_length": length}
    if length > LONGEST_READ:  # as in the recipes of long documents
        settings |= {"model.ngram_view.sublinear": True, "model.ngram_view.max_strength": 3_000.0}
    texts = [row.texts[0] for row in rows]
    if data.unlabelled is not None:
        unlabelled = {row.texts[0] for row in own.read(data.unlabelled, Columns(columns, encoding=data.encoding))}
        print(f"{len(unlabelled):,} different unlabelled texts")
        settings |= {"data.unlabelled": True, **_vector_view_settings([*texts, *unlabelled], length, ROUND_STEPS)}
    elif training < FEWEST_LABELLED:
        settings["model.vector_view.rounds"] = []
    else:  # later rounds would have no better teacher
        settings |= {**_vector_view_settings(texts, length, LABELLED_STEPS), "model.vector_view.rounds": [{}]}
    return settings


def _vector_view_settings(texts: list[bytes], length: int, steps: int) -> Settings:
    """Keys of the vector view, from the number and the bytes of all texts, for at least `steps` steps in each round."""
    size = sum(min(len(text), length) for text in texts)  # one crop of each is read
    batch, epochs = _batch_and_epochs(len(texts), VIEW_BATCH, steps, fewest=1)
    print(f"vector view: {size / 1e6:.1f} MB are read, {batch} documents a batch, {epochs} epochs in each round")
    return {
        "model.encoder.seq_len": min(LONGEST_SEQUENCE, length // BYTES_PER_TOKEN),
        "model.vector_view.bytes_per_token": BYTES_PER_TOKEN,
        "model.vector_view.vectors.epochs": max(4, min(MAX_EPOCHS, round(WORD2VEC_BYTES / max(1, size)))),
        "training.batch_size": batch,
        "training.epochs": epochs,
    }


def _batch_and_epochs(documents: int, largest: int, steps: int, *, fewest: int) -> tuple[int, int]:
    """Batch size of at most `largest`, and number of epochs from `fewest` to MAX_EPOCHS, for about `steps` steps."""
    batch = max(2, min(largest, documents // 32 * 2))
    return batch, max(fewest, min(MAX_EPOCHS, round(steps * batch / documents)))


def _training_rows(rows: list[Row], held_out: HeldOut) -> int:
    """Expected number of training rows, less a tenth for each other split that has no rows of its own."""
    splits = {row.split.lower() for row in rows}
    given = {SPLITS[split] for split in splits if split in SPLITS}
    given |= {name for name in ("validation", "test") if getattr(held_out, name) is not None}
    missing = 2 - len(given & {"validation", "test"})
    return int((1 - 0.1 * missing) * sum(SPLITS.get(row.split.lower(), "train") == "train" for row in rows))


def name_of(path: Path, default: str) -> str:
    """Model name derived from the file name; from the folder of a file that is named after the training split."""
    stem = path.name.lower().partition(".")[0]
    if SPLITS.get(stem) == "train":
        stem = path.absolute().parent.name.lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem)[:64].strip("._-") or default
