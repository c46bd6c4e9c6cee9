"""API keys: how they are sent and compared."""

import hmac

import pytest
from pydantic import SecretStr

from service.errors import Unauthorized
from service.http.keys import Keys

KEYS = Keys([SecretStr("first"), SecretStr("second key")])


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "first"}, {"x-api-key": "second key"}, {"x-api-key": " second key "},
        {"authorization": "Bearer first"}, {"authorization": "bearer   second key "},
        {"authorization": "Bearer wrong", "x-api-key": "first"},
        {"authorization": "Basic first", "x-api-key": "second key"},
    ],
)  # fmt: skip
def test_any_key_is_accepted_in_any_of_its_headers(headers: dict[str, str]) -> None:
    KEYS.check(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"x-api-key": ""}, {"x-api-key": "firs"}, {"x-api-key": "First"}, {"x-api-key": "first,second key"},
        {"authorization": "first"}, {"authorization": "Basic first"}, {"authorization": "Bearer"},
        {"cookie": "x-api-key=first"},
    ],
)  # fmt: skip
def test_missing_or_wrong_key_is_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized) as caught:
        KEYS.check(headers)
    assert "first" not in str(caught.value)


def test_digest_is_compared_with_every_key_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def record(given: bytes, key: bytes) -> bool:
        compared.append((len(given), len(key)))
        return compare(given, key)

    monkeypatch.setattr("hmac.compare_digest", record)
    for headers in ({"x-api-key": "first"}, {"authorization": "Bearer second key"}):
        KEYS.check(headers)
    with pytest.raises(Unauthorized):
        KEYS.check({"x-api-key": "a much longer key, which is wrong"})
    assert compared == [(32, 32)] * 4 * 3, "two headers and two keys in each request, digests of one length"
