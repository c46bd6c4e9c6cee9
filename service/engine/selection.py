"""The served models, and the choice of the model for a request."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from typing_extensions import override

from artifact.defaults import DEFAULTS
from artifact.errors import BadExport, InvalidInput
from artifact.manifest import ExportManifest
from artifact.series import Step
from artifact.tasks import TASKS
from artifact.tasks.any_series import AnySeries
from artifact.tasks.base import Task
from artifact.tasks.forecaster import Forecaster
from service.engine.served import AnyModel, ServedModel
from service.errors import ModelNotFound
from service.settings import Settings
from service.versions import pinned

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Task)
ModelSource = Literal["request", "series", "default"]
"""What chose the model: its name in the request, the channels and the step of the series, or that it is the default."""

DEFAULT_SETTINGS = {name: f"default_{task.kind}" for name, task in TASKS.items()}
"""Task -> setting that names its default model."""


@dataclass(frozen=True)
class Default:
    """Default model of a task, for requests that name no model."""

    name: str
    """`name` or `name@version`."""
    reason: str
    """What made it the default."""


class Models(Mapping[str, AnyModel]):
    """Served models: name -> highest version. Requests may pin any served version as `name@version`.

    Args:
        settings: may name the default model of a task, and aliases.

    """

    def __init__(self, settings: Settings) -> None:
        self._versions: dict[str, dict[int, AnyModel]] = {}
        """Name -> version -> model, the highest version first."""
        self._by_task: dict[str, list[AnyModel]] = {}
        self._aliases = settings.aliases
        self._from_settings = {
            task: Default(name, setting)
            for task, setting in DEFAULT_SETTINGS.items()
            if (name := getattr(settings, setting)) is not None
        }
        self._from_file: dict[str, Default] = {}
        self._sole_models: dict[str, Default] = {}
        """Task -> model that `choose_default` chose because it was the only one of the task."""
        self._defaults: dict[str, tuple[Default, AnyModel] | None] = {}
        """Task -> its default, found since the models or the defaults last changed: every request asks for it."""

    @override
    def __getitem__(self, name: str) -> AnyModel:
        return next(iter(self._versions[name].values()))

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    @override
    def __len__(self) -> int:
        return len(self._versions)

    @property
    def served(self) -> list[AnyModel]:
        """Every version of every model, in the order of the names, the highest version first."""
        return [model for versions in self._versions.values() for model in versions.values()]

    def of_task(self, task: str) -> Sequence[AnyModel]:
        """Every version of the models of a task, in the order of `served`."""
        return self._by_task.get(task, ())

    def versions(self, name: str) -> list[AnyModel]:
        """Served versions of a model, highest first; empty if none is served."""
        return list(self._versions.get(name, {}).values())

    @property
    def aliases(self) -> dict[str, AnyModel]:
        """Alias -> model, of the aliases that are in effect: those of served models that are not a model's name."""
        found = {alias: self._find(alias) for alias in self._aliases if alias not in self._versions}
        return {alias: model for alias, model in found.items() if model is not None}

    def add(self, model: AnyModel) -> None:
        """Serve a version, in addition to the other versions of its name."""
        name, version = model.manifest.name, model.manifest.version
        versions = {**self._versions.get(name, {}), version: model}
        self._versions[name] = dict(sorted(versions.items(), reverse=True))
        self._group()

    def discard(self, name: str, version: int) -> AnyModel:
        """Stop serving a version; return it."""
        model = self._versions[name].pop(version)
        if not self._versions[name]:
            del self._versions[name]
        self._group()
        return model

    def _group(self) -> None:
        """Group the served models by task; every request asks for the models of a task, and they seldom change."""
        self._defaults.clear()
        self._by_task = {}
        for model in self.served:
            self._by_task.setdefault(model.manifest.task, []).append(model)

    def use_defaults(self, defaults: Mapping[str, str]) -> None:
        """Replace the defaults of `defaults.json`: task -> name of the model."""
        self._from_file = {task: Default(name, DEFAULTS) for task, name in defaults.items()}
        self._defaults.clear()

    def default(self, task: str) -> Default | None:
        """The default model of a task; None if there is none.

        The first of these that is served and has this task: the model of the setting, that of `defaults.json`, the one
        that was once the only model of the task.
        """
        found = self._find_default(task)
        return None if found is None else found[0]

    def _find_default(self, task: str) -> tuple[Default, AnyModel] | None:
        """The default model of a task, as `default` tells."""
        if task not in self._defaults:
            named = [all_of.get(task) for all_of in (self._from_settings, self._from_file, self._sole_models)]
            models = [(default, self._find(default.name)) for default in named if default is not None]
            fitting = [(default, model) for default, model in models if model and model.manifest.task == task]
            self._defaults[task] = fitting[0] if fitting else None
        return self._defaults[task]

    def choose_default(self, task: str) -> Default | None:
        """The default model of a task. If there is none, the only model of the task becomes its default permanently."""
        names = [name for name, model in self.items() if model.manifest.task == task]
        if self.default(task) is None and len(names) == 1:
            self._sole_models[task] = Default(names[0], "it was the only model of its task")
            self._defaults.clear()
        return self.default(task)

    def named(self, name: str, version: str | None = None) -> AnyModel:
        """Find a served model: a given version, or the highest version of a name.

        Args:
            name: `name`, `name@version` for a given version, or an alias.
            version: version, if `name` has none.

        Raises: ModelNotFound; the message lists the served versions of the model, or else the served models.

        """
        full_name = name if version is None else pinned(name, version)
        if (model := self._find(full_name)) is not None:
            return model
        if versions := self.versions(full_name.partition("@")[0]):
            numbers = ", ".join(str(model.manifest.version) for model in versions)
            which = "version" if len(versions) == 1 else "versions"
            raise ModelNotFound(f"model {versions[0].manifest.name} is served in {which} {numbers} only")
        raise ModelNotFound(f"no model of that name is served; there are: {', '.join(self) or 'none'}")

    def _find(self, name: str) -> AnyModel | None:
        """The model with this name, or `name@version`, or else with this alias."""
        if name.partition("@")[0] not in self._versions:
            name = self._aliases.get(name, name)
        name, separator, version = name.partition("@")
        found = self._versions.get(name, {})
        if not separator:
            return next(iter(found.values()), None)
        return next((model for number, model in found.items() if str(number) == version), None)

    def asked(self, task: str, name: str | None) -> AnyModel | None:
        """The model that a request for a task asks for, by name or as the default; None if it is not served.

        None for a request without a name if its inputs may select the model.
        """
        if name is not None:
            return self._find(name)
        return None if TASKS[task].is_chosen_by_input else self.default_model(task)

    def default_model(self, task: str) -> AnyModel | None:
        """The model that `default` names; None if there is none."""
        found = self._find_default(task)
        return None if found is None else found[1]

    def choose(self, kind: type[T], name: str | None, fits: Callable[[T], bool] = lambda _: True) -> ServedModel[T]:
        """The model for a request: the one it names, or the default.

        Without a name, the inputs may select the model if the task allows it: if exactly one model fits them, it is
        selected; otherwise the default is. Only the highest version of each model is considered. If the default pins a
        version, that version is considered too, and is preferred to the highest version of the same model.

        Args:
            kind: the task.
            name: name of the model, if the request has one.
            fits: whether a model of the task fits the inputs.

        Raises: ModelNotFound; InvalidInput if the model has another task, or if there is no default.

        """
        if name is None and kind.is_chosen_by_input:
            default = self.default_model(kind.name)
            candidates = [*self._highest(kind), *([] if default is None else [default])]
            fitting = {model.manifest.name: model for model in candidates if fits(model.task)}
            if len(fitting) == 1:
                return next(iter(fitting.values()))
        chosen = self.default_model(kind.name) if name is None else self._find(name)
        if chosen is not None and isinstance(chosen.task, kind):
            return chosen
        names = ", ".join(model.manifest.name for model in self._highest(kind))
        if name is None:
            message = (
                f"name a model; models for {kind.name}: {names}" if names else f"no model for {kind.name} is served"
            )
            raise InvalidInput(message, [("model", "missing")])
        other = self.named(name)
        message = f"{other.manifest.name} is for {other.task.name}; models for {kind.name}: {names or 'none'}"
        raise InvalidInput(message, [("model", "of another task")])

    def choose_forecaster(
        self, name: str | None, channels: Sequence[str] | None, step: Step | None
    ) -> tuple[ServedModel[Forecaster], ModelSource]:
        """The forecaster for a request, and what chose it.

        If the default is a forecaster of any series, another one answers a request without a name only if the request
        names exactly its channels and its step.

        Args:
            name: name of the model, if the request has one.
            channels: names of the channels, if the request has them.
            step: time between two values, if the request has it.

        Raises: as `choose`.

        """
        default = self.default_model(Forecaster.name)
        exactly = default is not None and isinstance(default.task, AnySeries)
        chosen = self.choose(Forecaster, name, lambda task: task.fits(channels, step, exactly=exactly))
        return chosen, "request" if name is not None else "default" if chosen is default else "series"

    @property
    def longest_context(self) -> int:
        """Longest context of any served forecaster, in steps."""
        return max((model.task.context_length for model in self.of_task(Forecaster.name)), default=1)

    def _highest(self, kind: type[T]) -> list[ServedModel[T]]:
        """The highest version of each model of a task."""
        return [model for model in self.values() if isinstance(model.task, kind)]


