"""Requests that browsers send for pages of other origins."""

import pytest

from service.errors import CrossOrigin
from service.http.guard import check_origin

HERE, OTHER, ALLOWED = "http://127.0.0.1:8000", "https://other.example", "https://allowed.example"
HOST = {"host": "127.0.0.1:8000"}
CROSS = {"sec-fetch-site": "cross-site"}


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"origin": HERE}, {"origin": HERE, "sec-fetch-site": "same-origin"},
        {"origin": OTHER, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}, {"origin": ALLOWED},
        {"origin": ALLOWED, **CROSS}, {"origin": OTHER, "x-forwarded-host": "other.example"},
        {"origin": OTHER, "x-forwarded-host": "other.example, inner.example"},
    ],
)  # fmt: skip
def test_clients_same_origin_pages_and_allowed_origins_are_accepted(headers: dict[str, str]) -> None:
    check_origin({**HOST, **headers}, [ALLOWED])
    check_origin({**HOST, **headers}, ["*"])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": OTHER}, {"origin": "null"}, {"origin": "null", "host": ""},
        {"origin": "null", "x-forwarded-host": ""},
        {"origin": OTHER, "x-forwarded-host": "inner.example, other.example"},
        {"origin": OTHER, "x-forwarded-host": "other.example", **CROSS}, {"origin": ""}, {"origin": "http://["},
        {"origin": OTHER, **CROSS}, {"origin": HERE, **CROSS}, CROSS, {"origin": OTHER, "sec-fetch-site": "same-site"},
    ],
)  # fmt: skip
def test_pages_of_other_origins_are_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(CrossOrigin, match="cors_origins"):
        check_origin({**HOST, **headers}, [ALLOWED])
    check_origin({**HOST, **headers}, ["*"])
