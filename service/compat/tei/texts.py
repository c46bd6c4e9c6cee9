"""Shared by TEI's routes: truncation of texts, and headers of the response.

Texts of any length are read completely unless `truncate` is set. The headers `x-bytes-total` and `x-bytes-used` report
how much was read, `x-known` the share of the words that a classifier knows.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict
from starlette.responses import Response

from artifact.documents import OnOverflow, TextCoverage
from service.engine.served import AnyModel, Timing
from service.wire.context import RequestContext
from service.wire.inference import record


def _in_upper_case(direction: object) -> object:
    """The name of a direction with its initial in upper case.

    `huggingface_hub` sends `left` and `right`. In the schema, they would be the same names to generators of clients.
    """
    return {"left": "Left", "right": "Right"}.get(direction, direction) if isinstance(direction, str) else direction


class Truncation(BaseModel):
    """How to truncate texts longer than the model reads."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, protected_namespaces=())

    truncate: bool | None = None
    """true: truncate long texts; false: reject them; null: read them completely, in windows."""
    truncation_direction: Annotated[Literal["Left", "Right"], BeforeValidator(_in_upper_case)] = "Right"
    """The end that is dropped; `left` and `right` are accepted, too."""

    @property
    def on_overflow(self) -> OnOverflow:
        """The corresponding option of `/v1/classify`."""
        if self.truncate is None:
            return "windows"
        if not self.truncate:
            return "error"
        return "head" if self.truncation_direction == "Right" else "tail"


@dataclass(frozen=True)
class ResponseStats:
    """Model, bytes, known words and times of a response."""

    model: AnyModel
    bytes_total: int
    bytes_used: int
    known: float | None
    """Share of the words that the model knows; None if it does not count words."""
    timing: Timing

    @classmethod
    def of(cls, model: AnyModel, coverages: Sequence[TextCoverage], timing: Timing) -> "ResponseStats":
        """Statistics of a response, from the coverage of each text."""
        total, used = (sum(text.bytes_total for text in coverages), sum(text.bytes_used for text in coverages))
        return cls(model, total, used, TextCoverage.share_known(coverages), timing)


def respond(context: RequestContext, stats: ResponseStats, response: Response) -> Response:
    """Record the stages of a request and add TEI's headers to its response; times are in milliseconds."""
    record(context, stats.model, stats.timing)
    timing, total = stats.timing, time.perf_counter() - context.started
    times = {"total": total, "compute": total, "tokenization": timing.decode, "queue": timing.queue}
    times["inference"] = timing.compute
    response.headers.update({f"x-{stage}-time": f"{1000 * seconds:.2f}" for stage, seconds in times.items()})
    response.headers.update({"x-bytes-total": str(stats.bytes_total), "x-bytes-used": str(stats.bytes_used)})
    if stats.known is not None:
        response.headers["x-known"] = f"{stats.known:.4f}"
    return response
