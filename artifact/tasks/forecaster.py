"""What all forecasters share: the options of a request, its plan, and the answer."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from artifact.arrays import Doubles
from artifact.errors import InvalidInput
from artifact.series import SeriesCoverage, Step, Tails
from artifact.tasks.base import Computation, Task

T = TypeVar("T")
MAX_LEVELS = 20
"""Maximum number of quantile levels."""
Seasons = tuple[int, ...]
"""Steps of the season, or of two seasons such as a day and a week, the shorter first; 1 for none."""
SeasonSource = Literal["request", "frequency", "data"]


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """What a request says of a forecast."""

    horizon: int | None = None
    """Number of steps; None means the default of the model."""
    levels: Sequence[float] = ()
    """Levels of the quantiles."""
    step: Step | None = None
    """Time between two values."""
    seasons: Seasons | None = None
    """None: to be found."""
    non_negative: bool = False
    """Whether values below 0 become 0."""


@dataclass(frozen=True, slots=True)
class ForecastPlan:
    """What is to be computed for one request, checked."""

    series: Tails
    """Channels in the order of the model."""
    names: Sequence[str] | None
    """Names of the channels in the order of the request; None if they came by position."""
    order: Sequence[int]
    """Index in the request of each channel of the model."""
    horizon: int
    options: ForecastOptions
    seasons: Sequence[Seasons] = ()
    """Of each series, if each is forecast alone."""
    season_from: SeasonSource | None = None
    """What the seasons were found in."""
    is_flat: bool = False
    """Whether the only series came as a list of its values."""

    @property
    def count(self) -> int:
        """Number of numbers in the answer."""
        return self.horizon * len(self.order) * (1 + len(self.options.levels))

    def arranged(self, of_channels: Sequence[T]) -> dict[str, T] | list[T] | T:
        """What belongs to the channels, in the order of the model, as the series came."""
        by_index = dict(zip(self.order, of_channels, strict=True))
        in_order = [by_index[index] for index in range(len(by_index))]
        if self.names is not None:
            return dict(zip(self.names, in_order, strict=True))
        return in_order[0] if self.is_flat else in_order


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast in the units of the data."""

    plan: ForecastPlan = field(repr=False)
    values: Doubles
    """(horizon, channels)."""
    quantiles: dict[float, Doubles]
    """Level -> (horizon, channels)."""
    quantiles_reliable: bool
    """Whether the bands can be relied on: their measured coverage is close to nominal and few values were imputed."""
    coverages: Sequence[SeriesCoverage]
    """How much was read: of all channels together, or of each if each is forecast alone."""

    def as_json(self) -> dict[str, Any]:
        """The JSON object returned to clients, with the channels as in the request."""
        plan = self.plan
        found = {
            "forecast": plan.arranged(self.values.T.tolist()),
            "quantiles": {str(level): plan.arranged(values.T.tolist()) for level, values in self.quantiles.items()},
            "quantiles_reliable": self.quantiles_reliable,
            "coverage": {
                **SeriesCoverage.sums(self.coverages),
                "context_length": self.coverages[0].context_length,
            },
        }
        if plan.season_from is None:
            return found
        each = [one[0] if len(one) == 1 else list(one) for one in plan.seasons]
        season = plan.arranged(each) if plan.season_from == "data" else each[0]
        return {**found, "season": season, "season_from": plan.season_from}


class Forecaster(Task):
    """A forecaster, of the channels that it was trained on or of any series."""

    name: ClassVar[str] = "forecasting"
    kind: ClassVar[str] = "forecaster"
    operations: ClassVar[tuple[str, ...]] = ("forecast",)
    is_chosen_by_input = True

    @property
    @abstractmethod
    def context_length(self) -> int:
        """Number of last steps that the model reads."""

    @property
    @abstractmethod
    def step(self) -> Step | None:
        """Time between two values, if it is always the same."""

    @abstractmethod
    def fits(self, channels: Sequence[str] | None, step: Step | None, *, exactly: bool = False) -> bool:
        """Whether a request with these channels and this step, but without a name, is meant for this model.

        None means that the request does not tell them; with `exactly`, it must.
        """

    @abstractmethod
    def check(self, options: ForecastOptions) -> None:
        """Check the options of a request alone. Raises: InvalidInput naming the option."""

    @abstractmethod
    def plan(self, names: Sequence[str] | None, series: Tails, options: ForecastOptions) -> ForecastPlan:
        """Check a request, and complete its options.

        Args:
            names: names of the channels, in any order; None if they came by position.
            series: last steps of each channel, as many as the model reads unless the channel is shorter.
            options: of the request.

        Raises: InvalidInput naming the option or the channel.

        """

    @abstractmethod
    def count_items(self, steps: int) -> int:
        """Number of items of so many steps, as servers count the work to check and convert inputs."""

    @abstractmethod
    def forecast(
        self, plans: Sequence[ForecastPlan], rename: Callable[[int, str], str] | None = None
    ) -> Computation[list[Forecast]]:
        """Compute forecasts.

        Args:
            plans: made by `plan`.
            rename: (index of a plan, location in its series) -> location in the request, for errors.

        Raises: InvalidInput naming the channel.

        """


def check_levels(levels: Sequence[float]) -> None:
    """Check the number of levels. Raises: InvalidInput."""
    if len(levels) > MAX_LEVELS or len(set(levels)) < len(levels):
        raise InvalidInput.at("quantiles", f"at most {MAX_LEVELS} levels, each once")
