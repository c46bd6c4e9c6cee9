"""`longdoc-serve batch`: predictions for files of any size, with Ray Data. Needs the extra `ray`.

A task reads each file and yields its parts; other tasks compute a part each and write it to the output. Parts are
computed with the code of `predict`. Tasks, unlike actors, run on any node that is left when another one fails. Ray
repeats the tasks of a process or node that fails; a part that is computed again is written with the same content under
the same name. Ray limits the parts that wait between the tasks, so that memory is bounded whatever the size of the
files.
"""

import logging
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
import ray
import ray.data
from ray.exceptions import RayError, RayTaskError
from tqdm import tqdm

from artifact.errors import BadExport, InputError
from artifact.exports import sha256_of, version_folder
from artifact.loading import load_export
from artifact.local import Model
from artifact.manifest import MANIFEST
from artifact.tables.reading import Field
from service.offline.compute import Predict, PredictOptions, choose_encoding, choose_fields, choose_operation, prepare
from service.offline.inputs import PART_BYTES, PART_ROWS, InputFile, Part, absolute, find_inputs, read_parts
from service.offline.outputs import ERRORS, Counts, Output, OutputFormat, compute_part

READERS = 4
"""Files that are read at the same time."""
INT, STRING = pyarrow.int64(), pyarrow.string()
PART = pyarrow.schema({"file": INT, "path": STRING, "name": STRING, "part": pyarrow.binary(), "problem": STRING})
"""Columns of a part that has been read: index, path and name of its file, the pickled part, or why there is none."""
RESULT = pyarrow.schema({"file": INT, "rows": INT, "bad_rows": INT, "read": INT, "problem": STRING})
"""Columns of what is returned for a part: index of the file, counts, bytes of the file, and what is wrong with it."""


@dataclass(frozen=True)
class BatchJob:
    """What every task needs; can be pickled."""

    export: Path
    sha256: str
    """Hash of the manifest of the export, which has the hashes of its files."""
    fields: tuple[Field, ...]
    encoding: str
    options: PredictOptions
    output: Output


def batch(
    export: Path,
    patterns: Sequence[str],
    folder: str,
    task: str | None,
    format: OutputFormat,
    workers: int | None,
    options: PredictOptions,
) -> int:
    """Compute the results of all rows of the files; return the exit code, 1 if any row was bad.

    Args:
        export: folder of an export, under the same path on every node.
        patterns: files, as paths, URIs or patterns.
        folder: output folder, as path or URI; that of an interrupted batch with the same arguments continues it.
        task: what to compute; None means what the model does.
        format: format of the output.
        workers: number of cores that compute; None means all of the cluster.
        options: options of the results.

    Raises: BadExport; InputError for files that cannot be read, options that do not suit the model, or an output folder
        of another batch; OSError.

    """
    export = version_folder(export.absolute())
    model = Model(load_export(export, format="onnx", device="cpu"))
    chosen = choose_operation(model.task, task)
    fields = choose_fields(chosen, options, model.task)
    prepare(model, chosen, fields, options)
    inputs = find_inputs(patterns)
    encoding = choose_encoding(model.task, options)
    job = BatchJob(
        export, sha256_of(export / MANIFEST), fields, encoding, options, Output(absolute(folder), chosen, format)
    )
    done = job.output.start({**_description(job, model), "inputs": [file._asdict() for file in inputs]})
    if done is None:
        try:
            counts = _run(job, inputs, workers)
        except KeyboardInterrupt:
            print("interrupted; the same command continues", file=sys.stderr)
            raise
        job.output.finish(counts)
        done = sum(counts.values(), Counts())
    bad = f"; {done.bad_rows} bad rows are in {folder}/{ERRORS}" if done.bad_rows else ""
    print(f"{folder}: {done.rows} rows{bad}")
    return 1 if done.bad_rows else 0


def _description(job: BatchJob, model: Model) -> dict[str, Any]:
    """What the results depend on besides the inputs, as JSON."""
    return {
        "model": model.manifest.name,
        "version": model.manifest.version,
        "manifest_sha256": job.sha256,
        "task": job.output.task,
        "format": job.output.format,
        "fields": [field.name for field in job.fields],
        **{name: value for name, value in asdict(job.options).items() if name != "text_column"},
        "part_rows": PART_ROWS,
        "part_bytes": PART_BYTES,
    }


