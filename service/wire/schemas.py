"""Types of requests and responses of the service's own routes, for validation and the OpenAPI document."""

from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from artifact.documents import OnOverflow
from artifact.series import parse_frequency
from artifact.tasks.forecaster import ForecastOptions, SeasonSource
from artifact.tasks.labels import ResultOptions
from service.engine.selection import ModelSource

ModelName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=128),
    Field(description="Name of a model, which selects its highest version; or `name@version`, such as imdb-s3@8."),
]
MAX_TEXTS = 100_000
"""Maximum number of texts in a body, whatever the settings: the event loop receives them from the parser process."""
LIMIT = "x-limit"
"""Key of a JSON schema of a list whose maximum length is the setting of that name; `service.wire.openapi` writes it."""


def up_to(most: int, setting: str) -> Any:
    """Constraints of a list of texts.

    Validation stops at the first invalid value: describing a million invalid ones would take minutes and gigabytes.

    Args:
        most: maximum length, whatever the settings.
        setting: name of the setting that limits the length further.

    """
    return Field(fail_fast=True, max_length=most, json_schema_extra={"minItems": 1, LIMIT: setting})


TextList = Annotated[list[str], up_to(MAX_TEXTS, "max_documents")]
EmbeddedTexts = Annotated[list[str], up_to(MAX_TEXTS, "max_embedding_documents")]
Candidates = Annotated[list[str], up_to(MAX_TEXTS, "max_rank_documents")]
"""Texts to score with one text."""


def text_or_list(value: object) -> str | None:
    """Tag of a text or a list, so that an error is reported for one of the types only."""
    return "text" if isinstance(value, str) else "list" if isinstance(value, list) else None


TEXT_OR_LIST = Discriminator(
    text_or_list, custom_error_type="inputs", custom_error_message="Input should be a string or a list of strings"
)
Inputs = Annotated[Annotated[str, Tag("text")] | Annotated[TextList, Tag("list")], TEXT_OR_LIST]
"""One document or several."""
EmbeddingInputs = Annotated[Annotated[str, Tag("text")] | Annotated[EmbeddedTexts, Tag("list")], TEXT_OR_LIST]
"""One text or several, of which OpenAI's clients send more than other requests have."""


MAX_CHANNELS = 10_000
"""Maximum number of channels in a body: more than any model has."""
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Channel = Annotated[list[Number | None], Field(fail_fast=True)]
Channels = Annotated[list[Channel], Field(fail_fast=True, max_length=MAX_CHANNELS)]
NamedChannels = Annotated[dict[str, Channel], Field(max_length=MAX_CHANNELS)]


def _layout(series: object) -> str:
    """Tag of a series: by its first element, a list has one list for each channel, or the values of one channel."""
    if isinstance(series, list) and series and not isinstance(series[0], list):
        return "flat"
    return "named" if isinstance(series, dict) else "positional"


Series = Annotated[
    Annotated[NamedChannels, Tag("named")] | Annotated[Channels, Tag("positional")] | Annotated[Channel, Tag("flat")],
    Discriminator(_layout),
]
"""Values of each channel, oldest first, null if missing; by name of the channel, or in the model's order, or of one."""


def _recordings(series: object) -> str:
    """Tag of one series or several: a list of objects has one for each."""
    return "several" if isinstance(series, list) and series and isinstance(series[0], dict) else _layout(series)


SeriesInputs = Annotated[
    Annotated[NamedChannels, Tag("named")]
    | Annotated[Channels, Tag("positional")]
    | Annotated[Channel, Tag("flat")]
    | Annotated[list[NamedChannels], up_to(MAX_TEXTS, "max_documents"), Tag("several")],
    Discriminator(_recordings),
]
"""One recording, as a Series; or several, by the names of their channels."""


