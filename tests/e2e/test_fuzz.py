"""Bodies that nobody would write: every one gets a clear answer, none a fault of the server."""

import json
import random

import httpx
import pytest

KSERVE = "/v1/timeseries/forecast"
SEEDS = [
    ("/v1/classify", b'{"inputs":"abc","model":null,"top_k":1,"on_overflow":"head","detail":true}'),
    ("/v1/classify", b'{"inputs":["a","\\u00e4",""]}'),
    ("/v1/classify", b"plain text, neither short nor long"),
    ("/v1/score", b'{"pairs":[["abc","def"],["a","\\u00e4"]],"on_overflow":"tail"}'),
    ("/v1/rank", b'{"query":"abc","documents":["a","","b"],"top_n":2,"return_documents":true}'),
    (
        "/v1/forecast",
        b'{"series":[[1,null,2.5e3]],"horizon":3,"quantiles":[0.1,0.9],"start":"2016-07-01","frequency":"1h"}',
    ),
    ("/v1/forecast", b'{"series":{"x":[1,2,-3],"y":[0,0.5,1e-9]},"model":null}'),
    (KSERVE, b'{"model":"ettm2","inputs":[{"series":[[1,2],[3,null]],"frequency":"H"}],"options":{"horizon":2}}'),
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
        route, seed = generator.choice(SEEDS)
        body = mutate(seed, generator)
        kind = generator.choice(KINDS) if route == "/v1/classify" else KINDS[0]
        response = client.post(route, content=body, headers={"content-type": kind})
        answer = json.loads(response.content)
        assert response.status_code in (200, 400, 404, 413, 422), (body, kind, response.text)
        if response.status_code == 200:
            assert answer.get("results") or answer.get("forecast") or answer.get("outputs")
        else:
            code = answer["error"]["type"] if route == KSERVE else answer["code"]
            assert code in ("malformed_input", "invalid_input", "model_not_found", "payload_too_large")
