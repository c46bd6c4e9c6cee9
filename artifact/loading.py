"""`exports/`: find, check, load and warm up exports. Used by `artifact.local` and by the service's engine."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from artifact.arrays import Array, Floats
from artifact.backends import create_backend
from artifact.backends.base import LOAD_LIMIT_S, Device, InferenceBackend, output_error
from artifact.errors import BadExport
from artifact.exports import created_at, read_card, read_manifest, versions_of
from artifact.manifest import MAX_FILE_BYTES, NAME, ArrayFile, ExportManifest, Format, Graph, Precision
from artifact.tasks import CLASSES
from artifact.tasks.base import Task

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A loaded export whose hashes and golden outputs were verified."""

    task: Task
    backend: InferenceBackend
    format: Format
    load_seconds: float
    head: InferenceBackend | None = None
    """Backend of the second graph, if the task has one."""
    card: str = ""
    """The card of the export, as Markdown; empty without one."""
    created: int = 0
    """`created_at` of its folder."""

    @property
    def manifest(self) -> ExportManifest:
        """The export's manifest."""
        return self.task.manifest

    @property
    def row_lengths(self) -> list[int]:
        """Row length in bytes of each bucket, ascending."""
        return self.task.row_lengths(self.format)

    def run(self, rows: Sequence[bytes], bucket: int) -> Floats:
        """Compute one batch. Thread-safe.

        Args:
            rows: bytes of documents or of float32 windows, none longer than `bucket`.
            bucket: row length in bytes, one of `row_lengths`.

        Shape:  returns (rows, ...); of a classifier (rows, classes + stretches * classes + 2): the logits of each row,
                followed by the contributions of its stretches and by its numbers of known words and of all words, if
                the export has them.
        Raises: any error of the runtime, unchanged.

        """
        return self.task.unpack(self.backend.run(self.task.pack(rows, bucket)))

    def run_head(self, a: Floats, b: Floats) -> Floats:
        """Logits (pairs,) of the head for encodings a and b (pairs, encoding_size), in batches of `Task.head_rows`.

        Raises: any error of the runtime, unchanged.
        """
        assert self.head is not None
        graph = self.manifest.graphs[1]
        names, output = [spec.name for spec in graph.inputs], graph.outputs[0].name
        logits, rows = [], self.task.head_rows
        for first in range(0, len(a), rows):
            count = len(a[first : first + rows])
            chunk = np.zeros((2, rows, a.shape[1]), np.float32)
            chunk[0, :count], chunk[1, :count] = a[first : first + rows], b[first : first + rows]
            logits.append(self.head.run(dict(zip(names, chunk, strict=True)))[output].reshape(-1)[:count])
        return np.concatenate(logits)


class FoundVersions(NamedTuple):
    """What is below a folder of exports."""

    versions: dict[str, list[Path]]
    """Name -> folders of its versions, highest first; sorted by name."""
    unreadable: dict[str, BadExport]
    """Name of each folder that cannot be listed, or whose name is not allowed -> why."""


def find_exports(root: Path) -> list[Path]:
    """Folder of the highest version of each name below `root`, sorted by name. Raises: as `find_versions`."""
    return [versions[0] for versions in find_versions(root).versions.values()]


def find_versions(root: Path) -> FoundVersions:
    """Folders of the versions of each name below `root`.

    Raises: BadExport if there is none, or `root` is not a folder; OSError if `root` cannot be listed.
    """
    if not root.is_dir():
        raise BadExport(f"{root} is not a folder", "missing")
    found = FoundVersions({}, {})
    for folder in sorted(path for path in root.iterdir() if not path.name.startswith(".")):
        try:
            versions = versions_of(folder) if folder.is_dir() else []
        except OSError as error:
            why = f"{folder.name}: its folder cannot be listed: {error.strerror or type(error).__name__}"
            found.unreadable[folder.name] = BadExport(why, "unreadable")
        else:
            if versions and NAME.fullmatch(folder.name):
                found.versions[folder.name] = versions
            elif versions:
                name = ascii(folder.name)[1:-1]
                why = f"{name}: the name of an export has lower-case letters, digits, '.', '_' and '-' only"
                found.unreadable[name] = BadExport(why, "manifest")
    if not any(found):
        raise BadExport(f"{root} holds no export (<name>/<version>/manifest.json)", "missing")
    return found


