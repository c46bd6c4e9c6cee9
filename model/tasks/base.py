"""Interface between commands and tasks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from torch import nn

from artifact.manifest import ExportManifest, Result
from model.config.run import RunConfig
from model.data.own import DataFiles
from model.errors import UserError
from model.tasks.graphs import Arrays, ExportGraph, GraphFunction
from model.tasks.predictions import AllOutputs, Predictions, Stretch
from model.tasks.tfidf import Baseline
from model.training.checkpoint import Facts, Progress
from model.training.stages import Stage

FINGERPRINT = "data_sha256"
"""Key of a fact: fingerprint of the user data."""
SPLITS = "splits_sha256"
"""Key of a fact: fingerprint of the training and validation texts. Earlier runs have none."""
UNLABELLED = "unlabelled_sha256"
"""Key of a fact: fingerprint of the unlabelled documents."""
ADDED = "series_sha256"
"""Key of a fact: fingerprint of the user's series that are added to generated ones."""
BASELINE = "baseline"
"""Key of a fact: name, setting and validation value of the baseline."""
LENGTH = "length"
"""Key of a fact: keys of the n-gram view that follow from the lengths of the documents, and the reason."""
KIND = "kind"
"""Key of a fact: the kind of a text classifier that cross-validation chose, and the reason."""
KEPT = (FINGERPRINT, SPLITS, UNLABELLED, ADDED, BASELINE, LENGTH, KIND)
"""Facts that a resumed run keeps; the others follow from the data."""

R = TypeVar("R", bound=RunConfig)
S = TypeVar("S")
D = TypeVar("D")


@dataclass(frozen=True)
class Finished:
    """A trained model as it is evaluated and exported: calibrated, on the CPU, in evaluation mode."""

    model: nn.Module
    final: nn.Module | None
    """Model that was trained on all rows, if the recipe asks for it; to be exported instead of `model`."""
    graphs: tuple[ExportGraph, ...]
    """Graphs of `model`, to measure; the first is the main one."""
    exported: tuple[ExportGraph, ...]
    """Graphs to export."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the manifest that the calibration gives."""
    facts: Facts = field(default_factory=dict)
    """Facts that the calibration gives, which measuring needs."""


@dataclass(frozen=True)
class Measurement:
    """What was measured on the test split."""

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    """Notes to print, one per line."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the manifest that follow from it."""
    archives: Mapping[str, Arrays] = field(default_factory=dict)
    """Key of the manifest -> arrays, to be written beside it."""
    predictions: Predictions | None = None
    """What the model predicts for each example, for the report."""


