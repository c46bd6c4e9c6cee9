"""Wire types of the native routes: they check requests and make the OpenAPI document."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from artifact.classification import Options
from artifact.documents import OnOverflow

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MOST_TEXTS = 100_000
"""More than any setting allows in one request; the event loop takes them over from the process that parses."""
Documents = Annotated[list[str], Field(fail_fast=True, max_length=MOST_TEXTS)]
"""The first wrong value ends the check: to list a million of them would cost minutes and gigabytes."""


def form(value: object) -> str | None:
    """Which of a text and a list a value is, so that what is wrong in it is told once."""
    return "text" if isinstance(value, str) else "list" if isinstance(value, list) else None


Inputs = Annotated[
    Annotated[str, Tag("text")] | Annotated[Documents, Tag("list")],
    Discriminator(
        form, custom_error_type="inputs", custom_error_message="Input should be a string or a list of strings"
    ),
]
"""One document or several."""


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ClassifyOptions(_Request):
    """How documents are classified; the query string of a body that is a document."""

    model: ModelName | None = None
    """Name of the model; may be left out when one classifier is served or set as default."""
    top_k: int | None = Field(default=None, ge=1)
    """Scores to return, best first; all by default, and where there are fewer."""
    on_overflow: OnOverflow = "windows"
    """What happens beyond the model's length: windows over the whole document, or a part of it, or an error."""
    detail: bool = False
    """Whether to return the scores of each window."""

    @property
    def wanted(self) -> Options:
        """All but the model."""
        return Options(self.top_k, self.on_overflow, self.detail)


class ClassifyRequest(ClassifyOptions):
    """Body of `POST /v1/classify` as JSON."""

    inputs: Inputs
    """One document or several."""


class BulkLine(_Request):
    """One line of `POST /v1/classify` as NDJSON."""

    id: Annotated[str, StringConstraints(max_length=256)] | Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """Comes back with the answer."""
    text: str | None = None
    """The document; or, for bytes of any kind, `base64`."""
    base64: str | None = None


class Score(BaseModel):
    """Probability of one label."""

    label: str
    score: float


class Coverage(BaseModel):
    """What of a document was read."""

    bytes_total: int
    bytes_used: int
    strategy: str
    windows: int


class Window(BaseModel):
    """Scores of one window of a document."""

    start: int
    end: int
    scores: list[Score]


class ClassifyResult(BaseModel):
    """Answer for one document."""

    label: str
    score: float
    scores: list[Score]
    coverage: Coverage
    windows: list[Window] | None = None


class ClassifyResponse(BaseModel):
    """Body of the answer."""

    model: str
    version: int
    results: list[ClassifyResult]


class ScoreRequest(_Request):
    """Body of `POST /v1/score`."""

    pairs: Annotated[list[tuple[str, str]], Field(fail_fast=True, max_length=MOST_TEXTS // 2)]
    """Documents that may belong together, two and two."""
    model: ModelName | None = None
    """Name of the model; may be left out when one matcher is served or set as default."""
    on_overflow: OnOverflow = "windows"
    """What happens beyond the model's length."""


class PairCoverage(BaseModel):
    """What of both documents was read."""

    a: Coverage
    b: Coverage


class PairScore(BaseModel):
    """Probability that a pair belongs together."""

    score: float
    coverage: PairCoverage


class ScoreResponse(BaseModel):
    """Body of the answer."""

    model: str
    version: int
    results: list[PairScore]


class RankRequest(_Request):
    """Body of `POST /v1/rank`."""

    query: str
    documents: Documents
    """What is ranked by its score with the query."""
    model: ModelName | None = None
    """Name of the model; may be left out when one matcher is served or set as default."""
    on_overflow: OnOverflow = "windows"
    """What happens beyond the model's length."""
    top_n: int | None = Field(default=None, ge=1)
    """Results to return; all by default."""
    return_documents: bool = False
    """Whether to send the documents back."""


class RankedDocument(BaseModel):
    """One document with its place in the request."""

    index: int
    score: float
    coverage: Coverage
    document: str | None = None


class RankResponse(BaseModel):
    """Body of the answer, best score first."""

    model: str
    version: int
    results: list[RankedDocument]
    query_coverage: Coverage


MOST_CHANNELS = 10_000
"""More than any model has; a body could hold millions."""
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Channel = Annotated[list[Number | None], Field(fail_fast=True)]
Channels = Annotated[list[Channel], Field(fail_fast=True, max_length=MOST_CHANNELS)]
Series = Annotated[
    Annotated[dict[str, Channel], Field(max_length=MOST_CHANNELS), Tag("named")]
    | Annotated[Channels, Tag("positional")],
    Discriminator(lambda value: "named" if isinstance(value, dict) else "positional"),
]
"""Values of each channel, oldest first, null where one is missing; by name, or in the model's order."""

Levels = Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(fail_fast=True)]


EXAMPLE = [[float(channel + step % 4) for step in range(24)] for channel in range(7)]
"""A series that the forecasters with seven channels read, as few steps as they need."""


class ForecastOptions(_Request):
    """What is wanted of a series."""

    horizon: int | None = Field(default=None, ge=1)
    """Steps to forecast; by default all the model can."""
    quantiles: Levels = []
    """Levels of the error bands."""
    start: str | None = None
    """Time of the first value, ISO 8601; with `frequency` the forecast gets time stamps."""
    frequency: str | None = None
    """Length of a step: 10min, 15min, 1h, 1d, 7d, ...; or as pandas has it: 15T, H, 7D, W."""
    model: ModelName | None = None
    """Name of the model; may be left out when one forecaster is served, set as default, or has these channels."""


class ForecastRequest(ForecastOptions):
    """Body of `POST /v1/forecast`."""

    series: Series


class SeriesCoverage(BaseModel):
    """What of a series was read."""

    observations_total: int
    observations_used: int
    imputed: int
    context_length: int


class ForecastResponse(BaseModel):
    """Body of the answer; forecast and quantiles have the shape of the series sent."""

    model: str
    version: int
    forecast: dict[str, list[float]] | list[list[float]]
    quantiles: dict[str, dict[str, list[float]] | list[list[float]]]
    quantiles_reliable: bool
    timestamps: list[str] | None = None
    coverage: SeriesCoverage


class FieldError(BaseModel):
    """One value that is not allowed."""

    loc: str
    msg: str


class Problem(BaseModel):
    """An error, RFC 9457, as `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: list[FieldError] = []


class BulkResult(BaseModel):
    """One line of the answer to NDJSON: the result of a document, or an error."""

    index: int
    id: str | int | None = None
    error: Problem | None = None
    model: str | None = None
    version: int | None = None
    label: str | None = None
    score: float | None = None
    scores: list[Score] | None = None
    coverage: Coverage | None = None
    windows: list[Window] | None = None


class ModelLimits(BaseModel):
    """What a request may hold."""

    body_bytes: int
    document_bytes: int
    documents: int
    rank_documents: int
    deadline_s: float


class ModelDescription(BaseModel):
    """The public part of a manifest; what more there is depends on the task."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    name: str
    version: int
    task: str
    ready: bool
    limits: ModelLimits


class DefaultModel(BaseModel):
    """The model of a task that answers when a request names none."""

    model_config = ConfigDict(protected_namespaces=())

    model: str
    reason: str
    """A setting, `defaults.json`, or that it was the only one."""


class ModelList(BaseModel):
    """Body of the answer."""

    models: list[ModelDescription]
    defaults: dict[str, DefaultModel]
    """By task."""
