"""Which model a request is for."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from artifact.errors import BadExport, InvalidInput
from artifact.loading import LoadedModel
from service.engine.served import ServedClassifier, ServedForecaster, ServedMatcher, ServedModel
from service.errors import ModelNotFound
from service.settings import Settings

M = TypeVar("M", bound=ServedModel)

DEFAULTS = {
    "default_classifier": "text-classification",
    "default_matcher": "text-matching",
    "default_forecaster": "forecasting",
}
"""Setting -> task of the model it names."""


class Models(dict[str, ServedModel]):
    """Served models by name."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def named(self, name: str, version: str | None = None) -> ServedModel:
        """Look a model up. Raises: ModelNotFound naming what there is."""
        model = self.get(name)
        if model is None:
            raise ModelNotFound(f"no model of that name is served; there are: {', '.join(self)}")
        if version is not None and version != str(model.manifest.version):
            raise ModelNotFound(f"model {name} is served in version {model.manifest.version} only")
        return model

    def classifier(self, name: str | None) -> ServedClassifier:
        """Model for a request: the one named, the setting's, or the only one.

        Raises: ModelNotFound; InvalidInput if the model is of another task, or one has to be named.
        """
        return self._choose(self._of(ServedClassifier), name or self._settings.default_classifier)

    def matcher(self, name: str | None) -> ServedMatcher:
        """As `classifier`, for pairs."""
        return self._choose(self._of(ServedMatcher), name or self._settings.default_matcher)

    def forecaster(self, name: str | None, channels: Sequence[str] | None = None) -> ServedForecaster:
        """As `classifier`, for series; named channels that fit one model alone choose it before the setting does."""
        models = self._of(ServedForecaster)
        if name is None and channels is not None:
            fitting = [model for model in models.values() if set(model.manifest.channels) == set(channels)]
            if len(fitting) == 1:
                return fitting[0]
        return self._choose(models, name or self._settings.default_forecaster)

    @property
    def longest_context(self) -> int:
        """Steps that any forecaster reads, at most."""
        return max((model.manifest.context_length for model in self._of(ServedForecaster).values()), default=1)

    def _of(self, kind: type[M]) -> dict[str, M]:
        return {name: model for name, model in self.items() if isinstance(model, kind)}

    def _choose(self, models: Mapping[str, M], name: str | None) -> M:
        """Take the named one of a task's models, else the only one."""
        known = ", ".join(models) or "none"
        if name is None and len(models) != 1:
            raise InvalidInput(f"name a model; for this route there are: {known}", [("model", "missing")])
        chosen = models.get(name or next(iter(models)))
        if chosen is None:
            other = self.named(name or "")
            message = f"{other.manifest.name} does {other.manifest.task}; for this route there are: {known}"
            raise InvalidInput(message, [("model", "of another task")])
        return chosen


def check_defaults(models: Sequence[LoadedModel], settings: Settings) -> None:
    """Every default model must be there and of its task. Raises: BadExport."""
    for setting, task in DEFAULTS.items():
        names = [model.manifest.name for model in models if model.manifest.task == task]
        if (name := getattr(settings, setting)) not in (None, *names):
            known = ", ".join(names) or "none"
            raise BadExport(f"{setting} {name!r} is not among the exports for {task}: {known}", "missing")