def check_defaults(manifests: Sequence[ExportManifest], settings: Settings) -> None:
    """Check that each default model of the settings is among the exports of its task. Raises: BadExport."""
    for task, setting in DEFAULT_SETTINGS.items():
        if (name := getattr(settings, setting)) is not None and name not in (known := _names(manifests, task, name)):
            listed = ", ".join(known) or "none"
            raise BadExport(f"{setting} {name!r} is not among the exports for {task}: {listed}", "missing")


def check_aliases(manifests: Sequence[ExportManifest], settings: Settings) -> None:
    """Check that each alias of the settings is of a model among the exports. Raises: BadExport.

    An alias that is the name of a model has no effect, which is logged: an export may be added at any time.
    """
    names = {manifest.name for manifest in manifests}
    known = names | {pinned(manifest.name, manifest.version) for manifest in manifests}
    for alias, name in settings.aliases.items():
        if name not in known:
            listed = ", ".join(sorted(known if "@" in name else names)) or "none"
            raise BadExport(f"aliases: {alias} is for {name!r}, which is not among the exports: {listed}", "missing")
        if alias in names:
            log.warning("aliases: %s is the name of a model, which answers instead of %s", alias, name)


def unknown_defaults(defaults: Mapping[str, str], manifests: Sequence[ExportManifest]) -> Iterator[str]:
    """Yield a message for each default of `defaults.json` that is not among the models of its task."""
    for task, name in defaults.items():
        if name not in (known := _names(manifests, task, name)):
            yield f"{task}: there is no model {name!r} for this task; there are: {', '.join(known) or 'none'}"


def _names(manifests: Iterable[ExportManifest], task: str, default: str) -> list[str]:
    """Names of the models of a task, in the form of `default`: `name` or `name@version`."""
    found = [manifest for manifest in manifests if manifest.task == task]
    names = [pinned(manifest.name, manifest.version) if "@" in default else manifest.name for manifest in found]
    return list(dict.fromkeys(names))


def check_task(manifest: ExportManifest, other: ExportManifest | None) -> None:
    """Check that a version has the same task as another version of the model. Raises: BadExport."""
    if other is not None and other.task != manifest.task:
        name = manifest.name
        raise BadExport(f"{name}/{manifest.version} is for {manifest.task}; {name} is served for {other.task}", "task")
