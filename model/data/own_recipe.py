"""Reads user texts and derives recipe keys from them: name, lengths, batch size, number of epochs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from artifact.encodings import RAW
from artifact.tables.reading import PARQUET
from artifact.tables.streams import kind_of
from model.config.data import DocumentsConfig, PairsConfig
from model.config.run import RUNS, MatchingRun
from model.config.schema import validated
from model.data import documents, pairs
from model.data.own import SPLIT_COLUMN, SPLITS, DataFiles, Example, OwnTexts, TextColumns, read_own
from model.errors import UserError

PAIRS_BATCH = 64
"""Maximum number of pairs in a batch of a matcher."""
FEWEST_STEPS = 700
"""Number of training steps of a matcher to reach: small files are trained for more epochs, up to MAX_EPOCHS."""
VIEW_BATCH = 32
"""Maximum number of documents in a batch of a classifier's vector view."""
ROUND_STEPS = 400
"""Number of training steps to reach in each round of a vector view."""
JOINT_BATCH, JOINT_STEPS = 64, 400
"""Largest batch of a matcher's joint view, and its number of training steps to reach. Of 1,500 steps on 4,400 pairs, it
was best on the validation pairs after 200."""
MAX_EPOCHS = 20
LENGTHS = tuple(256 << i for i in range(9))
"""Numbers of bytes that a classifier can be told to read at once: 256 to 65,536."""
LONGEST_READ = 4096
"""Maximum bytes that the model reads at once unless told otherwise; longer documents are split into windows."""
COVERED = 0.95
"""Fraction of the documents that should fit into one window."""
LONG = 0.1
"""Fraction of documents longer than LONGEST_READ above which training compares windows with the whole."""
WHOLE: dict[str, object] = {"sublinear": True, "max_strength": 3_000.0}
"""Keys of the n-gram view for rows longer than LONGEST_READ, as in the recipes of long documents."""
PREFIX_BYTES = 20_000_000
"""Size of the labelled documents up to which prefixes of words count, unless cross-validation leaves them out. With
more, each word is seen often enough, and counting the prefixes takes memory and time."""
LABELS_ALONE: dict[str, object] = {"sublinear": True, "tried": ["sublinear"], "max_strength": 300.0}
"""Keys of the n-gram view without unlabelled documents: counts of 1 + log k, unless cross-validation leaves them out,
and the largest C of the baseline. Draws of 100 and 300 training documents were more accurate on the training documents
left over with both, prefixes and these counts, than with the opposite start (the data sets of
benchmarks.models.own_documents)."""
BYTES_PER_TOKEN = 8
"""Bytes per token of the vector view: one or two words."""
LONGEST_SEQUENCE = 128
"""Maximum number of tokens of the vector view."""
BETA2 = 0.98
"""`training.beta2` of a vector view of bytes, as in the recipe `imdb-bytes`."""

RecipeKeys = dict[str, object]
"""Dotted key -> value."""


@dataclass(frozen=True)
class TextLayout:
    """How the user says that the files hold documents or pairs."""

    text_columns: tuple[str, ...] = ()
    """Default: text; for pairs text_a and text_b."""
    label_column: str = "label"
    group_column: str = ""
    """Column with the group of each document; empty if there are no groups."""
    label_separator: str = ""
    """What separates the labels of a document; empty for one label, or for lists of labels."""
    encoding: str = ""
    """Encoding of texts without a byte order mark."""
    max_bytes: int | None = None
    """Bytes that a classifier reads at once, one of LENGTHS; chosen from the lengths of the documents by default."""
    class_weights: str | None = None
    """`none` or `balanced`, of a classifier."""
    hard_negatives: int = 0
    """Number of negatives that are added for each pair that matches."""


def read_texts(
    task: str, files: DataFiles, layout: TextLayout, given: Mapping[str, object]
) -> tuple[RecipeKeys, OwnTexts]:
    """Read the user's files, and derive recipe keys from them. `given` are the keys that the user set, which win.

    Raises: UserError naming file and line, or the key that does not fit.
    """
    values, wanted = _columns(task, files, layout, given)
    texts = read_own(files, wanted)
    is_pairs, rows, keys = RUNS[task] is MatchingRun, _labelled(texts), _data_keys(values, texts, task)
    sizes, length = _sizes(rows), _length(rows, layout)
    may_be_whole = not is_pairs and layout.max_bytes is None and given.get("model.kind", "words") == "words"
    is_chosen = may_be_whole and sizes[int((1 - LONG) * len(sizes))] > length
    choice = ", or whole documents, as cross-validation chooses" if is_chosen else ""
    print(
        f"{len(rows)} rows, {sizes[len(sizes) // 2]:,} bytes in the median, {_covering(sizes):,} at {COVERED:.0%}: "
        f"{length:,} bytes are read at once{choice}"
    )
    return keys | (_pairs_keys(texts, length) if is_pairs else _documents_keys(texts, length, layout, given)), texts