class SentSeries(NamedTuple):
    """The channels of a series."""

    names: list[str] | None
    """None if they are identified by position."""
    columns: list[Channel]
    is_flat: bool
    """Whether the only channel came as a list of its values."""

    @classmethod
    def of(cls, series: dict[str, Channel] | list[Channel] | Channel) -> "SentSeries":
        """Read a validated series."""
        if isinstance(series, dict):
            return cls(list(series), list(series.values()), is_flat=False)
        is_flat = _layout(series) == "flat"
        return cls(None, cast(list[Channel], [series] if is_flat else series), is_flat)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ClassifyOptions(_Request):
    """Options of classification; the query string if the body is not JSON."""

    model: ModelName | None = None
    """Name of the model; optional if there is only one for documents, or for series, or a default is set."""
    top_k: int | None = Field(default=None, ge=1)
    """Maximum number of scores to return, best first; by default all."""
    on_overflow: OnOverflow = "windows"
    """How to read what is longer than the model reads: completely in windows, in part, or with an error."""
    detail: bool = False
    """Whether to return the contributions of each stretch, and for documents the scores of each window."""

    @property
    def result_options(self) -> ResultOptions:
        """The options of the result: all except the model."""
        return ResultOptions(self.top_k, self.on_overflow, self.detail)


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Steps per second of a recording."""


class ClassifyRequest(ClassifyOptions):
    """Body of `POST /v1/classify` as JSON, with either `inputs` or `series`."""

    inputs: Inputs | None = None
    """One document or several."""
    series: SeriesInputs | None = None
    """One recording: values of each channel, oldest first, null if missing, by name or in the model's order, or of the
    only one. Or several, by name; their lengths may differ."""
    rate: Rate | None = None
    """Steps per second of the recordings, which are then resampled to the rate of the model's training data."""

    @property
    def documents(self) -> list[bytes]:
        """The bytes of each document."""
        return [text.encode() for text in ([self.inputs] if isinstance(self.inputs, str) else self.inputs or [])]

    @property
    def recordings(self) -> list[tuple[str, SentSeries]]:
        """Location and channels of each recording."""
        if self.series is None:
            return []
        if _recordings(self.series) == "several":
            several = cast(list[dict[str, Channel]], self.series)
            return [(f"series.{index}", SentSeries.of(one)) for index, one in enumerate(several)]
        return [("series", SentSeries.of(cast(dict[str, Channel] | list[Channel] | Channel, self.series)))]


class Line(_Request):
    """One line of an NDJSON upload."""

    id: Annotated[str, StringConstraints(max_length=256)] | Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """Returned with the result."""


class BulkLine(Line):
    """One line of an NDJSON upload to `POST /v1/classify`."""

    text: str | None = None
    """The document; `text`, `base64` or `series` is required."""
    base64: str | None = None
    """The document in base64, for bytes that are not UTF-8."""
    series: Series | None = None
    """A recording: values of each channel, oldest first, null if missing, by name or in the model's order, or of the
    only one."""
    rate: Rate | None = None
    """Steps per second of the recording, which is then resampled to the rate of the model's training data."""


class Score(BaseModel):
    """Probability of one label."""

    label: str
    score: float
    threshold: float | None = None
    """Score from which the label applies, if a document may have any number of labels."""


class Coverage(BaseModel):
    """How much of a document was read, and how much of that the model knows."""

    bytes_total: int
    bytes_used: int
    strategy: str
    """`whole`; `on_overflow` of the request, if the document is longer than the model reads; `padded`, with spaces,
    if it is shorter than the model needs."""
    windows: int
    known: float | None
    """Share of the words at which an n-gram of the model's vocabulary ends, from 0 to 1; 0 without any word, null if
    the model does not count words. `known` of the model's description tells what is normal."""


class RecordingCoverage(BaseModel):
    """How much of a recording was read."""

    observations_total: int
    """Number of values, without missing ones."""
    observations_used: int
    imputed: int
    """Number of missing values that were interpolated."""
    strategy: str
    windows: int
    resampled: bool


class Window(BaseModel):
    """Scores of one window of a document."""

    start: int
    end: int
    scores: list[Score]


class Stretch(BaseModel):
    """Contribution of a part of an input, from byte or step `start` to `end`, to its logits."""

    start: int
    end: int
    contributions: dict[str, float]
    """By label, of the labels in `scores`. Of a document, their sum over all stretches, plus the label's `base` in
    `stretches` of the model's description (0 if there is none), is the logit of the document. The score is its softmax,
    or its sigmoid if a document may have any number of labels. Of a recording, the logit less that of the recording
    with a straight line in place of the stretch."""


