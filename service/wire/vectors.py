"""Vectors of texts, for the protocols that return them."""

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from artifact.arrays import Floats
from artifact.documents import OnOverflow, TextCoverage
from artifact.errors import InvalidInput
from artifact.tasks.matching import Matching
from service.engine.served import ServedModel, Timing
from service.offload import count_items, offload
from service.wire.context import RequestContext
from service.wire.inference import run
from service.wire.parsing import check_count
from service.wire.requests import read_texts, reserve_numbers

MAX_DIMENSIONS = 1_000_000
"""Maximum of the field `dimensions`, far above the length of vectors: an error would repeat a longer number."""


class Embeddings(NamedTuple):
    """Vectors of the texts of a request."""

    model: ServedModel[Matching]
    vectors: Floats
    """(texts, dim), not normalized."""
    coverages: Sequence[TextCoverage]
    """How many bytes of each text were read."""
    timing: Timing

    @property
    def bytes_used(self) -> int:
        """Number of bytes that the model read, of all texts together."""
        return sum(coverage.bytes_used for coverage in self.coverages)


async def encode_texts(
    context: RequestContext,
    place: str,
    inputs: str | list[str],
    *,
    model: str | None,
    dimensions: int | None,
    on_overflow: OnOverflow,
    limit: int,
) -> Embeddings:
    """Encode a text or several with a matcher.

    Args:
        context: the request.
        place: name of the field with the texts, for errors.
        inputs: the texts.
        model: name of the matcher; None for the default one.
        dimensions: length of a vector that the client asks for; None for the model's.
        on_overflow: what happens to texts longer than the model reads.
        limit: maximum number of texts.

    Raises: InvalidInput, PayloadTooLarge, Overloaded, ModelNotFound, ClientDisconnect, and what
        `Matching.encode` raises.

    """
    given = [inputs] if isinstance(inputs, str) else inputs
    check_count(place, len(given), limit)
    served = context.runtime.models.choose(Matching, model)
    check_vectors(context, served.task, len(given), dimensions)
    texts = await offload(len(given), read_texts, context.runtime.settings, place, given)

    computation = served.task.encode(texts, on_overflow, served.cache)
    encoded, timing = await run(context, served, computation, count_items(text.document for text in texts))
    return Embeddings(served, encoded.vectors, encoded.coverages, timing)


def check_vectors(context: RequestContext, task: Matching, count: int, dimensions: int | None) -> None:
    """Check the length and number of vectors, and count their bytes in advance.

    Args:
        context: the request.
        task: the task of the model.
        count: number of vectors.
        dimensions: length of a vector that the client asks for; None for the model's.

    Raises: InvalidInput, PayloadTooLarge, Overloaded.

    """
    manifest = task.manifest
    if dimensions not in (None, manifest.dim):
        raise InvalidInput.at("dimensions", f"{dimensions}; vectors of {manifest.name} have {manifest.dim} numbers")
    reserve_numbers(context, count * manifest.dim, "send fewer texts")


def write_vector(vector: Floats) -> orjson.Fragment:
    """A vector (dim,) as JSON. One call for many vectors would hold the GIL too long."""
    return orjson.Fragment(orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY))
