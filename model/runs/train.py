"""One training run: recipe -> run folder with checkpoints, metrics, a plot of them, and a report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from artifact.provenance import git_revision
from artifact.series import Layout
from artifact.tables.labelled import RecordingLayout
from model.config.data import OWN
from model.config.recipes import choose_recipe, flat, keys_for_own_data, parse_override
from model.config.run import RUNS, AnySeriesRun, ClassificationRun, RunConfig
from model.data.own import DataFiles, OwnTexts
from model.data.own_recipe import RecipeKeys, TextLayout, keys_of_bytes, read_texts
from model.data.own_recordings import OwnRecordings, read_recordings_of
from model.data.series import OwnSeries
from model.errors import UserError
from model.runs.evaluate import evaluate_run
from model.runs.folds import cross_validate
from model.runs.load import finished_run
from model.tasks import task_of
from model.tasks.base import BASELINE, KEPT, KIND, LENGTH, TrainingTask
from model.tasks.classification import ClassificationTask
from model.tasks.kinds import with_kind
from model.tasks.lengths import with_keys
from model.tasks.own_series import read_series_of
from model.tasks.words import WordTask
from model.training.checkpoint import LAST, Facts, RunFolder, load
from model.training.device import choose_device
from model.training.loop import terminate_like_ctrl_c
from model.training.provenance import hardware
from model.training.stages import Stage, run_stages

OwnSource = OwnTexts | OwnSeries | OwnRecordings
"""What was read of the user's files."""
DECIDING_KEYS = ("model.kind", "data.encoding", "model.ngram_view.longest", "model.ngram_view.prefixes")
"""Keys with which the user decides between words and bytes: nothing is compared then."""


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What to train, on what, and where to."""

    task: str | None
    recipe: str | None
    """File or name of a recipe; None for the task's default recipe, or with user data for its recipe for those."""
    overrides: tuple[str, ...]
    files: DataFiles
    texts: TextLayout
    """How the user's files hold documents or pairs."""
    series: Layout
    """How the user's file holds a series."""
    recordings: RecordingLayout
    """How the user's files hold labelled recordings."""
    fill: bool
    """Whether missing values and time steps of the user's series are interpolated."""
    runs: Path
    """Parent folder of the run folders."""
    device: str
    is_resumed: bool
    """Whether to resume from the run's last checkpoint."""
    folds: int = 0
    """Number of folds on which classifiers of the user's documents are measured before; 0 for none."""


def train(request: TrainingRequest) -> Path:
    """Start or resume a run and train it to the end; returns its folder.

    SIGTERM is like Ctrl-C, which leaves a run that can be resumed. Raises: UserError.
    """
    device, keys, source = choose_device(request.device), None, None
    if request.files.data is not None:
        keys, source = _read_own(request)
    config = choose_recipe(request.recipe, request.task, request.overrides, keys)
    if request.files.unlabelled is not None and not (isinstance(config, ClassificationRun) and config.data.unlabelled):
        raise UserError("--unlabelled needs data.unlabelled=true, the default of its recipe")
    share = config.data.series_share if isinstance(config, AnySeriesRun) else 0.0
    if bool(request.files.series) != (share > 0):
        raise UserError("--series and data.series_share above 0 need each other, in a recipe for any series")
    with terminate_like_ctrl_c():
        return _train(request, config, source, device)


def _read_own(request: TrainingRequest) -> tuple[RecipeKeys, OwnSource]:
    """Read the user's files once, and derive recipe keys from them that the user did not set. Raises: UserError."""
    given, data = _given(request), request.files.data
    assert data is not None
    assert request.task is not None
    keys: RecipeKeys
    source: OwnSource
    match RUNS[request.task].reads:
        case "series":
            keys, source = read_series_of(data, request.series, given, fill=request.fill)
        case "recordings":
            keys, source = read_recordings_of(request.files, request.recordings, given)
        case "texts":
            keys, source = read_texts(request.task, request.files, request.texts, given)
    return {key: value for key, value in keys.items() if key not in given}, source


def _train(
    request: TrainingRequest,
    config: RunConfig,
    source: OwnSource | Path | None,
    device: torch.device,
) -> Path:
    path, files = request.runs / f"{config.name}-seed{config.seed}", request.files
    if config.data.name in OWN and files.data is None:
        files = replace(files, data=files.data_dir)
    if request.is_resumed:
        config, kept, origin = _resumed(path, request, config, source)
    else:
        kept, origin = {}, _origin(files, config, device)
    if not request.is_resumed and path.exists() and any(path.iterdir()):
        raise UserError(
            f"{path} exists; resume it with --resume, choose another name or folder (--set name=..., --runs ...), or "
            "remove it"
        )
    task = task_of(config, kept)
    source = task.read(files) if source is None else source
    data = task.with_unlabelled(task.load(source), source)
    task = task.with_facts_of(data)
    stages = task.stages(data)  # which checks the settings before anything is written
    summary, *notes = task.describe(data)
    print("\n".join((f"{summary}, on {device}", *notes)), flush=True)
    folder = RunFolder(path, config, device, task.facts, origin)
    folder.begin()
    try:
        return _run(request, files, folder, task, data, stages, source)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("resume with --resume") from None


