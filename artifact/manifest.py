"""`manifest.json`, the description of an export. Written by `model.cli.export`, read by `artifact.loading`."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from artifact.errors import BadExport, InvalidInput
from artifact.files import open_regular, read_json_file
from artifact.series import IRREGULAR, PLAIN, Layout, Step, parse_frequency

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
MAX_VERSION = 2**53 - 1
"""Largest number that every reader of JSON keeps exactly."""
MAX_TOLERANCE = 1e-2
"""Maximum tolerance of the golden check; a larger one would make the check meaningless."""
MAX_FILE_BYTES = 2**31
"""Maximum size of a file. ONNX files are not larger: they are protobuf messages."""
MAX_EXPORT_BYTES = 4 * MAX_FILE_BYTES
"""Maximum size of the files of an export together; hashing them takes seconds."""

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
TEXT = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""Text without control characters, which could corrupt terminals and logs, and without bidirectional overrides."""
Text = Annotated[str, StringConstraints(pattern=TEXT)]
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
Name = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$")]
Format = Literal["onnx", "torchscript"]
Precision = Literal["float32", "float16"]
CalibrationSource = Literal["validation", "history"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelFile(_Part):
    """One file of a graph with its weights."""

    path: FileName
    sha256: Sha256
    format: Format
    precision: Precision
    bucket: int = Field(gt=0)
    """Length of the inputs' second axis: bytes of a document's row, steps of a series' window, or numbers of a vector.
    A file that computes several lengths is listed once for each."""


class ArrayFile(_Part):
    """One `.npz` archive of arrays."""

    path: FileName
    sha256: Sha256


class FixedShapes(_Part):
    """An ONNX file of the same graph whose shapes depend on the shapes of its inputs only, not on their values.

    CUDA records such a graph and replays it. The file may take weights from those in `Graph.weight_files`.
    """

    path: FileName
    sha256: Sha256
    for_all_batches: bool = False
    """Whether CUDA uses this file for unrecorded batches as well. It then never uses `Graph.files`, which contain an
    operator without a CUDA kernel."""


class TensorSpec(_Part):
    """Name, Open Inference Protocol datatype and shape (-1 = any) of one tensor."""

    name: Text
    datatype: Literal["UINT8", "INT32", "FP32"]
    shape: tuple[int, ...]


class Graph(_Part):
    """One computation graph, in every format and bucket."""

    files: tuple[ModelFile, ...] = Field(min_length=1)
    inputs: tuple[TensorSpec, ...] = Field(min_length=1)
    outputs: tuple[TensorSpec, ...] = Field(min_length=1)
    fixed_shapes: FixedShapes | None = None
    """None if there is no such file. It can be one of `files`."""
    weights_from: FileName | None = None
    """In float16: the ONNX file in float32 that holds the other weights."""

    @property
    def precision(self) -> Precision:
        """Precision of all files."""
        return self.files[0].precision

    @property
    def weight_files(self) -> frozenset[str]:
        """Names of the files that may hold weights of the ONNX files."""
        others = () if self.weights_from is None else (self.weights_from,)
        return frozenset((*(file.path for file in self.files), *others))

    @model_validator(mode="after")
    def _check_precision(self) -> Self:
        if len(found := sorted({file.precision for file in self.files})) > 1:
            raise ValueError(f"all files of a graph have one precision, not {' and '.join(found)}")
        return self

    def files_of(self, format: Format) -> dict[int, ModelFile]:
        """Files of one format, by bucket. Raises: BadExport if there is none."""
        files = {file.bucket: file for file in self.files if file.format == format}
        if not files:
            raise BadExport(f"the export holds no {format} file", "manifest")
        return files

    def cuda_files(self) -> dict[int, str]:
        """Name of the ONNX file of each bucket that CUDA uses for unrecorded batches.

        Raises: BadExport if there is no ONNX file.
        """
        paths = {bucket: file.path for bucket, file in self.files_of("onnx").items()}
        fixed = self.fixed_shapes
        return dict.fromkeys(paths, fixed.path) if fixed is not None and fixed.for_all_batches else paths


class Validation(_Part):
    """Validation metric that selected the best epoch."""

    metric: str
    value: float


class Training(_Part):
    """How the model was trained."""

    recipe: dict[str, Any]
    data: str
    device: str
    seconds: float
    examples_per_second: float
    """Training throughput in documents, pairs or windows per second, depending on the task."""
    peak_memory_bytes: int
    validation: Validation
    revision: str
    """Git revision of the training code."""
    data_sha256: Sha256 | None = None
    """Fingerprint of the user's data, to recognise the data when it is evaluated again; None for a public data set."""
    ngram_view: dict[str, Any] | None = None
    """What training chose for the n-gram view of a classifier of words; None for other models and older exports."""


class Result(_Part):
    """One measured value."""

    metric: str
    value: float
    split: str
    examples: int
    condition: str
    """Measurement condition: how documents longer than `max_length` were read (`windows` or `head`), kind of pairs, or
    forecast horizon."""
    seeds: tuple[int, ...]
    compared_with: str


class Float16(_Part):
    """The fields of a manifest that differ if encoder blocks compute in float16, under the same names."""

    files: tuple[ModelFile, ...] = Field(min_length=1)
    """ONNX files."""
    fixed_shapes: FixedShapes
    weights_from: FileName
    golden: ArrayFile
    tolerance: float = Field(gt=0, le=MAX_TOLERANCE)
    results: tuple[Result, ...]


class ReliabilityBin(_Part):
    """Test documents whose top score falls into one bin."""

    score: float
    """Mean top score."""
    accuracy: float
    """Share of correct answers."""
    examples: int


class _Export(Graph):
    """Fields of every task's manifest. `files`, `inputs` and `outputs` are those of the main graph."""

    schema_version: Literal[2]
    name: Name
    version: int = Field(gt=0, le=MAX_VERSION)
    golden: ArrayFile
    """Synthetic inputs and the expected outputs of every graph."""
    tolerance: float = Field(gt=0, le=MAX_TOLERANCE)
    """Maximum |a - b| / max(1, max|b|) between two backends, and between loaded model and golden outputs."""
    training: Training
    results: tuple[Result, ...]
    data_terms: Text
    non_commercial: bool
    float16: Float16 | None = None
    """None if the export is in float32 only."""

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, in one precision."""
        return (self,)

    @property
    def archives(self) -> tuple[ArrayFile, ...]:
        """All .npz archives, in one precision."""
        return (self.golden,)

    def in_precision(self, precision: Precision) -> Self:
        """The manifest with the files, golden outputs, tolerance and results of a precision.

        An export without float16 stays in float32.
        """
        if precision == "float32" or self.float16 is None:
            return self
        return self.model_copy(update={name: getattr(self.float16, name) for name in Float16.model_fields})

    def listed(self) -> Iterator[ModelFile | FixedShapes | ArrayFile]:
        """Yield the files of both precisions; a file may be listed several times."""
        yield from self.archives
        for graph in self.graphs:
            yield from graph.files
            if graph.fixed_shapes is not None:
                yield graph.fixed_shapes
        if self.float16 is not None:
            yield from self.float16.files
            yield self.float16.fixed_shapes
            yield self.float16.golden

    @model_validator(mode="after")
    def _check_float16(self) -> Self:
        """Check the precision of all files, and that float16 has the same buckets."""
        for graph in self.graphs:
            if graph.precision != "float32":
                raise ValueError(f"files have precision float32, not {graph.precision}")
            if graph.weights_from is not None:
                raise ValueError(f"weights_from is for `float16` only, not {graph.weights_from}")
        if self.float16 is None:
            return self
        files, weights = self.float16.files, self.float16.weights_from
        onnx = {file.bucket: file.path for file in self.files if file.format == "onnx"}
        if {(file.precision, file.format) for file in files} != {("float16", "onnx")}:
            raise ValueError("files of `float16` have precision float16 and format onnx")
        if (found := [file.bucket for file in files]) != (expected := sorted(onnx)):
            raise ValueError(f"files of `float16` have the buckets {found}, those in float32 {expected}")
        if weights not in onnx.values():
            raise ValueError(f"weights_from of `float16` is {weights}, not {' or '.join(sorted({*onnx.values()}))}")
        return self


class _TextExport(_Export):
    """A model that reads raw bytes; its inputs are `bytes` and `lengths`."""

    max_length: int = Field(gt=0)
    """Maximum number of bytes per row; longer documents are split into windows."""
    window_overlap: int = Field(ge=0)
    """Minimum overlap of neighbouring windows in bytes."""

    @property
    def reads_text(self) -> bool:
        """Whether the model looks for words or their parts, which it does not find in UTF-16; not bytes as tokens."""
        model = self.training.recipe.get("model")
        return not isinstance(model, dict) or model.get("kind") != "bytes"

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        """Check what serving relies on."""
        if (types := [spec.datatype for spec in self.inputs]) != ["UINT8", "INT32"]:
            raise ValueError(f"a text model's inputs are bytes UINT8 and lengths INT32, not {', '.join(types)}")
        if self.window_overlap >= self.max_length:
            raise ValueError(f"window_overlap {self.window_overlap} must be below max_length {self.max_length}")
        for format in {file.format for file in self.files}:
            longest = max(file.bucket for file in self.files if file.format == format)
            if longest < self.max_length:
                raise ValueError(f"the longest {format} bucket is {longest}, below max_length {self.max_length}")
        return self


class Stretches(_Part):
    """Parts of a document whose contributions to the logits are the second output of a classifier.

    The logits of a row are `base` plus the contributions of its stretches.
    """

    length: int = Field(gt=0)
    """Number of bytes of a stretch; the last one of a row may be shorter."""
    base: tuple[float, ...]
    """Part of the logits that is the same for all documents, (classes,)."""


class ClassifierManifest(_TextExport):
    """Documents -> labels."""

    task: Literal["text-classification"]
    labels: tuple[Text, ...] = Field(min_length=2)
    temperature: float = Field(default=1.0, gt=0)
    """Calibration temperature. The exported weights are already divided by it."""
    reliability: tuple[ReliabilityBin, ...] = ()
    """Mean score and accuracy on the test split, by score bin."""
    stretches: Stretches | None = None
    """None if the model returns logits only."""

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if self.outputs[0].shape != (-1, len(self.labels)):
            raise ValueError(f"{len(self.labels)} labels do not fit outputs of shape {self.outputs[0].shape}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ")
        return self

    @model_validator(mode="after")
    def _check_stretches(self) -> Self:
        shapes = tuple(spec.shape for spec in self.outputs[1:])
        if self.stretches is None:
            if shapes:
                raise ValueError(f"a second output needs `stretches`; outputs has {1 + len(shapes)}")
        elif len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][::2] != (-1, len(self.labels)):
            raise ValueError(f"`stretches` need one output of shape (-1, any, {len(self.labels)}), not {shapes}")
        elif len(self.stretches.base) != len(self.labels):
            raise ValueError(f"{len(self.labels)} labels do not fit a base of {len(self.stretches.base)} numbers")
        return self


class MatcherManifest(_TextExport):
    """Documents -> vectors; pairs of vectors -> scores."""

    task: Literal["text-matching"]
    min_length: int = Field(gt=0)
    """Minimum length of a document in bytes; the model has no features for a shorter one."""
    head: Graph
    """Vectors of two documents -> logit that the documents match."""

    @property
    def dim(self) -> int:
        """Dimension of a document's vector."""
        return self.outputs[0].shape[1]

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Graphs of the encoder and the head."""
        return (self, self.head)

    @model_validator(mode="after")
    def _check_head(self) -> Self:
        if len(self.outputs) != 1 or len(self.outputs[0].shape) != 2 or self.outputs[0].shape[1] < 1:
            found = ", ".join(str(spec.shape) for spec in self.outputs)
            raise ValueError(f"a matcher's output has shape (-1, dim), not {found}")
        expected = ((-1, self.dim), (-1, self.dim))
        if (shapes := tuple(spec.shape for spec in self.head.inputs)) != expected:
            raise ValueError(f"the head's inputs have shapes {shapes}; vectors need {expected}")
        if (outputs := tuple(spec.shape for spec in self.head.outputs)) != ((-1, 1),):
            raise ValueError(f"the head's output has shape (-1, 1), not {', '.join(map(str, outputs))}")
        if {file.format for file in self.head.files} != {file.format for file in self.files}:
            raise ValueError("encoder and head must come in the same formats")
        if {file.bucket for file in self.head.files} != {self.dim}:
            raise ValueError(f"the head's bucket must be {self.dim}, the length of a vector")
        return self


class ForecasterManifest(_Export):
    """Window of a multivariate series -> forecast."""

    task: Literal["forecasting"]
    channels: tuple[Text, ...] = Field(min_length=1)
    mean: tuple[float, ...]
    """Training mean of each channel; the model reads (value - mean) / scale."""
    scale: tuple[Annotated[float, Field(gt=0)], ...]
    context_length: int = Field(gt=1)
    """Number of steps the model reads."""
    horizon: int = Field(gt=0)
    """Maximum number of steps the model forecasts."""
    min_observations: int = Field(gt=1)
    """Minimum number of known values per channel in the context; missing values are imputed."""
    frequency: Text
    """Time step of the training data, such as 15min or 1mo; `irregular` if it varies or is unknown."""
    layout: Layout = PLAIN
    """How the table of the training data holds the series; `predict` reads other tables in the same way."""
    calibration: ArrayFile
    """Archive of `levels` (Q,) and `errors` (Q, horizon, channels), in scaled units."""
    calibration_source: CalibrationSource
    """Part of the series used for calibration: `validation` is the second half of the validation split; `history`
    includes earlier steps as well, even of the training split."""
    calibration_examples: int = Field(gt=0)
    """m: number of errors behind each quantile; levels outside [1 / (m + 1), m / (m + 1)] are not available."""
    quantiles_reliable: bool
    """Whether the 80 % band covered 70 % to 90 % of the test values at every horizon."""

    @property
    def archives(self) -> tuple[ArrayFile, ...]:
        """Archives of the golden outputs and the calibration."""
        return (self.golden, self.calibration)

    @cached_property
    def step(self) -> Step | None:
        """Time step of the training data; None if irregular or unknown."""
        return None if self.frequency == IRREGULAR else parse_frequency(self.frequency)

    def check_step(self, step: Step) -> None:
        """Check that a series has the time step of the training data. Raises: InvalidInput."""
        if self.step not in (None, step):
            raise InvalidInput.at("frequency", f"{self.name} expects one value every {self.frequency}")

    @model_validator(mode="after")
    def _check_frequency(self) -> Self:
        try:
            _ = self.step
        except InvalidInput as error:
            raise ValueError(f"{error}, or {IRREGULAR}") from None
        return self

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        count = len(self.channels)
        if len(set(self.channels)) != count:
            raise ValueError("channels must differ")
        if not len(self.mean) == len(self.scale) == count:
            raise ValueError(f"{count} channels need as many means and scales")
        if self.min_observations > self.context_length:
            raise ValueError(f"min_observations {self.min_observations} must be at most {self.context_length}")
        expected = ((-1, self.context_length, count), (-1, self.horizon, count))
        if (shapes := tuple(spec.shape for spec in (*self.inputs, *self.outputs))) != expected:
            raise ValueError(f"input and output have shapes {shapes}; expected {expected}")
        if {file.bucket for file in self.files} != {self.context_length}:
            raise ValueError(f"the bucket must be {self.context_length}, the context length")
        return self


Manifest = ClassifierManifest | MatcherManifest | ForecasterManifest
_ADAPTER: TypeAdapter[Manifest] = TypeAdapter(Annotated[Manifest, Field(discriminator="task")])


def parse_manifest(raw: object) -> Manifest:
    """Validate the content of a manifest. Raises: pydantic.ValidationError."""
    return _ADAPTER.validate_python(raw)


def read_manifest(folder: Path) -> Manifest:
    """Read and check `manifest.json` and the hash of every listed file; unlisted files are an error.

    Raises: BadExport; the message is one line that names the folder and the file.
    """
    place = f"{folder.parent.name}/{folder.name}"
    try:
        raw = json.loads(read_json_file(folder / MANIFEST))
    except FileNotFoundError:
        raise BadExport(f"{place}: {MANIFEST} is missing", "missing") from None
    except OSError as error:
        raise BadExport(f"{place}: {MANIFEST} cannot be read: {error.strerror}", "manifest") from None
    except (ValueError, RecursionError):
        raise BadExport(f"{place}: {MANIFEST} cannot be read as JSON", "manifest") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        raise BadExport(
            f"{place}: {MANIFEST} has schema version {version}; this service reads {SCHEMA_VERSION}", "schema"
        )
    try:
        manifest = parse_manifest(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(map(str, first["loc"][1:] if first["loc"] else ()))
        raise BadExport(f"{place}: {MANIFEST}: {key or 'task'}: {first['msg']}", "manifest") from None
    if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
        raise BadExport(f"{place}: {MANIFEST} names {manifest.name}/{manifest.version}", "manifest")
    files = list(manifest.listed())
    _check_sizes(folder, dict.fromkeys(file.path for file in files), place)
    for path, sha256 in dict.fromkeys((file.path, file.sha256) for file in files):
        _check_hash(folder / path, sha256, place)
    if unlisted := sorted({path.name for path in folder.iterdir()} - {MANIFEST, *(file.path for file in files)}):
        raise BadExport(f"{place}: {unlisted[0]!r} is not in {MANIFEST}; remove it", "unlisted")
    return manifest


def is_text(text: str) -> bool:
    """Whether a text is allowed as a label or channel name in a manifest."""
    return re.fullmatch(TEXT, text) is not None


def is_version(path: Path) -> bool:
    """Whether a folder's name is a version number: a positive integer without leading zeros."""
    return path.is_dir() and path.name.isascii() and path.name.isdigit() and path.name[0] != "0"


def versions_of(folder: Path) -> list[Path]:
    """Version folders in the folder of a model, highest first."""
    return sorted(filter(is_version, folder.iterdir()), key=lambda path: int(path.name), reverse=True)


def version_folder(folder: Path) -> Path:
    """`folder` itself if it is the folder of a version, otherwise its highest version. Raises: BadExport."""
    absolute = Path(os.path.abspath(folder))  # resolves `.`, but keeps the name of a symbolic link
    if (absolute / MANIFEST).is_file():
        return absolute
    versions = versions_of(absolute) if absolute.is_dir() else []
    if not versions:
        raise BadExport(f"{folder} is not an export", "missing")
    return versions[0]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file as a hexadecimal string. Raises: OSError."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_sizes(folder: Path, names: Iterable[str], place: str) -> None:
    """Check that the files are not too large to be hashed and loaded; missing ones are skipped. Raises: BadExport."""
    total = 0
    for name in names:
        with contextlib.suppress(OSError):
            size = (folder / name).stat().st_size
            total += size
            if size > MAX_FILE_BYTES:
                raise BadExport(f"{place}: {name} has {size} bytes; allowed {MAX_FILE_BYTES}", "size")
    if total > MAX_EXPORT_BYTES:
        raise BadExport(f"{place}: its files have {total} bytes together; allowed {MAX_EXPORT_BYTES}", "size")


def _check_hash(path: Path, expected: str, place: str) -> None:
    """Compare the SHA-256 of a file with the expected one. Raises: BadExport."""
    try:
        found = sha256_of(path)
    except FileNotFoundError:
        raise BadExport(f"{place}: {path.name} is missing", "missing") from None
    except OSError as error:
        raise BadExport(f"{place}: {path.name} cannot be read: {error.strerror}", "missing") from None
    if found != expected:
        raise BadExport(f"{place}: {path.name} has sha256 {found[:12]}…, the manifest says {expected[:12]}…", "hash")
