"""Bodies that nobody would write: every one gets a clear answer, none a fault of the server."""

import json
import random

import httpx
import pytest

SEEDS = [
    b'{"inputs":"abc","model":null,"top_k":1,"on_overflow":"head","detail":true}',
    b'{"inputs":["a","\\u00e4",""]}',
    b"plain text, neither short nor long",
]
KINDS = ["application/json", "text/plain", "application/octet-stream"]
PIECES = b'{}[]",:0\\u\xff\x00e-\xf0\x9f'


def mutate(body: bytes, generator: random.Random) -> bytes:
    result = bytearray(body)
    for _ in range(generator.randint(1, 5)):
        at = generator.randrange(len(result) + 1)
        kind = generator.random()
        if kind < 0.4:
            result[at : at + 1] = bytes([generator.randrange(256)])
        elif kind < 0.7:
            del result[at : at + generator.randint(1, 8)]
        else:
            result[at:at] = bytes(generator.choices(PIECES, k=generator.randint(1, 5)))
    return bytes(result)


@pytest.mark.parametrize("cases", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_mutated_bodies_are_answered_clearly(client: httpx.Client, cases: int) -> None:
    generator = random.Random(cases)
    for _ in range(cases):
        body, kind = mutate(generator.choice(SEEDS), generator), generator.choice(KINDS)
        response = client.post("/v1/classify", content=body, headers={"content-type": kind})
        answer = json.loads(response.content)
        assert response.status_code in (200, 400, 413, 422), (body, kind, response.text)
        if response.status_code == 200:
            assert answer["results"]
        else:
            assert answer["code"] in ("malformed_input", "invalid_input", "payload_too_large")