class ClassifyResult(BaseModel):
    """Result of one document or recording."""

    label: str
    """The label with the highest score."""
    score: float
    """The score of `label`."""
    labels: list[str] | None = None
    """If a document may have any number of labels: those whose score is at least their threshold, best first. The list
    may be empty, and `label` need not be in it. `top_k` does not shorten it."""
    scores: list[Score]
    """Best first. Of one label a document, all scores add up to 1; of any number, each is a probability of its own."""
    coverage: Coverage | RecordingCoverage
    windows: list[Window] | None = None
    stretches: list[Stretch] | None = None


class ClassifyResponse(BaseModel):
    """Body of the response."""

    model: str
    version: int
    results: list[ClassifyResult]


class MatchOptions(_Request):
    """Options of scores of documents; of `POST /v1/score`, the query string if the body is NDJSON."""

    model: ModelName | None = None
    """Name of the model; optional if there is only one matcher or a default is set."""
    on_overflow: OnOverflow = "windows"
    """How to read documents longer than the model reads."""


def _read_pair(pair: object) -> tuple[object, ...]:
    """Check that a pair is a list of two."""
    if isinstance(pair, list) and len(pair) == 2:
        return tuple(pair)
    raise PydanticCustomError("pair", "Input should be a list of two strings, the documents of a pair")


Pair = Annotated[tuple[str, str], BeforeValidator(_read_pair)]


