"""Copies of the repository's exports: changed, damaged or published as new versions."""

import json
import shutil
from pathlib import Path

from artifact.exports import sha256_of, version_folder
from tests.support.paths import EXPORTS


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rehash(folder: Path, name: str) -> None:
    """Update the hash of a file wherever the manifest lists it."""
    raw, sha256 = json.loads((folder / "manifest.json").read_text()), sha256_of(folder / name)

    def update(part: object) -> None:
        if isinstance(part, dict):
            if part.get("path") == name:
                part["sha256"] = sha256
            part = [*part.values()]
        if isinstance(part, list):
            for value in part:
                update(value)

    update(raw)
    edit_manifest(folder, **raw)


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


NAME = "imdb-s3"
OLD = int(version_folder(EXPORTS / NAME).name)
NEW = OLD + 1


def prepare(exports: Path, source: str = NAME, name: str = NAME, version: int = NEW, **changes: object) -> Path:
    """Write an export to a folder that the service ignores until it is renamed."""
    folder = exports / name / f".partial-{version}"
    shutil.copytree(version_folder(EXPORTS / source), folder)
    edit_manifest(folder, name=name, version=version, **changes)
    return folder


def publish(folder: Path) -> Path:
    return folder.rename(folder.parent / folder.name.removeprefix(".partial-"))


def new_version(exports: Path) -> Path:
    """Prepare a copy of the newest version whose labels differ, so that an answer shows which version computed it."""
    return prepare(exports, labels=["bad", "good"])