def _run(job: BatchJob, inputs: Sequence[InputFile], workers: int | None) -> dict[InputFile, Counts]:
    """Compute all parts that are not complete; returns the counts of every input. Raises: InputError."""
    counts = dict.fromkeys(inputs, Counts())
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    size = sum(file.size for file in inputs)
    with tqdm(total=size, unit="B", unit_scale=True, file=sys.stderr, disable=None) as bar:
        total = Counts()
        for result in _computed(job, inputs, workers):
            if result["problem"] is not None:
                raise InputError(result["problem"])
            new = Counts(result["rows"], result["bad_rows"])
            counts[inputs[result["file"]]] += new
            total += new
            bar.set_postfix(rows=f"{total.rows:,}", bad=f"{total.bad_rows:,}", refresh=False)
            bar.update(result["read"])
    return counts


def _computed(job: BatchJob, inputs: Sequence[InputFile], workers: int | None) -> Iterator[Mapping[str, Any]]:
    """Rows of RESULT, one for each part that is complete, in any order. Raises: InputError if tasks fail repeatedly."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_min_block_size = context.target_max_block_size = 1  # each part is a block
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    files = [{"file": index, "path": file.path, "name": file.name} for index, file in enumerate(inputs)]
    results = (
        ray.data.from_items(files, override_num_blocks=len(files))
        .map_batches(
            _read,
            fn_args=(job,),
            batch_format="pyarrow",
            batch_size=None,
            compute=ray.data.TaskPoolStrategy(min(READERS, len(files))),
            num_cpus=0,  # a reader that waits for the computation must not keep a core from it
        )
        .map_batches(
            _compute,
            fn_args=(job,),
            batch_format="pyarrow",
            batch_size=None,
            compute=ray.data.TaskPoolStrategy(workers),
            num_cpus=1,
        )
    )
    try:
        for batch in results.iter_batches(batch_format="pyarrow", batch_size=None):
            yield from batch.to_pylist()
    except RayTaskError:  # an error in the code of a task
        raise
    except RayError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"Ray failed: {reason}; the same command continues") from error


def _read(files: pyarrow.Table, job: BatchJob) -> Iterator[pyarrow.Table]:
    """Parts of files, pickled."""
    for file in files.to_pylist():
        try:
            for part in read_parts(file["path"], job.fields, job.encoding):
                yield pyarrow.Table.from_pylist([{**file, "part": pickle.dumps(part), "problem": None}], PART)
        except InputError as error:
            yield pyarrow.Table.from_pylist([{**file, "part": b"", "problem": str(error)}], PART)


def _compute(parts: pyarrow.Table, job: BatchJob) -> pyarrow.Table:
    """Compute and write parts."""
    return pyarrow.Table.from_pylist([_result(row, job) for row in parts.to_pylist()], RESULT)


def _result(row: Mapping[str, Any], job: BatchJob) -> dict[str, Any]:
    """A row of RESULT for a part."""
    result = {"file": row["file"], "rows": 0, "bad_rows": 0, "read": 0, "problem": row["problem"]}
    if row["problem"] is not None:
        return result
    part: Part = pickle.loads(row["part"])
    try:
        bad_rows = compute_part(_loaded(job), job.output, row["name"], part)
    except (BadExport, InputError) as error:
        return {**result, "problem": str(error)}
    except OSError as error:
        return {**result, "problem": f"{job.output.uri}: {error.strerror or error}"}
    return {**result, "rows": len(part.rows), "bad_rows": bad_rows, "read": part.read}


@cache
def _loaded(job: BatchJob) -> Predict:
    """The function that computes results; a process loads the model once. Raises: BadExport."""
    if sha256_of(job.export / MANIFEST) != job.sha256:
        raise BadExport(f"{job.export}: this node has another export under this path", "hash")
    model = Model(load_export(job.export, format="onnx", device="cpu"), threads=1)
    return prepare(model, job.output.task, job.fields, job.options)