@dataclass(frozen=True)
class TrainingTask(ABC, Generic[R, S, D]):
    """One task with one recipe and what is known of its data. S: what a command has read; D: the data in splits."""

    config: R
    facts: Facts = field(default_factory=dict)
    fitted: Baseline | None = field(default=None, compare=False)
    """The baseline of the data, if it is fitted already."""

    unit: ClassVar[str]
    """Unit of progress bars and throughput: doc, pair or window."""

    def knowing(self, **facts: Any) -> Self:
        """The same task with more facts."""
        return replace(self, facts={**self.facts, **facts})

    @property
    @abstractmethod
    def metric(self) -> str:
        """Validation metric."""

    @property
    def recipe(self) -> R:
        """The recipe of the model, without the parts that the model does not have."""
        return self.config

    @abstractmethod
    def read(self, files: DataFiles, *, is_new: bool = False) -> S:
        """Read user data, each file once; of a data set, its folder. Raises: UserError naming file and line.

        `is_new`: whether all rows of `files.data` may be test data, which need no groups.
        """

    @abstractmethod
    def load(self, source: S) -> D:
        """Split what was read. Raises: UserError naming file and line, or if the model was trained on other data."""

    def with_unlabelled(self, data: D, source: S) -> D:
        """The data with unlabelled documents, if training reads them. Raises: UserError."""
        del source
        return data

    @abstractmethod
    def with_facts_of(self, data: D) -> Self:
        """The task with the facts that follow from the data."""

    def fingerprint(self, source: S) -> str:
        """Fingerprint of user data, to recognise the training data; empty if there is none."""
        del source
        return ""

    def with_test(self, data: D | None, source: S) -> D:
        """The data with all rows of another file as the test split; without `data`, the other splits are empty.

        Called only for tasks whose user data has a fingerprint. Raises: UserError naming file and line.
        """
        raise NotImplementedError

    def check_fingerprint(self, fingerprint: str, path: Path) -> None:
        """Check that user data is that of training: otherwise the splits would differ. Raises: UserError."""
        if self.facts.get(FINGERPRINT, fingerprint) != fingerprint:
            raise UserError(f"{path} is not what {self.config.name} was trained on: its rows differ from those of then")

    def check_splits(self, splits: str, path: Path) -> None:
        """Check that training and validation have the same texts as in training. Raises: UserError."""
        if self.facts.get(SPLITS, splits) != splits:
            raise UserError(
                f"{path}: its rows are those that {self.config.name} was trained on, but not in the splits of then: "
                "the order of the rows, their splits or groups, or the files of validation and test have changed"
            )

    def check_code(self, path: Path) -> None:
        """Check that the code still builds the model of a checkpoint, whose facts the task knows.

        Raises: UserError naming the file.
        """
        del path

    @abstractmethod
    def describe(self, data: D) -> tuple[str, ...]:
        """Summary of the data, and notes; one line each."""

    def baseline(self, data: D, *settings: str) -> Baseline | None:
        """Fit the baseline of user data with the best settings, which are not chosen on test data.

        `settings` are the candidates; by default all. Returns None if there is nothing to compare with.
        """
        del data, settings
        return None

    def chosen_baseline(self, data: D) -> Baseline | None:
        """The baseline with the setting that was chosen in training; None if training has none."""
        if BASELINE not in self.facts:
            return None
        return self.fitted or self.baseline(data, self.facts[BASELINE]["setting"])

    @abstractmethod
    def stages(self, data: D) -> Sequence[Stage]:
        """The stages of training. Raises: UserError if there are too few examples."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Create the model, without data-dependent initialisation."""

    @abstractmethod
    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        """Graphs of a model; the first is the main model."""

    @abstractmethod
    def finish(self, model: nn.Module, final: nn.Module | None, data: D) -> Finished:
        """Quantise and calibrate a trained model on validation data, and alike `final`, trained on all rows."""

    @abstractmethod
    def measure(self, functions: Sequence[GraphFunction], data: D) -> Measurement:
        """Evaluate on the test split. `functions` compute the graphs, in the same order."""

    def conclude(self, finished: Finished, data: D, baseline: Baseline | None, progress: Progress) -> tuple[str, ...]:
        """Lines to print at the end of training: what was trained, and how it compares with the baseline."""
        del finished, data
        if baseline is None or progress.best is None or progress.best >= baseline.value:
            return ()
        values = f"{progress.best:.4f} is below that of {baseline.name}, {baseline.value:.4f}"
        return (f"warning: validation {self.metric} {values}",)

    def stretches(self, compute: AllOutputs, example: Any) -> Sequence[Stretch]:
        """The parts of a document or recording with their contributions, by start; none if they are not known."""
        del compute, example
        return ()

    @abstractmethod
    def manifest(self, golden: Arrays) -> dict[str, Any]:
        """Task-specific keys of the manifest, besides those of calibration and measurement."""

    def finished(self, model: nn.Module, final: nn.Module | None, **keys: Any) -> Finished:
        """The result of `finish`."""
        graphs = self.graphs(model)
        return Finished(model, final, graphs, graphs if final is None else self.graphs(final), keys)

    @abstractmethod
    def of_export(self, manifest: ExportManifest, folder: Path) -> Self:
        """The task with the facts and the calibration stored in an export."""

    @abstractmethod
    def terms(self) -> tuple[str, bool]:
        """Terms of use of the data, and whether they forbid commercial use."""
