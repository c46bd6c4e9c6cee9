"""Which model a request is for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from artifact.defaults import DEFAULTS, TaskName
from artifact.errors import BadExport, InvalidInput
from artifact.loading import LoadedModel
from service.engine.served import ServedClassifier, ServedForecaster, ServedMatcher, ServedModel
from service.errors import ModelNotFound
from service.settings import Settings

M = TypeVar("M", bound=ServedModel)

SETTINGS = {
    "default_classifier": "text-classification",
    "default_matcher": "text-matching",
    "default_forecaster": "forecasting",
}
"""Setting -> task of the model it names."""


@dataclass(frozen=True)
class Default:
    """The model of a task that answers when a request names none."""

    name: str
    reason: str
    """Why it is this one."""


class Models(dict[str, ServedModel]):
    """Served models by name.

    Args:
        settings: may name the default of a task.
        listed: task -> default of it, where no setting names one.

    """

    def __init__(self, settings: Settings, listed: Mapping[TaskName, str]) -> None:
        super().__init__()
        self._chosen: dict[str, Default] = {task: Default(name, DEFAULTS) for task, name in listed.items()}
        for setting, task in SETTINGS.items():
            if (name := getattr(settings, setting)) is not None:
                self._chosen[task] = Default(name, setting)
        self._first: dict[str, Default] = {}

    def default(self, task: str) -> Default | None:
        """The default of a task: the setting's, that of the file, or the one that was there before there were several.

        None if there are several without one of these.
        """
        for defaults in (self._chosen, self._first):
            if (found := defaults.get(task)) is not None and found.name in self._names(task):
                return found
        return None

    def settle(self, task: str) -> Default | None:
        """Make the only model of a task its default, which it stays when others come; the default."""
        if self.default(task) is None and len(names := self._names(task)) == 1:
            self._first[task] = Default(names[0], "the only one when it was loaded")
        return self.default(task)

    def _names(self, task: str) -> list[str]:
        return [name for name, model in self.items() if model.manifest.task == task]

    def named(self, name: str, version: str | None = None) -> ServedModel:
        """Look a model up. Raises: ModelNotFound naming what there is."""
        model = self.get(name)
        if model is None:
            raise ModelNotFound(f"no model of that name is served; there are: {', '.join(self)}")
        if version is not None and version != str(model.manifest.version):
            raise ModelNotFound(f"model {name} is served in version {model.manifest.version} only")
        return model

    def classifier(self, name: str | None) -> ServedClassifier:
        """Model for a request: the one named, or the default.

        Raises: ModelNotFound; InvalidInput if the model is of another task, or one has to be named.
        """
        return self._choose(ServedClassifier, "text-classification", name)

    def matcher(self, name: str | None) -> ServedMatcher:
        """As `classifier`, for pairs."""
        return self._choose(ServedMatcher, "text-matching", name)

    def forecaster(self, name: str | None, channels: Sequence[str] | None = None) -> ServedForecaster:
        """As `classifier`, for series; named channels that fit one model alone choose it before the default does."""
        if name is None and channels is not None:
            models = self._of(ServedForecaster).values()
            fitting = [model for model in models if set(model.manifest.channels) == set(channels)]
            if len(fitting) == 1:
                return fitting[0]
        return self._choose(ServedForecaster, "forecasting", name)

    @property
    def longest_context(self) -> int:
        """Steps that any forecaster reads, at most."""
        return max((model.manifest.context_length for model in self._of(ServedForecaster).values()), default=1)

    def _of(self, kind: type[M]) -> dict[str, M]:
        return {name: model for name, model in self.items() if isinstance(model, kind)}

    def _choose(self, kind: type[M], task: str, name: str | None) -> M:
        """Take the named one of a task's models, else the default."""
        models = self._of(kind)
        known = ", ".join(models) or "none"
        if name is None and (default := self.default(task)) is not None:
            name = default.name
        if name is None:
            raise InvalidInput(f"name a model; for this route there are: {known}", [("model", "missing")])
        chosen = models.get(name)
        if chosen is None:
            other = self.named(name)
            message = f"{other.manifest.name} does {other.manifest.task}; for this route there are: {known}"
            raise InvalidInput(message, [("model", "of another task")])
        return chosen


def check_defaults(models: Sequence[LoadedModel], settings: Settings) -> None:
    """Every default model must be there and of its task. Raises: BadExport."""
    for setting, task in SETTINGS.items():
        names = [model.manifest.name for model in models if model.manifest.task == task]
        if (name := getattr(settings, setting)) not in (None, *names):
            known = ", ".join(names) or "none"
            raise BadExport(f"{setting} {name!r} is not among the exports for {task}: {known}", "missing")
