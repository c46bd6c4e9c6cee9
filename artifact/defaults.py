"""`defaults.json` beside the exports: for each task, the model that answers requests without a model name."""

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from artifact.errors import BadExport
from artifact.files import read_json_file
from artifact.manifest import MANIFEST
from artifact.tasks import TASKS

DEFAULTS = "defaults.json"

_ADAPTER = TypeAdapter(dict[str, str])


def read_defaults(exports: Path) -> dict[str, str]:
    """Task -> name of its default model; empty if the file does not exist. Raises: BadExport naming the file."""
    try:
        found = _ADAPTER.validate_json(read_json_file(exports / DEFAULTS))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadExport(f"{exports / DEFAULTS} cannot be read: {error.strerror}", "manifest") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = f"{exports / DEFAULTS}: {place}: {first['msg']}" if place else f"{exports / DEFAULTS}: {first['msg']}"
        raise BadExport(message, "manifest") from None
    if unknown := sorted(found.keys() - TASKS.keys()):
        message = f"{unknown[0]!r} is no task; these are: {', '.join(TASKS)}"
        raise BadExport(f"{exports / DEFAULTS}: {message}", "manifest")
    return found


def add_default(exports: Path, task: str, name: str) -> bool:
    """Make a model the default of its task if it is the task's first export; returns whether it became the default.

    Raises: BadExport if the file is invalid.
    """
    found = read_defaults(exports)
    if task in found or any(path.parts[-3] != name and _task(path) == task for path in exports.glob(f"*/*/{MANIFEST}")):
        return False
    found[task] = name
    partial = exports / f".{DEFAULTS}"
    partial.write_text(json.dumps(dict(sorted(found.items())), indent=2) + "\n")
    partial.replace(exports / DEFAULTS)
    return True


def _task(manifest: Path) -> str | None:
    """Task of the export with this manifest; None if the manifest cannot be read."""
    try:
        raw = json.loads(manifest.read_bytes())
    except (OSError, ValueError):
        return None
    return raw.get("task") if isinstance(raw, dict) else None