class ScoreRequest(MatchOptions):
    """Body of `POST /v1/score` as JSON."""

    pairs: Annotated[list[Pair], up_to(MAX_TEXTS // 2, "max_documents")]
    """Pairs of documents."""


class ScoreLine(Line):
    """One line of an NDJSON upload to `POST /v1/score`: a pair of documents."""

    a: str
    b: str


class PairCoverage(BaseModel):
    """How much of both documents was read."""

    a: Coverage
    b: Coverage


class PairScore(BaseModel):
    """Probability that the documents of a pair belong together."""

    score: float
    coverage: PairCoverage


class ScoreResponse(BaseModel):
    """Body of the response."""

    model: str
    version: int
    results: list[PairScore]


class RankRequest(MatchOptions):
    """Body of `POST /v1/rank` as JSON."""

    query: str
    documents: Candidates
    """Documents to rank."""
    top_n: int | None = Field(default=None, ge=1)
    """Maximum number of results; by default all."""
    return_documents: bool = False
    """Whether to return the documents."""


class RankLine(RankRequest, Line):
    """One line of an NDJSON upload to `POST /v1/rank`: a request."""


class RankedDocument(BaseModel):
    """Result of one document; `index` is its position in the request.

    `cached` tells whether the document was encoded before the request, so that its encoding came from the cache.
    """

    index: int
    score: float
    coverage: Coverage
    cached: bool
    document: str | None = None


class RankResponse(BaseModel):
    """Body of the response, best score first."""

    model: str
    version: int
    results: list[RankedDocument]
    query_coverage: Coverage


Levels = Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(fail_fast=True)]


Season = Annotated[
    list[int],
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
]
"""One number or two."""


class ForecastRequest(_Request):
    """Body of `POST /v1/forecast`."""

    series: Series
    horizon: int | None = Field(default=None, ge=1)
    """Number of steps to forecast; by default the model's maximum, or of any series a season, or 24 without one."""
    quantiles: Levels = []
    """Quantile levels to return, between 0 and 1."""
    start: str | None = None
    """Time of the first value in ISO 8601, or of the last one if series of different lengths are forecast; the response
    then has timestamps."""
    frequency: str | None = None
    """Length of a step: 10min, 1h, 1d, 1b (business day), 7d, 1mo, 1q, 1y, ...; or a pandas alias: 15T, H, W, MS.
    By default the model's; if the model has one, no other is allowed."""
    season: Season | None = None
    """Of any series: steps after which they repeat, such as 12 for months, or two such numbers; 1 for none. By default
    it follows from the frequency, or else from the data."""
    non_negative: bool = False
    """Whether forecasts below 0 become 0."""
    model: ModelName | None = None
    """Name of the model. By default the one with exactly these channels and this frequency, or else the default one."""

    @property
    def options(self) -> ForecastOptions:
        """The options of the forecast. Raises: InvalidInput if the frequency is invalid."""
        return ForecastOptions(
            self.horizon,
            self.quantiles,
            None if self.frequency is None else parse_frequency(self.frequency),
            None if self.season is None else tuple(self.season),
            self.non_negative,
        )


class ForecastLine(ForecastRequest, Line):
    """One line of an NDJSON upload to `POST /v1/forecast`: a request."""


class SeriesCoverage(BaseModel):
    """How much of the series was read."""

    observations_total: int
    observations_used: int
    imputed: int
    context_length: int


class ForecastResult(BaseModel):
    """The forecast of one request. Forecast and quantiles have the format of the series in the request."""

    forecast: dict[str, list[float]] | list[list[float]] | list[float]
    quantiles: dict[str, dict[str, list[float]] | list[list[float]] | list[float]]
    quantiles_reliable: bool
    coverage: SeriesCoverage
    season: int | list[int] | dict[str, int | list[int]] | list[int | list[int]] | None = None
    """Of any series: steps of the season or of two; found in the data, that of each series, in the format of the series
    in the request."""
    season_from: SeasonSource | None = None
    """What the season follows from."""


class ForecastResponse(ForecastResult):
    """Body of the response."""

    model: str
    version: int
    model_from: ModelSource
    """What chose the model: its name in the request, the channels and frequency of the series, or that it is the
    default."""
    timestamps: list[str] | None = None


class FieldError(BaseModel):
    """One invalid value."""

    loc: str
    msg: str


class Problem(BaseModel):
    """An error as RFC 9457 problem details (`application/problem+json`)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: list[FieldError] = []


class LineResult(BaseModel):
    """One line of the response to an NDJSON upload: a result, or an error; `index` counts the lines from 0."""

    index: int
    id: str | int | None = None
    error: Problem | None = None
    model: str | None = None
    version: int | None = None


class BulkResult(LineResult):
    """The result of a document or recording, or an error."""

    label: str | None = None
    score: float | None = None
    labels: list[str] | None = None
    scores: list[Score] | None = None
    coverage: Coverage | RecordingCoverage | None = None
    windows: list[Window] | None = None
    stretches: list[Stretch] | None = None


class ScoreLineResult(LineResult):
    """The score of a pair, or an error."""

    score: float | None = None
    coverage: PairCoverage | None = None


class RankLineResult(LineResult):
    """The ranking of a request, or an error."""

    results: list[RankedDocument] | None = None
    query_coverage: Coverage | None = None


class ForecastLineResult(LineResult):
    """The forecast of a request, or an error."""

    model_from: ModelSource | None = None
    forecast: dict[str, list[float]] | list[list[float]] | list[float] | None = None
    quantiles: dict[str, dict[str, list[float]] | list[list[float]] | list[float]] | None = None
    quantiles_reliable: bool | None = None
    coverage: SeriesCoverage | None = None
    season: int | list[int] | dict[str, int | list[int]] | list[int | list[int]] | None = None
    season_from: SeasonSource | None = None
    timestamps: list[str] | None = None


class ModelLimits(BaseModel):
    """Limits of a request."""

    body_bytes: int
    document_bytes: int
    documents: int
    rank_documents: int
    embedding_documents: int
    deadline_s: float


class ModelDescription(BaseModel):
    """The public part of a manifest; further fields depend on the task."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    name: str
    version: int
    task: str
    ready: bool
    limits: ModelLimits


class OpenAIModel(BaseModel):
    """A model as OpenAI's clients read it."""

    id: str
    """A name or an alias."""
    object: Literal["model"]
    created: int
    """When the manifest of the export was written, in seconds since 1970."""
    owned_by: str


class NamedModelDescription(OpenAIModel, ModelDescription):
    """Description of one model, by the name that was asked for."""


class DefaultModel(BaseModel):
    """The model that is used if a request names none."""

    model_config = ConfigDict(protected_namespaces=())

    model: str
    reason: str
    """Why: a setting, `defaults.json`, or because it was the only model of the task."""


class ModelList(BaseModel):
    """Body of the response."""

    models: list[ModelDescription]
    defaults: dict[str, DefaultModel]
    """By task."""
    object: Literal["list"]
    data: list[OpenAIModel]
    """Every name and alias, for OpenAI's clients."""