def _run(
    request: TrainingRequest,
    files: DataFiles,
    folder: RunFolder,
    task: TrainingTask[Any, Any, Any],
    data: Any,
    stages: Sequence[Stage],
    source: OwnSource | Path,
) -> Path:
    """Choose what depends on the data, train, and evaluate; returns the run folder. Raises: UserError."""
    config, path, device = folder.config, folder.path, folder.device
    # A run with a baseline has made this choice: the baseline comes after it.
    if isinstance(task, WordTask) and _may_choose_kind(request, task.config) and not {KIND, BASELINE} & {*task.facts}:
        task = with_kind(task, data, lambda: _recipe_of_bytes(request, source))
        stages = task.stages(data)
    if isinstance(task, WordTask) and _may_choose_length(request, config):
        task = task.with_length(data, _given(request))
        stages = task.stages(data)
    found = None
    if BASELINE not in task.facts and (found := task.baseline(data)) is not None:
        task = task.knowing(**{BASELINE: {"name": found.name, "setting": found.setting, "value": found.value}})
    if baseline := task.facts.get(BASELINE):
        print(f"{baseline['name']}: validation {task.metric} {baseline['value']:.4f}")
    elif config.data.name == "own" and config.reads == "texts":
        print("no TF-IDF baseline: scikit-learn finds no words in the texts")
    # What torch.use_deterministic_algorithms does, without its import of the compiler, which takes seconds.
    torch.set_deterministic_debug_mode("error" if device.type == "cpu" else "default")
    folder = replace(folder, config=task.config, facts=task.facts)
    folder.begin()
    if request.folds:
        assert isinstance(task, ClassificationTask)
        cross_validate(task, data, folder, files, request.folds)
    progress = run_stages(stages, folder, task.metric)
    last = progress.history[-1]
    print(
        f"{path}: best validation {task.metric} {progress.best:.4f}, {last['examples_per_second']:.1f} {task.unit}/s, "
        f"peak memory {last['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    trained = finished_run(path, files, data)
    if config.data.name == "own" and config.reads == "texts":
        task = replace(trained.task, fitted=found)
        trained = replace(trained, task=replace(task, fitted=task.chosen_baseline(data)))
        for line in trained.task.conclude(trained.finished, data, trained.task.fitted, progress):
            print(line)
    evaluated = evaluate_run(path, trained, device)
    print(f"{evaluated.report}: the results on the test split")
    return path


def _given(request: TrainingRequest) -> dict[str, object]:
    """Keys that the user set, also in a recipe of their own data."""
    given, recipe = dict(map(parse_override, request.overrides)), request.recipe
    if recipe is None or request.files.data is None:
        return given
    assert request.task is not None
    return {**keys_for_own_data(recipe, request.task), **given}


def _may_choose_length(request: TrainingRequest, config: RunConfig) -> bool:
    """Whether cross-validation chooses the number of bytes that a classifier of the user's documents reads at once."""
    is_given = request.texts.max_bytes is not None or "model.ngram_view.max_length" in _given(request)
    return request.files.data is not None and config.data.name == "own" and not is_given


def _may_choose_kind(request: TrainingRequest, config: ClassificationRun) -> bool:
    """Whether cross-validation chooses between words and bytes for a classifier of the user's documents."""
    is_given = bool(request.texts.encoding) or not {*DECIDING_KEYS}.isdisjoint(_given(request))
    has_labels_alone = not config.data.unlabelled and not config.model.has_rounds
    return request.files.data is not None and config.data.name == "own" and has_labels_alone and not is_given


def _recipe_of_bytes(request: TrainingRequest, source: OwnSource | Path | None) -> ClassificationRun | None:
    """The recipe for a model of bytes; None, which is printed, if the user's keys or files do not allow it."""
    assert isinstance(source, OwnTexts)
    assert request.task is not None
    given = _given(request)
    keys = keys_of_bytes(request.task, request.files, request.texts, given, source)
    if keys is None:
        print(
            "n-grams of bytes are not compared: a document has a byte order mark or is in UTF-16; "
            "--set model.kind=bytes reads files as they are"
        )
        return None
    try:
        settings = {key: value for key, value in keys.items() if key not in given}
        config = choose_recipe(request.recipe, request.task, request.overrides, settings)
    except UserError as error:  # of keys that do not fit a model of bytes
        print(f"n-grams of bytes are not compared: {error}")
        return None
    assert isinstance(config, ClassificationRun)
    return config


def _origin(files: DataFiles, config: RunConfig, device: torch.device) -> dict[str, str]:
    """What is known of a run when it starts; with the absolute paths of user data."""
    origin = {"device": hardware(device), "revision": git_revision()}
    if config.data.name in OWN:
        paths = {"data": files.data, "validation": files.validation, "test": files.test}
        origin |= {name: str(path.absolute()) if path else "" for name, path in paths.items()}
    return origin


def _resumed(
    path: Path, request: TrainingRequest, config: RunConfig, source: OwnSource | Path | None
) -> tuple[RunConfig, Facts, dict[str, str]]:
    """Recipe, facts of the data, and origin of the last checkpoint.

    Raises: UserError if its recipe is not `config` with what training chose, or if the code differs.
    """
    last = load(path / LAST)
    may_be_bytes = isinstance(config, ClassificationRun) and _may_choose_kind(request, config)
    if may_be_bytes and last.facts.get(KIND, {}).get("kind") == "bytes":
        config = _recipe_of_bytes(request, source) or config
    if LENGTH in last.facts and isinstance(config, ClassificationRun) and _may_choose_length(request, config):
        config = with_keys(config, last.facts[LENGTH]["keys"])
    if last.config != config:
        found, expected = flat(last.config.to_dict()), flat(config.to_dict())
        changes = [
            f"{key} {found.get(key)}, now {expected.get(key)}"
            for key in sorted(found.keys() | expected.keys())
            if found.get(key) != expected.get(key)
        ]
        raise UserError(
            f"{path / LAST} was trained with another recipe ({'; '.join(changes)}); resume with that recipe and the "
            "same files, or start a new run"
        )
    task_of(config, last.facts).check_code(path / LAST)
    origin = {name: getattr(last.progress, name) for name in ("device", "revision", "data", "validation", "test")}
    return config, {key: last.facts[key] for key in KEPT if key in last.facts}, origin
