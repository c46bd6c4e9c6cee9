"""Classification of series by a model with two views, trained in stages. Used by the commands through `model.tasks`.

1. MiniRocket: its biases, and a ridge classifier of its features, fitted on the folds of the training recordings and on
   all of them.
2. The encoder, trained on the other folds of each fold, to classify recordings from which it has not learned.
3. The encoder, trained on all training recordings, and the weights of the views, fitted on the folds.

There is no validation split: validation metrics are those of the folds. Each stage keeps its result in the run folder.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from artifact.arrays import Doubles, Floats
from artifact.manifest import ExportManifest, Result
from artifact.recordings import Recording, Scaling, on_grid, stretch_bounds, without
from artifact.tasks.series_classification import SeriesClassifierManifest
from model.config.run import SeriesClassificationRun
from model.data.own import DataFiles
from model.data.own_recordings import (
    OwnRecordings,
    RecordingSet,
    check_columns,
    read_japanese_vowels,
    read_own_recordings,
)
from model.errors import UserError
from model.nn.minirocket import MiniRocket
from model.nn.series_classifier import FLAT, SeriesClassifier, SeriesEncoder
from model.progress import progress
from model.tasks.base import FINGERPRINT, Finished, Measurement, TrainingTask
from model.tasks.dtw import nearest_neighbours
from model.tasks.graphs import Arrays, ExportGraph, GraphFunction
from model.tasks.link import SOFTMAX, Outputs, calibration_error
from model.tasks.predictions import AllOutputs, LabelPredictions, Rival, Stretch
from model.tasks.series_views import (
    ROWS,
    EncoderLearner,
    Ridge,
    Rows,
    encoder_logits,
    fit_ridge,
    fit_weight,
    fit_weights,
    folds_of,
)
from model.training import checkpoint
from model.training.checkpoint import BEST, LAST, Progress, RunFolder
from model.training.loop import Trainer, duration, peak_memory_bytes
from model.training.stages import MODEL, Stage

IMBALANCE = 3
"""Ratio of the largest to the smallest class above which macro F1 replaces accuracy for validation."""
ROCKET, ENCODER, BOTH = "MiniRocket and ridge", "encoder", "both"
"""Names of the views in results."""
MOST_ROWS = 10_000
"""Maximum number of training rows: ridge regression solves for a matrix of rows by rows."""
OWN_SCALE = "own_scale"
"""Key of a fact: channels that are also read with the scale of each recording. Runs without any lack it."""
ROCKET_FILE = "minirocket.npz"
"""File of a run folder: MiniRocket, its ridge classifier and the logits of the folds."""


@dataclass(frozen=True)
class RocketView:
    """Output of the stage `MiniRocket`."""

    state: Mapping[str, NDArray[Any]]
    """State of the module."""
    ridge: Ridge
    logits: Outputs
    """(recordings, classes): of recordings from which it has not learned."""
    seconds: float


@dataclass(frozen=True)
class FoldLogits:
    """Output of the stages `fold N`."""

    logits: Outputs
    """(recordings of the fold, classes)."""
    seconds: float


@dataclass(frozen=True)
class SeriesClassificationTask(TrainingTask[SeriesClassificationRun, OwnRecordings | Path, RecordingSet]):
    """Classification of recordings."""

    unit = "series"

    @property
    def metric(self) -> str:
        return str(self.facts.get("metric", "accuracy"))

    @property
    def scaling(self) -> Scaling:
        """How values are standardised."""
        own = tuple(map(self.facts["channels"].index, self.facts.get(OWN_SCALE, ())))
        return Scaling(np.array(self.facts["mean"]), np.array(self.facts["scale"]), self.facts["rate"], own)

    @property
    def overlap(self) -> int:
        """Minimum overlap of neighbouring windows in steps."""
        return self.config.model.length // 8

    def read(self, files: DataFiles, *, is_new: bool = False) -> OwnRecordings | Path:
        if self.config.data.name != "own":
            return files.data_dir
        return read_own_recordings(files, self.config.data, needs_groups=not is_new)

    def load(self, source: OwnRecordings | Path) -> RecordingSet:
        if isinstance(source, Path):
            return read_japanese_vowels(source)
        self.check_fingerprint(source.fingerprint, source.data.path)
        check_columns(source, self.config.data)
        return source.split(self.config.data.split_seed)

    def with_facts_of(self, data: RecordingSet) -> Self:
        sizes = np.bincount(data.train.labels, minlength=len(data.labels))
        values = np.concatenate(data.train.values)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = np.nanstd(values, axis=0)
        for channel in np.flatnonzero(~np.isfinite(deviation)):
            raise UserError(f"the values of the channel {data.channels[channel]} are too large to be scaled")
        scale = np.where(deviation > 0, deviation, 1.0)
        facts: dict[str, Any] = {
            "labels": data.labels,
            "channels": list(data.channels),
            "mean": np.nanmean(values, axis=0).tolist(),
            "scale": scale.tolist(),
            "rate": data.rate,
            "metric": "macro_f1" if sizes.max() > IMBALANCE * sizes.min() else "accuracy",
        }
        if own := _small_channels(data, scale):
            facts[OWN_SCALE] = own
        return self.knowing(**facts, **({FINGERPRINT: data.fingerprint} if data.fingerprint else {}))

    def fingerprint(self, source: OwnRecordings | Path) -> str:
        return "" if isinstance(source, Path) else source.fingerprint

    def with_test(self, data: RecordingSet | None, source: OwnRecordings | Path) -> RecordingSet:
        assert isinstance(source, OwnRecordings)
        return source.all_as_test(data, self.facts["labels"], self.facts["channels"], self.facts["rate"])

    def describe(self, data: RecordingSet) -> tuple[str, ...]:
        found = f"{len(data.train)} training and {len(data.test)} test recordings of up to {data.longest:,} steps"
        if self.metric != "accuracy":
            found += f"; the largest class is over {IMBALANCE} times the smallest: macro F1 is the metric"
        model, training = self.config.model, self.config.training
        steps = training.epochs * (training.examples_per_epoch // training.batch_size)
        read = f"{model.length:,} steps are read at once, in {model.num_tokens} tokens of {model.patch_length}"
        notes = (
            f"{channel}: half the recordings vary by less than {100 * FLAT:g} % of the common deviation; the model "
            "also reads each of them scaled by itself"
            for channel in self.facts.get(OWN_SCALE, ())
        )
        return (found, *data.notes, *notes, f"{read}; {steps:,} training steps of {training.batch_size} windows")

    def rows(self, values: Sequence[Doubles]) -> Rows:
        """Rows of recordings."""
        return Rows.of(values, self.scaling, self.config.model.length, self.overlap)

    def stages(self, data: RecordingSet) -> Sequence[Stage]:
        prepared = Prepared.of(self, data)
        if len(prepared.rows) > MOST_ROWS:
            raise UserError(
                f"training has {len(prepared.rows):,} recordings and windows of recordings, more than {MOST_ROWS:,}; "
                "give fewer, or raise model.length"
            )
        names = [f"fold {number + 1}" for number in range(prepared.num_folds)]
        stages = [Stage("MiniRocket", partial(fit_rocket, prepared))]
        stages += [Stage(name, partial(fit_fold, prepared, number)) for number, name in enumerate(names)]
        return [*stages, Stage(MODEL, partial(fit_model, prepared), ("MiniRocket", *names))]

    def build(self) -> SeriesClassifier:
        return SeriesClassifier(self.config.model, self.scaling.num_columns, len(self.facts["labels"]))

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        length = self.config.model.length
        return (
            ExportGraph("model", model, golden_recordings(length, self.scaling.num_columns), ("logits",), (length,)),
        )

    def finish(self, model: nn.Module, final: nn.Module | None, data: RecordingSet) -> Finished:
        """Leave the model as it is: the weights of its views are calibrated."""
        del data
        return self.finished(model, final)

    def measure(self, functions: Sequence[GraphFunction], data: RecordingSet) -> Measurement:
        """Test metrics, with those of MiniRocket alone and of the nearest neighbour."""
        labels, rows = data.test.labels, self.rows(data.test.values)
        logits = rows.mean(computed(functions[0], rows))
        reliability = SOFTMAX.reliability(logits, labels)
        compared, rival = self._compared(data, rows)
        values = [*SOFTMAX.report(logits, labels).items(), ("ece", calibration_error(reliability))]
        results = tuple(
            Result(
                metric=metric,
                value=round(value, 6),
                split="test",
                examples=len(labels),
                condition="windows",
                seeds=(self.config.seed,),
                compared_with=compared.get(metric, "nothing"),
            )
            for metric, value in values
        )
        predictions = LabelPredictions(
            data.labels,
            labels,
            SOFTMAX.probabilities(logits),
            data.test.values,
            "steps",
            data.test.places,
            np.bincount(data.train.labels, minlength=len(data.labels)).tolist() if len(data.train) else (),
            rival,
        )
        keys = {"reliability": [part.model_dump() for part in reliability]}
        return Measurement(results, keys=keys, predictions=predictions)

    def _compared(self, data: RecordingSet, rows: Rows) -> tuple[dict[str, str], Rival | None]:
        """Metric -> names and values of what the model is compared with, fitted on the training recordings again.

        Also the decision values of MiniRocket.
        """
        if not len(data.train):
            return {}, None
        others = {ROCKET: self.minirocket(data, rows)}
        nearest, note = nearest_neighbours(self.standardised(data.train.values), self.standardised(data.test.values))
        if nearest is not None:
            others["1-NN DTW"] = np.eye(len(data.labels))[data.train.labels[nearest]]
        found = {name: SOFTMAX.report(logits, data.test.labels) for name, logits in others.items()}
        missing = f"; {note}" if note else ""
        compared = {
            metric: "; ".join(f"{name}: {report[metric]:.4f}" for name, report in found.items()) + missing
            for metric in ("accuracy", "macro_f1")
        }
        return compared, Rival(ROCKET, others[ROCKET], has_probabilities=False)

    def minirocket(self, data: RecordingSet, rows: Rows) -> Outputs:
        """Decision values (recordings, classes) of MiniRocket alone, fitted to the training recordings."""
        train = self.rows(data.train.values)
        rocket = fitted_rocket(self, train)
        ridge = fit_ridge(features_of(rocket, train), data.train.labels[train.owners], len(data.labels))
        return rows.mean(ridge(features_of(rocket, rows)))

    def standardised(self, values: Sequence[Doubles]) -> list[Floats]:
        """Recordings (steps, columns) as the model reads them."""
        return [on_grid(self.scaling.standardise(Recording(one))) for one in values]

    def stretches(self, compute: AllOutputs, example: Doubles) -> Sequence[Stretch]:
        """The logits less those of the recording with a straight line in place of each stretch, as the service does."""
        whole = self.scaling.standardise(Recording(example))
        bounds, columns = stretch_bounds(len(whole)), whole.shape[1]
        as_it_is = Scaling(np.zeros(columns), np.ones(columns), None)
        changed = [whole, *(without(whole, start, end) for start, end in bounds)]
        rows = Rows.of(changed, as_it_is, self.config.model.length, self.overlap)
        logits = rows.mean(computed(lambda inputs: compute(inputs)[0], rows)).astype(np.float64)
        return [Stretch(*span, logits[0] - part) for span, part in zip(bounds, logits[1:], strict=True)]

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        del golden
        names = ("labels", "channels", "mean", "scale", "rate")
        return {
            **{name: self.facts[name] for name in names},
            OWN_SCALE: self.facts.get(OWN_SCALE, []),
            "length": self.config.model.length,
            "window_overlap": self.overlap,
            **self.config.data.model_dump(include={"id_column", "time_column", "day_first"}),
        }

    def of_export(self, manifest: ExportManifest, folder: Path) -> Self:
        del folder
        assert isinstance(manifest, SeriesClassifierManifest)
        fields = manifest.model_dump(include={"labels", "channels", "mean", "scale", "rate", OWN_SCALE})
        return self.knowing(
            **{name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
        )

    def terms(self) -> tuple[str, bool]:
        if self.config.data.name == "own":
            return "Own data.", False
        return "Japanese Vowels, UCI Machine Learning Repository: CC BY 4.0.", False


@dataclass(frozen=True)
class Prepared:
    """The training recordings, as all stages read them."""

    task: SeriesClassificationTask
    rows: Rows
    labels: NDArray[np.int64]
    """(recordings,)."""
    folds: NDArray[np.int64]
    """(recordings,)."""

    @classmethod
    def of(cls, task: SeriesClassificationTask, data: RecordingSet) -> Self:
        """Prepare the training recordings."""
        config = task.config
        folds = folds_of(data.train.labels, data.train.groups, config.model.folds, config.data.split_seed)
        return cls(task, task.rows(data.train.values), data.train.labels, folds)

    @property
    def num_folds(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return len(self.task.facts["labels"])


def _small_channels(data: RecordingSet, scale: Doubles) -> list[str]:
    """Channels in which most recordings would be too small to be told apart if all had one scale (channels,)."""
    deviations = [np.ma.masked_invalid(values).std(axis=0).filled(0.0) for values in data.train.values]
    shares = np.median(deviations, axis=0) / scale
    return [channel for channel, share in zip(data.channels, shares, strict=True) if 0 < share < FLAT]


def fitted_rocket(task: SeriesClassificationTask, rows: Rows) -> MiniRocket:
    """MiniRocket, fitted to rows."""
    config = task.config.model
    rocket = MiniRocket(task.scaling.num_columns, config.length, config.features_per_kernel)
    rocket.fit(rows.inputs["stretched"], task.config.seed)
    return rocket


def features_of(rocket: MiniRocket, rows: Rows) -> Floats:
    """Features (rows, features)."""
    stretched, found = rows.inputs["stretched"], list[Floats]()
    with torch.inference_mode():
        for first in progress(range(0, len(rows), ROWS), desc="MiniRocket", unit="batch", leave=False):
            found.append(rocket(torch.from_numpy(stretched[first : first + ROWS])).numpy())
    return np.concatenate(found)


def computed(function: GraphFunction, rows: Rows) -> Outputs:
    """Logits (rows, classes) of a graph."""
    parts = [
        function({name: values[first : first + ROWS] for name, values in rows.inputs.items()})
        for first in range(0, len(rows), ROWS)
    ]
    return np.concatenate(parts)


def fit_rocket(prepared: Prepared, folder: RunFolder) -> RocketView:
    """Fit MiniRocket and ridge, on all folds and without each; kept in minirocket.npz."""
    folder.begin()
    path, rows, labels = folder.path / ROCKET_FILE, prepared.rows, prepared.labels
    if not path.is_file():
        started = time.perf_counter()
        rocket = fitted_rocket(prepared.task, rows)
        features, targets = features_of(rocket, rows), labels[rows.owners]
        logits = np.zeros((len(labels), prepared.num_classes), np.float32)
        for fold in range(prepared.num_folds):
            is_held_out = prepared.folds == fold
            is_learned = ~is_held_out[rows.owners]
            ridge = fit_ridge(features[is_learned], targets[is_learned], prepared.num_classes)
            logits[is_held_out] = rows.mean(ridge(features))[is_held_out]
        ridge = fit_ridge(features, targets, prepared.num_classes)
        state = {f"state.{name}": tensor.numpy() for name, tensor in rocket.state_dict().items()}
        stored = {**state, **ridge._asdict(), "logits": logits, "seconds": time.perf_counter() - started}
        checkpoint.write_arrays(path, stored)
    with checkpoint.reading_result(path) as file, np.load(file) as found:
        state = {name.removeprefix("state."): found[name] for name in found if name.startswith("state.")}
        return RocketView(state, Ridge(found["weights"], found["bias"]), found["logits"], found["seconds"].item())


def fit_fold(prepared: Prepared, fold: int, folder: RunFolder) -> FoldLogits:
    """Train the encoder on the other folds; its logits for this one are kept in fold-N.npz."""
    path = folder.path / f"fold-{fold + 1}.npz"
    if not path.is_file():
        is_held_out = prepared.folds == fold
        encoder, seconds = train_encoder(prepared, np.flatnonzero(~is_held_out), folder, f"fold {fold + 1}")
        if fold == 0:
            left = seconds * prepared.num_folds
            print(f"{duration(left)} to train the encoder on the other folds and on all recordings", flush=True)
        logits = prepared.rows.mean(encoder_logits(encoder, prepared.rows, folder.device))[is_held_out]
        checkpoint.write_arrays(path, {"logits": logits, "seconds": seconds})
    with checkpoint.reading_result(path) as file, np.load(file) as found:
        return FoldLogits(found["logits"], found["seconds"].item())


def train_encoder(
    prepared: Prepared, chosen: NDArray[np.int64], folder: RunFolder, name: str
) -> tuple[SeriesEncoder, float]:
    """Train the encoder on the chosen recordings; returns it and the seconds that it took."""
    config, started = prepared.task.config, time.perf_counter()
    torch.manual_seed(config.seed)
    encoder = SeriesEncoder(config.model, prepared.task.scaling.num_columns, prepared.num_classes)
    training = config.training
    learner = EncoderLearner(
        prepared.rows,
        prepared.labels,
        chosen,
        training.batch_size,
        training.examples_per_epoch,
        f"{config.seed}-{name}",
    )
    learner.initialise(encoder)
    encoder.to(folder.device)
    Trainer(folder, learner, encoder, Progress()).fit(training.epochs, name)
    return encoder, time.perf_counter() - started


def fit_model(prepared: Prepared, folder: RunFolder, rocket: RocketView, *folds: FoldLogits) -> Progress:
    """Train the encoder on all recordings and weigh the views; writes best.pt and last.pt."""
    task, labels = prepared.task, prepared.labels
    model = task.build()
    model.rocket.load_state_dict({name: torch.from_numpy(array) for name, array in rocket.state.items()})
    with torch.no_grad():
        model.linear.weight.copy_(torch.from_numpy(rocket.ridge.weights.T))
        model.linear.bias.copy_(torch.from_numpy(rocket.ridge.bias))
    held_out = np.zeros_like(rocket.logits)
    for number, fold in enumerate(folds):
        held_out[prepared.folds == number] = fold.logits
    model.encoder, own = train_encoder(prepared, np.arange(len(labels)), folder, "all recordings")
    seconds = rocket.seconds + sum(fold.seconds for fold in folds) + own
    weights = fit_weights(rocket.logits, held_out, labels)
    model.weights.copy_(torch.tensor(weights))
    views = {
        ROCKET: fit_weight(rocket.logits, labels) * rocket.logits,
        ENCODER: held_out,
        BOTH: weights[0] * rocket.logits + weights[1] * held_out,
    }
    trained = task.config.training.epochs * task.config.training.examples_per_epoch * (1 + len(folds))
    rate, peak = trained / seconds, peak_memory_bytes(folder.device)
    records: list[dict[str, Any]] = [
        {"stage": name, **_report(logits, labels, task.metric), "examples_per_second": rate, "peak_memory_bytes": peak}
        for name, logits in views.items()
    ]
    print(_table(records, task.metric, prepared.num_folds))
    progress = folder.started()
    progress.best, progress.epoch = records[-1][f"validation_{task.metric}"], task.config.training.epochs
    progress.history, progress.seconds = records, seconds
    progress.peak_memory_bytes = peak
    folder.write_metrics(records)
    for name in (BEST, LAST):
        folder.save(name, progress, {"model": model.cpu().state_dict()})
    return progress


def _report(logits: Outputs, labels: NDArray[np.int64], metric: str) -> dict[str, float]:
    """Metric and cross-entropy of held-out recordings."""
    probabilities = SOFTMAX.probabilities(logits)[np.arange(len(labels)), labels]
    return {
        f"validation_{metric}": SOFTMAX.report(logits, labels)[metric],
        "validation_cross_entropy": float(-np.log(probabilities.clip(min=1e-12)).mean()),
    }


def _table(records: Sequence[Mapping[str, Any]], metric: str, folds: int) -> str:
    """The records as an aligned table."""
    lines = [f"on {folds} held-out folds of the training recordings:", f"{'':<22}{metric:>10}{'cross-entropy':>15}"]
    for record in records:
        value, loss = record[f"validation_{metric}"], record["validation_cross_entropy"]
        lines.append(f"{record['stage']:<22}{value:>10.4f}{loss:>15.4f}")
    return "\n".join(lines)


def golden_recordings(length: int, channels: int) -> Arrays:
    """Random walks on the grid, among them short ones and a constant.

    Shape:  returns stretched and series (4, length, channels) float32, lengths (4,) int32.
    """
    generator = np.random.default_rng(0)
    walks = on_grid(generator.standard_normal((4, length, channels)).cumsum(axis=1).clip(-30, 30) / 4)
    walks[1] = 0.5
    lengths = np.array([length, length, 1, -(-length // 2)], np.int32)
    series = walks * (np.arange(length) < lengths[:, None])[:, :, None]
    return {"stretched": walks, "series": series.astype(np.float32), "lengths": lengths}
