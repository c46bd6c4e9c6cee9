"""`manifest.json`, the description of an export. Written by `model.export`, read by `artifact.exports`."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from artifact.errors import BadExport

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


class ManifestPart(BaseModel):
    """Base of what a manifest holds: frozen, without unknown fields and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelFile(ManifestPart):
    """One file of a graph with its weights."""

    path: FileName
    sha256: Sha256
    format: Format
    precision: Precision
    bucket: int = Field(gt=0)
    """Length of the inputs' second axis: bytes of a document's row, steps of a series' window, or numbers of a vector.
    A file that computes several lengths is listed once for each."""


class ArrayFile(ManifestPart):
    """One `.npz` archive of arrays."""

    path: FileName
    sha256: Sha256


class FixedShapes(ManifestPart):
    """An ONNX file of the same graph whose shapes depend on the shapes of its inputs only, not on their values.

    CUDA records such a graph and replays it. The file may take weights from `Graph.files`.
    """

    path: FileName
    sha256: Sha256
    for_all_batches: bool = False
    """Whether CUDA uses this file for unrecorded batches as well. It then never uses `Graph.files`, which contain an
    operator without a CUDA kernel."""


class TensorSpec(ManifestPart):
    """Name, Open Inference Protocol datatype and shape (-1 = any) of one tensor."""

    name: Text
    datatype: Literal["UINT8", "INT32", "FP32"]
    shape: tuple[int, ...]


class Graph(ManifestPart):
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


class Validation(ManifestPart):
    """Validation metric that selected the best epoch."""

    metric: str
    value: float


class Training(ManifestPart):
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
    splits_sha256: Sha256 | None = None
    """Fingerprint of the user's texts in training and validation; None for other data and older exports."""
    ngram_view: dict[str, Any] | None = None
    """What training chose for the n-gram view of a classifier of words; None for other models and older exports."""


class Baseline(ManifestPart):
    """What another model reached in the same measurement."""

    name: str
    value: float


COMPARED = re.compile(r"(?:^|, )([^:;]+?):? (-?\d+\.\d+)(?=[, ]|$)")
"""Name and value of a baseline in a part of `Result.compared_with`; semicolons separate the parts."""
SOURCE = re.compile(r"\d( \([^()]+\))$")
"""End of such a part: where its values are from."""


class Result(ManifestPart):
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
    baselines: tuple[Baseline, ...] = ()
    """The names and values in `compared_with`, from which they are read if they are not given."""

    @model_validator(mode="before")
    @classmethod
    def _read_baselines(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or "baselines" in raw or not isinstance(text := raw.get("compared_with"), str):
            return raw
        found = list[dict[str, Any]]()
        for part in text.split("; "):
            source = SOURCE.search(part)
            suffix = "" if source is None else source[1]
            found += [{"name": f"{name}{suffix}", "value": value} for name, value in COMPARED.findall(part)]
        return {**raw, "baselines": found}


class Float16(ManifestPart):
    """The fields of a manifest that differ if encoder blocks compute in float16, under the same names."""

    files: tuple[ModelFile, ...] = Field(min_length=1)
    """ONNX files."""
    fixed_shapes: FixedShapes
    weights_from: FileName
    golden: ArrayFile
    tolerance: float = Field(gt=0, le=MAX_TOLERANCE)
    results: tuple[Result, ...]


class ExportManifest(Graph):
    """Fields of every task's manifest. `files`, `inputs` and `outputs` are those of the main graph."""

    schema_version: Literal[2]
    task: str
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
    def reads_text(self) -> bool:
        """Whether files with inputs are text in some encoding; False for a model that reads any bytes."""
        return True

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


class TextManifest(ExportManifest):
    """A model that reads raw bytes; its inputs are `bytes` and `lengths`."""

    max_length: int = Field(gt=0)
    """Maximum number of bytes per row; longer documents are split into windows."""
    window_overlap: int = Field(ge=0)
    """Minimum overlap of neighbouring windows in bytes."""

    @property
    def reads_text(self) -> bool:
        """Whether the model looks for words or their parts, which it does not find in UTF-16; not bytes as tokens."""
        model = self.training.recipe.get("model")
        return not isinstance(model, dict) or model.get("kind") not in ("bytes", "paper")

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


def is_text(text: str) -> bool:
    """Whether a text is allowed as a label or channel name in a manifest."""
    return re.fullmatch(TEXT, text) is not None