def keys_of_bytes(
    task: str, files: DataFiles, layout: TextLayout, given: Mapping[str, object], texts: OwnTexts
) -> RecipeKeys | None:
    """Recipe keys for a model of bytes, from files of labelled texts that were read for a model of words.

    None if the files as they are hold other texts, with byte order marks or in UTF-16. Raises: UserError, as
    `read_texts`.
    """
    kind: RecipeKeys = {"model.kind": "bytes"}
    given = {**given, **kind}
    values, wanted = _columns(task, files, layout, given)
    paths = [path for path in (files.data, files.validation, files.test) if path is not None]
    # Tables of text are read alike for both; only documents in files of their own, and in Parquet, are bytes.
    has_bytes = any(path.is_dir() or kind_of(path.name) == PARQUET for path in paths)
    if has_bytes and _rows(read_own(files, wanted)) != _rows(texts):
        return None
    length = _length(_labelled(texts), layout)
    return {**_data_keys(values, texts, task), **_documents_keys(texts, length, layout, given), **kind}


def _columns(
    task: str, files: DataFiles, layout: TextLayout, given: Mapping[str, object]
) -> tuple[RecipeKeys, TextColumns]:
    """Keys of the section `data`, and the columns to read. Raises: UserError."""
    is_pairs = RUNS[task] is MatchingRun
    names = ("text_column", "other_column", "negative_column") if is_pairs else ("text_column",)
    columns = layout.text_columns or (("text_a", "text_b") if is_pairs else ("text",))
    if len(columns) not in ((2, 3) if is_pairs else (1,)):
        needed = "2, or 3 with texts that do not match" if is_pairs else "1"
        raise UserError(f"--text-column: {task} needs {needed}, not {len(columns)}: {' '.join(columns)}")
    reads_bytes = given.get("model.kind", "words") != "words"
    if reads_bytes and layout.encoding:
        raise UserError(
            f"--encoding must be left out for a model of bytes, which reads files as they are, not {layout.encoding}"
        )
    values: RecipeKeys = {
        **dict(zip(names, columns, strict=False)),
        "label_column": layout.label_column,
        "encoding": RAW if reads_bytes else layout.encoding,
        "split_column": "" if files.validation or files.test else SPLIT_COLUMN,
        "validation_file": files.validation is not None,
        "test_file": files.test is not None,
        **(
            {"hard_negatives": layout.hard_negatives}
            if is_pairs
            else {"group_column": layout.group_column, "label_separator": layout.label_separator}
        ),
    }
    chosen = {key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")}
    section = {"name": "own", **values, **chosen}
    if is_pairs:
        wanted = pairs.columns_of(validated(PairsConfig, "data", section))
    else:
        wanted = documents.columns_of(validated(DocumentsConfig, "data", section))
    wanted.check_distinct()
    return values, wanted


def _data_keys(values: RecipeKeys, texts: OwnTexts, task: str) -> RecipeKeys:
    """The name, and the keys of the section `data` for these texts."""
    if not any(row.split for row in texts.data.rows):
        values = {**values, "split_column": ""}
    keys: RecipeKeys = {"name": name_of(texts.data.path, "pairs" if RUNS[task] is MatchingRun else "documents")}
    return keys | {f"data.{key}": value for key, value in values.items()}


def _sizes(rows: Sequence[Example]) -> list[int]:
    """Lengths of the texts in bytes, ascending."""
    return sorted(len(text) for row in rows for text in row.texts)


def _covering(sizes: Sequence[int]) -> int:
    """Length that COVERED of the texts do not exceed."""
    return sizes[min(len(sizes) - 1, int(COVERED * len(sizes)))]


def _length(rows: Sequence[Example], layout: TextLayout) -> int:
    """Bytes to read at once: as the user says, or by the lengths of the texts."""
    wanted = min(_covering(_sizes(rows)), LONGEST_READ)
    return layout.max_bytes or next(size for size in (512, 1024, 2048, LONGEST_READ) if size >= wanted)


def _pairs_keys(texts: OwnTexts, length: int) -> RecipeKeys:
    """Length, kind of labels, batch size and epochs of a matcher."""
    rows = _labelled(texts)
    number = _training_rows(rows, texts)
    batch, epochs = _batch_and_epochs(number, PAIRS_BATCH, FEWEST_STEPS, fewest=2)
    joint_batch, joint_epochs = _batch_and_epochs(number, JOINT_BATCH, JOINT_STEPS, fewest=2)
    degrees = {pairs.degree_of(row.label) for rows in _rows(texts) for row in rows if row.label}
    return {
        "data.max_bytes": min(LENGTHS[-1], max(len(text) for row in rows for text in row.texts)),
        "data.graded": not degrees <= {None, *pairs.BINARY},
        "model.lexical_view.max_length": length,
        "model.encoder.seq_len": length // 16,
        "model.joint_view.training.batch_size": joint_batch,
        "model.joint_view.training.epochs": joint_epochs,
        "training.batch_size": batch,
        "training.epochs": epochs,
    }


def _documents_keys(texts: OwnTexts, length: int, layout: TextLayout, given: Mapping[str, object]) -> RecipeKeys:
    """Length and vector view of a classifier."""
    rows, is_words = _labelled(texts), given.get("model.kind", "words") == "words"
    keys: RecipeKeys = {"model.ngram_view.max_length": length}
    if layout.class_weights is not None:
        keys["model.ngram_view.class_weights"] = layout.class_weights
    if length > LONGEST_READ:
        keys |= {f"model.ngram_view.{key}": value for key, value in WHOLE.items()}
    elif any(row.several is not None for row in rows):  # how often the words of a topic occur tells it among several
        keys |= {"model.ngram_view.sublinear": True, "model.ngram_view.max_strength": 1_000.0}
    found = [row.texts[0] for row in rows]
    if texts.unlabelled is not None:
        unlabelled = {row.texts[0] for row in texts.unlabelled.rows}
        print(f"{len(unlabelled):,} different unlabelled texts")
        keys |= {"data.unlabelled": True, **_vector_view_keys([*found, *unlabelled], length)}
        if not is_words:
            keys["training.beta2"] = BETA2
    else:  # from labels alone, a vector view gains little and takes most of the time
        keys["model.vector_view.rounds"] = []
        keys = {f"model.ngram_view.{key}": value for key, value in LABELS_ALONE.items()} | keys
        if is_words and sum(map(len, found)) <= PREFIX_BYTES:
            keys |= {"model.ngram_view.prefixes": True, "model.ngram_view.tried": ["sublinear", "prefixes"]}
    if not is_words:  # tokens are patches of bytes, which fill a row
        patch = given.get("model.vector_view.bytes_per_token", BYTES_PER_TOKEN)
        read = given.get("model.ngram_view.max_length", length)
        if isinstance(patch, int) and isinstance(read, int) and patch > 0:
            keys["model.encoder.seq_len"] = max(1, read // patch)
    return keys


def _labelled(texts: OwnTexts) -> Sequence[Example]:
    """Rows of the training file with a label: the others are ignored. All rows if none has one."""
    return [row for row in texts.data.rows if row.label] or texts.data.rows


def _rows(texts: OwnTexts) -> list[Sequence[Example]]:
    """Rows of the labelled files."""
    return [file.rows for file in (texts.data, texts.validation, texts.test) if file is not None]


def _vector_view_keys(texts: list[bytes], length: int) -> RecipeKeys:
    """Keys of the vector view, from the number and the bytes of all texts."""
    size = sum(min(len(text), length) for text in texts)  # one crop of each is read
    batch, epochs = _batch_and_epochs(len(texts), VIEW_BATCH, ROUND_STEPS, fewest=1)
    print(f"vector view: {size / 1e6:.1f} MB are read, {batch} documents a batch, {epochs} epochs in each round")
    return {
        "model.encoder.seq_len": min(LONGEST_SEQUENCE, length // BYTES_PER_TOKEN),
        "model.vector_view.bytes_per_token": BYTES_PER_TOKEN,
        "training.batch_size": batch,
        "training.epochs": epochs,
    }


def _batch_and_epochs(documents: int, largest: int, steps: int, *, fewest: int) -> tuple[int, int]:
    """Batch size of at most `largest`, and number of epochs from `fewest` to MAX_EPOCHS, for about `steps` steps."""
    batch = max(2, min(largest, documents // 32 * 2))
    return batch, max(fewest, min(MAX_EPOCHS, round(steps * batch / documents)))


def _training_rows(rows: Sequence[Example], texts: OwnTexts) -> int:
    """Expected number of training rows, less a tenth for each other split that has no rows of its own; at least 1."""
    splits = [SPLITS.get(row.split.lower(), "train") for row in rows]
    given = {"validation", "test"} & {*splits}
    given |= {name for name, file in (("validation", texts.validation), ("test", texts.test)) if file is not None}
    return max(1, int((1 - 0.1 * (2 - len(given))) * splits.count("train")))


def name_of(path: Path, default: str) -> str:
    """Model name derived from the file name; from the folder of a file that is named after the training split."""
    stem = path.name.lower().partition(".")[0]
    if SPLITS.get(stem) == "train":
        stem = path.absolute().parent.name.lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem)[:64].strip("._-") or default
