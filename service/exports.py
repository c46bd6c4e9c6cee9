"""`exports/`: find, check, load and warm what is served. Used by `service.engine` and `service.__main__`."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.backends import create_backend
from service.backends.base import Array, Device, InferenceBackend, largest_error
from service.errors import BadExport
from service.manifest import Format, Manifest, is_version, newest_version, read_manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """An export whose hashes and golden outputs are right."""

    manifest: Manifest
    backend: InferenceBackend
    format: Format
    load_seconds: float


def find_exports(root: Path) -> list[Path]:
    """Folder of the highest version of each name below `root`, sorted by name.

    Raises: BadExport if there is none, or `root` is not a folder.
    """
    if not root.is_dir():
        raise BadExport(f"{root} is not a folder", "missing")
    names = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [newest_version(name) for name in names if any(map(is_version, name.iterdir()))]
    if not found:
        raise BadExport(f"{root} holds no export (<name>/<version>/manifest.json)", "missing")
    return found


def load_export(folder: Path, *, format: Format = "onnx", device: Device = "auto", threads: int = 1) -> LoadedModel:
    """Check hashes, load, and compute the golden inputs, which also warms the runtime.

    Raises: BadExport, one line that says which file and why.
    """
    started = time.perf_counter()
    manifest = read_manifest(folder)
    try:
        backend = create_backend(manifest, folder, format=format, device=device, threads=threads)
    except BadExport as error:
        raise BadExport(f"{manifest.name}/{manifest.version}: {error}", error.reason) from None
    check_golden(manifest, backend, folder)
    seconds = time.perf_counter() - started
    if manifest.non_commercial:
        log.warning("%s %s: non-commercial use only: %s", manifest.name, manifest.version, manifest.data_terms)
    log.info("%s %s: loaded in %.2f s (%s, %s)", manifest.name, manifest.version, seconds, format, backend.device)
    return LoadedModel(manifest, backend, format, seconds)


def check_golden(manifest: Manifest, backend: InferenceBackend, folder: Path) -> None:
    """Compare the outputs for the golden inputs with those stored. Raises: BadExport."""
    place = f"{manifest.name}/{manifest.version}"
    golden = _read_golden(folder / manifest.golden.path, place)
    names = [spec.name for spec in (*manifest.inputs, *manifest.outputs)]
    if missing := [name for name in names if name not in golden]:
        raise BadExport(f"{place}: {manifest.golden.path} has no tensor {missing[0]}", "golden")
    try:
        outputs = backend.run({spec.name: golden[spec.name] for spec in manifest.inputs})
    except Exception as error:  # whatever the runtime raises, the export cannot be served
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise BadExport(f"{place}: computing the golden inputs failed: {first}", "golden") from None
    for spec in manifest.outputs:
        distance = largest_error(outputs[spec.name], golden[spec.name])
        if not distance <= manifest.tolerance:
            allowed = f"allowed {manifest.tolerance:.0e}"
            raise BadExport(f"{place}: {spec.name} is {distance:.2e} from its golden output; {allowed}", "golden")


def _read_golden(path: Path, place: str) -> dict[str, Array]:
    """Read the arrays of golden.npz; no pickles."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception:  # numpy and zipfile raise many kinds for damaged archives
        raise BadExport(f"{place}: {path.name} is not an archive of arrays", "golden") from None
