"""Wire types of the native routes: they check requests and make the OpenAPI document."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from service.codec import OnOverflow

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ClassifyOptions(_Request):
    """How documents are classified; the query string of a body that is a document."""

    model: ModelName | None = None
    """Name of the model; may be left out when one classifier is served or set as default."""
    top_k: int | None = Field(default=None, ge=1)
    """Scores to return, best first; all by default."""
    on_overflow: OnOverflow = "windows"
    """What happens beyond the model's length: windows over the whole document, or a part of it, or an error."""
    detail: bool = False
    """Whether to return the scores of each window."""


class ClassifyRequest(ClassifyOptions):
    """Body of `POST /v1/classify` as JSON."""

    inputs: str | list[str]
    """One document or several."""


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
