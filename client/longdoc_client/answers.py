"""Types of the answers, as the service describes them in its OpenAPI document."""

from typing import Literal, NotRequired, TypedDict


class Score(TypedDict):
    """A label and its calibrated score."""

    label: str
    score: float
    threshold: NotRequired[float | None]
    """Score from which the label applies, if a document may have several labels."""


class Coverage(TypedDict):
    """How much of a document was read."""

    bytes_total: int
    bytes_used: int
    strategy: str
    windows: int
    known: float | None
    """Share of the words that the model knows; None for a model that does not count words."""


class RecordingCoverage(TypedDict):
    """How much of a recording was read."""

    observations_total: int
    observations_used: int
    imputed: int
    strategy: str
    windows: int
    resampled: bool


class Window(TypedDict):
    """Scores of a part of a document."""

    start: int
    end: int
    scores: list[Score]


class Stretch(TypedDict):
    """What a part of a document or recording adds to the logit of each label."""

    start: int
    end: int
    contributions: dict[str, float]


class Classification(TypedDict):
    """The label of a document or recording."""

    label: str
    score: float
    labels: NotRequired[list[str] | None]
    """Labels that reach their thresholds, if a document may have several."""
    scores: list[Score]
    coverage: Coverage | RecordingCoverage
    windows: NotRequired[list[Window] | None]
    stretches: NotRequired[list[Stretch] | None]


class PairCoverage(TypedDict):
    """How much of the two documents of a pair was read."""

    a: Coverage
    b: Coverage


class PairScore(TypedDict):
    """The probability that the two documents of a pair belong together."""

    score: float
    coverage: PairCoverage


class RankedDocument(TypedDict):
    """A document of a ranking; `index` is its place among the documents that were sent."""

    index: int
    score: float
    coverage: Coverage
    cached: bool
    document: NotRequired[str | None]


class Ranking(TypedDict):
    """Documents in the order of their scores."""

    model: str
    version: int
    results: list[RankedDocument]
    query_coverage: Coverage


class SeriesCoverage(TypedDict):
    """How much of the series was read."""

    observations_total: int
    observations_used: int
    imputed: int
    context_length: int


Values = dict[str, list[float]] | list[list[float]] | list[float]
"""Values by series, in the form of the request."""
Season = int | list[int] | dict[str, int | list[int]] | list[int | list[int]]


class Forecast(TypedDict):
    """The next steps of one or several series."""

    model: str
    version: int
    model_from: Literal["request", "series", "default"]
    forecast: Values
    quantiles: dict[str, Values]
    quantiles_reliable: bool
    coverage: SeriesCoverage
    season: NotRequired[Season | None]
    season_from: NotRequired[Literal["request", "frequency", "data"] | None]
    timestamps: NotRequired[list[str] | None]
