"""`manifest.json`: what `model` hands to `service`. Read at start by `service.exports`, written by `model.export`."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from service.errors import BadExport

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MAX_TOLERANCE = 1e-2
"""A larger one would make the golden check meaningless."""

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$")]
Format = Literal["onnx", "torchscript"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelFile(_Part):
    """One file with weights."""

    path: FileName
    sha256: Sha256
    format: Format
    precision: Literal["float32"]
    bucket: int = Field(gt=0)
    """Row length in bytes that the file computes."""


class GoldenFile(_Part):
    """Synthetic inputs with the outputs they must give."""

    path: FileName
    sha256: Sha256


class TensorSpec(_Part):
    """Name, Open Inference Protocol datatype and shape (-1 = any) of one tensor."""

    name: str
    datatype: Literal["UINT8", "INT32", "FP32"]
    shape: tuple[int, ...]


class Training(_Part):
    """How the weights came to be."""

    recipe: dict[str, Any]
    data: str
    device: str
    seconds: float
    documents_per_second: float
    peak_memory_bytes: int
    validation_accuracy: float
    revision: str
    """Git revision of the code that trained."""


class Result(_Part):
    """One measured figure."""

    metric: str
    value: float
    split: str
    examples: int
    condition: str
    """What was done with documents longer than the model reads."""
    seeds: tuple[int, ...]
    compared_with: str


class Manifest(_Part):
    """The whole file."""

    schema_version: Literal[1]
    name: Name
    version: int = Field(gt=0)
    task: Literal["text-classification"]
    files: tuple[ModelFile, ...] = Field(min_length=1)
    golden: GoldenFile
    inputs: tuple[TensorSpec, TensorSpec]
    """Bytes and lengths."""
    outputs: tuple[TensorSpec]
    labels: tuple[str, ...] = Field(min_length=2)
    max_length: int = Field(gt=0)
    """Bytes of a document that the model reads at once; windows cover the rest."""
    window_overlap: int = Field(ge=0)
    """Bytes that two neighbouring windows share at least."""
    tolerance: float = Field(gt=0, le=MAX_TOLERANCE)
    """Largest |a - b| / max(1, max|b|) between two backends, and between a start and the golden outputs."""
    training: Training
    results: tuple[Result, ...]
    data_terms: str
    non_commercial: bool

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        """What the engine relies on: it would fail only while serving."""
        if self.window_overlap >= self.max_length:
            raise ValueError(f"window_overlap {self.window_overlap} must be below max_length {self.max_length}")
        for format in {file.format for file in self.files}:
            longest = max(file.bucket for file in self.files if file.format == format)
            if longest < self.max_length:
                raise ValueError(f"the longest {format} bucket is {longest}, below max_length {self.max_length}")
        if self.outputs[0].shape != (-1, len(self.labels)):
            raise ValueError(f"{len(self.labels)} labels do not fit outputs of shape {self.outputs[0].shape}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ")
        return self

    def files_of(self, format: Format) -> dict[int, ModelFile]:
        """Files of one format by bucket. Raises: BadExport if there is none."""
        files = {file.bucket: file for file in self.files if file.format == format}
        if not files:
            raise BadExport(f"{self.name} {self.version}: the export holds no {format} file", "manifest")
        return files


def read_manifest(folder: Path) -> Manifest:
    """Read and check `manifest.json` and the hash of every file it names.

    Raises: BadExport, one line that names the folder and the file.
    """
    place = f"{folder.parent.name}/{folder.name}"
    try:
        raw = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise BadExport(f"{place}: {MANIFEST} is missing", "missing") from None
    except (OSError, ValueError, RecursionError):
        raise BadExport(f"{place}: {MANIFEST} is not readable JSON", "manifest") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BadExport(
            f"{place}: {MANIFEST} has schema version {version}; this service reads {SCHEMA_VERSION}", "schema"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise BadExport(f"{place}: {MANIFEST}: {key}: {first['msg']}", "manifest") from None
    if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
        raise BadExport(f"{place}: {MANIFEST} names {manifest.name}/{manifest.version}", "manifest")
    hashes = [(file.path, file.sha256) for file in manifest.files] + [(manifest.golden.path, manifest.golden.sha256)]
    for path, expected in hashes:
        _check_hash(folder / path, expected, place)
    return manifest


def is_version(path: Path) -> bool:
    """Whether a folder's name is a positive integer as `model.export` writes it."""
    return path.is_dir() and path.name.isascii() and path.name.isdigit() and path.name[0] != "0"


def newest_version(folder: Path) -> Path:
    """Folder of an export's highest version, given that folder or the one above it. Raises: BadExport."""
    if (folder / MANIFEST).is_file():
        return folder.resolve()
    versions = [path for path in folder.iterdir() if is_version(path)] if folder.is_dir() else []
    if not versions:
        raise BadExport(f"{folder} is not an export", "missing")
    return max(versions, key=lambda path: int(path.name))


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_hash(path: Path, expected: str, place: str) -> None:
    """Compare a file with its hash."""
    if path.exists() and not path.is_file():
        raise BadExport(f"{place}: {path.name} is not a regular file", "missing")
    try:
        found = sha256_of(path)
    except FileNotFoundError:
        raise BadExport(f"{place}: {path.name} is missing", "missing") from None
    except OSError as error:
        raise BadExport(f"{place}: {path.name} cannot be read: {error.strerror}", "missing") from None
    if found != expected:
        raise BadExport(f"{place}: {path.name} has sha256 {found[:12]}…, the manifest says {expected[:12]}…", "hash")
