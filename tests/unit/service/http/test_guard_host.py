"""The header Host."""

import pytest
from starlette.exceptions import HTTPException

from service.http.guard import check_host


def check(*hosts: str, version: str = "1.1") -> None:
    check_host({"http_version": version, "headers": [(b"host", host.encode("latin-1")) for host in hosts]})


@pytest.mark.parametrize("host", ["x", "127.0.0.1:8000", "[::1]:8000", "a-b.example", ""])
def test_one_host_is_accepted(host: str) -> None:
    check(host)


@pytest.mark.parametrize("host", ["a b", "a/b", "user@host", "a?b", "é", "a#b"])
def test_other_characters_are_rejected(host: str) -> None:
    with pytest.raises(HTTPException, match="one header Host") as caught:
        check(host)
    assert caught.value.status_code == 400


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_several_hosts_are_rejected(version: str) -> None:
    with pytest.raises(HTTPException):
        check("a", "a", version=version)


def test_only_http_1_1_needs_a_host() -> None:
    check(version="1.0")
    with pytest.raises(HTTPException):
        check()
