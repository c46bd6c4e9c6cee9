"""Vectors as numbers in JSON."""

import functools
import json

import numpy as np
import pytest

from artifact.errors import InvalidInput
from artifact.tasks.matching import Matching
from service.errors import PayloadTooLarge
from service.wire.requests import MAX_NUMBERS, NUMBER_BYTES
from service.wire.responses import json_response
from service.wire.vectors import check_vectors, encode_texts, write_vector
from tests.support.contexts import context
from tests.support.models import matcher


async def test_size_of_vectors_is_limited_and_counted_as_held() -> None:
    task = matcher().task
    assert isinstance(task, Matching)
    asked = context()
    check_vectors(asked, task, MAX_NUMBERS // 2, None)
    assert asked.body.bodies.held == MAX_NUMBERS * NUMBER_BYTES
    asked = context()
    check_vectors(asked, task, 1, 2)
    assert asked.body.bodies.held == 0
    with pytest.raises(InvalidInput, match=r"dimensions: 1; .* 2 numbers"):
        check_vectors(asked, task, 1, 1)
    with pytest.raises(PayloadTooLarge, match=f"{MAX_NUMBERS + 2} numbers; at most {MAX_NUMBERS}"):
        check_vectors(asked, task, MAX_NUMBERS // 2 + 1, None)


@pytest.mark.parametrize("inputs", ["++-", ["++-", "-" * 20]])
async def test_texts_are_encoded_by_the_matcher(inputs: str | list[str]) -> None:
    asked = context(models=[matcher()])
    encode = functools.partial(encode_texts, asked, "input", on_overflow="head", limit=2)
    try:
        encoded = await encode(inputs, model="twins", dimensions=2)
        with pytest.raises(PayloadTooLarge, match="input: 3; at most 2"):
            await encode(["++"] * 3, model=None, dimensions=None)
        with pytest.raises(InvalidInput, match="dimensions: 3"):
            await encode(inputs, model=None, dimensions=3)
    finally:
        asked.runtime.close()
    expected = [([2, 1], 3), ([0, 16], 16)][: 1 if isinstance(inputs, str) else 2]
    assert encoded.model.manifest.name == "twins"
    assert encoded.vectors.tolist() == [vector for vector, _ in expected]
    assert encoded.bytes_used == sum(used for _, used in expected)


def test_numbers_are_the_same_when_they_are_read() -> None:
    vectors = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    written = json_response([write_vector(vector) for vector in vectors])
    assert np.array_equal(np.array(json.loads(bytes(written.body)), np.float32), vectors)