def load_export(
    folder: Path, *, format: Format = "onnx", device: Device = "auto", precision: Precision = "float32"
) -> LoadedModel:
    """Check the hashes, load the export and verify the golden outputs, which also warms up the runtime.

    An export without float16 is loaded in float32. `precision` of the loaded manifest tells which it is.

    Raises: BadExport; the message is one line that names the file and the reason.
    """
    if precision not in (allowed := get_args(Precision)):
        raise BadExport(f"precision {precision!r} is none of {', '.join(allowed)}", "backend")
    if precision == "float16" and format != "onnx":
        raise BadExport(f"precision float16: {format} computes in float32 only; use onnx", "backend")
    started = time.perf_counter()
    manifest = read_manifest(folder).in_precision(precision)
    place = f"{manifest.name}/{manifest.version}"
    golden = _read_arrays(folder / manifest.golden.path, place, "golden")
    backends = []
    for graph in manifest.graphs:
        try:
            backend = create_backend(graph, folder, format=format, device=device)
        except BadExport as error:
            raise BadExport(f"{place}: {error}", error.reason) from None
        except TimeoutError as error:
            raise BadExport(f"{place}: computing a batch takes {error}", "timeout") from None
        for rows in _golden_batches(graph, golden, sorted(graph.files_of(format))):
            _check_golden(graph, backend, rows, manifest.tolerance, f"{place}: {manifest.golden.path}")
        backends.append(backend)

    def read(file: ArrayFile, reason: str) -> dict[str, Array]:
        return _read_arrays(folder / file.path, place, reason)

    task = CLASSES[type(manifest)].open(manifest, read)
    seconds = time.perf_counter() - started
    if manifest.non_commercial:
        log.warning("%s %s: non-commercial use only: %s", manifest.name, manifest.version, manifest.data_terms)
    how = f"{format}, {backends[0].device}, {manifest.precision}"
    log.info("%s %s: loaded in %.2f s (%s)", manifest.name, manifest.version, seconds, how)
    head = backends[1] if len(backends) > 1 else None
    return LoadedModel(task, backends[0], format, seconds, head, read_card(folder), created_at(folder))


def _golden_batches(graph: Graph, golden: dict[str, Array], buckets: Sequence[int]) -> Iterator[dict[str, Array]]:
    """Yield the golden tensors to compute in each bucket, cut to its length.

    Each row is computed in the bucket that would serve it, the shortest one that it fits. In a bucket that would serve
    none of them, the longest row that fits is computed, so that every bucket is checked and warmed up.

    Args:
        graph: graph with these buckets.
        golden: golden tensors of the export.
        buckets: lengths of the buckets, ascending (bytes, or time steps of a forecaster).

    """
    names = [spec.name for spec in graph.inputs]
    if len(buckets) == 1 or any(name not in golden for name in names):
        yield golden
        return
    rows, lengths = golden[names[0]], golden[names[1]]
    shorter = 0
    for bucket in buckets:
        kept = (shorter < lengths) & (lengths <= bucket)
        if not kept.any():
            kept = lengths == lengths.max(where=lengths <= bucket, initial=0)
        others = (names[1], *(spec.name for spec in graph.outputs))
        yield {names[0]: rows[kept, :bucket], **{name: golden[name][kept] for name in others if name in golden}}
        shorter = bucket


def _check_golden(
    graph: Graph, backend: InferenceBackend, golden: dict[str, Array], tolerance: float, place: str
) -> None:
    """Compare the backend's outputs for the golden inputs with the stored outputs. Raises: BadExport."""
    names = [spec.name for spec in (*graph.inputs, *graph.outputs)]
    if missing := [name for name in names if name not in golden]:
        raise BadExport(f"{place} has no tensor {missing[0]}", "golden")
    if golden[names[0]].size == 0:
        raise BadExport(f"{place} has no row for one of the buckets", "golden")
    try:
        outputs = backend.run({spec.name: golden[spec.name] for spec in graph.inputs}, LOAD_LIMIT_S)
    except TimeoutError as error:
        raise BadExport(f"{place}: computing the golden inputs takes {error}", "timeout") from None
    except Exception as error:  # any error of the runtime means that the export cannot be served
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise BadExport(f"{place}: computing the golden inputs failed: {first}", "golden") from None
    for spec in graph.outputs:
        distance = output_error(outputs[spec.name], golden[spec.name])
        if not distance <= tolerance:
            allowed = f"allowed {tolerance:.0e}"
            raise BadExport(f"{place}: {spec.name} is {distance:.2e} from its golden output; {allowed}", "golden")


def _read_arrays(path: Path, place: str, reason: str) -> dict[str, Array]:
    """Read an .npz archive without pickles. Raises: BadExport."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if (size := sum(info.file_size for info in arrays.zip.infolist())) > MAX_FILE_BYTES:
                raise BadExport(f"{place}: {path.name} has {size} bytes unpacked; allowed {MAX_FILE_BYTES}", "size")
            return dict(arrays)
    except BadExport:
        raise
    except Exception:  # numpy and zipfile raise many exception types for damaged archives
        raise BadExport(f"{place}: {path.name} is not a valid .npz archive", reason) from None
