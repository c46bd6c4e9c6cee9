"""The folder of an export: its manifest, its versions, and the hashes of its files."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import AfterValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from artifact.errors import BadExport
from artifact.files import open_regular, read_json_file
from artifact.manifest import MANIFEST, MAX_EXPORT_BYTES, MAX_FILE_BYTES, SCHEMA_VERSION, ExportManifest
from artifact.tasks import TASKS
from artifact.tasks.any_series import AnySeries

CARD = "README.md"
"""File of an export that describes it for people; it is not in the manifest, so that it can be edited."""
MAX_CARD_BYTES = 2**20


def _known_task(name: str) -> str:
    """A name of a task. Raises: ValueError."""
    if name not in TASKS:
        raise ValueError(f"{name!r} is none of {', '.join(TASKS)}")
    return name


class _TaskField(TypedDict):
    task: Annotated[str, AfterValidator(_known_task)]
    kind: NotRequired[Literal["any-series"]]


_TASK_FIELD = TypeAdapter(_TaskField)


def parse_manifest(raw: object) -> ExportManifest:
    """Validate the content of a manifest, as its task says. Raises: pydantic.ValidationError."""
    found = _TASK_FIELD.validate_python(raw)
    return (AnySeries if "kind" in found else TASKS[found["task"]]).manifest_type.model_validate(raw)


def read_manifest(folder: Path) -> ExportManifest:
    """Read and check `manifest.json` and the hash of every listed file; unlisted files but the card are an error.

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
        key, why = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise BadExport(f"{place}: {MANIFEST}: {key or 'task'}: {why}", "manifest") from None
    if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
        raise BadExport(f"{place}: {MANIFEST} names {manifest.name}/{manifest.version}", "manifest")
    files = list(manifest.listed())
    _check_sizes(folder, dict.fromkeys(file.path for file in files), place)
    for path, sha256 in dict.fromkeys((file.path, file.sha256) for file in files):
        _check_hash(folder / path, sha256, place)
    known = {MANIFEST, CARD, *(file.path for file in files)}
    if unlisted := sorted({path.name for path in folder.iterdir()} - known):
        raise BadExport(f"{place}: {unlisted[0]!r} is not in {MANIFEST}; remove it", "unlisted")
    return manifest


def created_at(folder: Path) -> int:
    """When the manifest of an export was written, in seconds since 1970; 0 if the file is gone."""
    try:
        return int((folder / MANIFEST).stat().st_mtime)
    except OSError:
        return 0


def read_card(folder: Path) -> str:
    """The card of an export, as Markdown; empty if there is none, or if it cannot be read."""
    try:
        with open_regular(folder / CARD) as stream:
            return stream.read(MAX_CARD_BYTES).decode(errors="replace")
    except OSError:
        return ""


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
