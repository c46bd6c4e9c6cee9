"""Rejects requests that do not name one host. Used by `service.http.guard`."""

import re

from starlette.exceptions import HTTPException
from starlette.types import Scope

from service.wire.headers import header_values

HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
"""Characters of a host and its port (RFC 3986, 3.2)."""


def check_host(scope: Scope) -> None:
    """Check the header Host (RFC 9112, 3.2). Raises: HTTPException with status 400 if it is missing or wrong."""
    hosts = header_values(scope, b"host")
    is_missing = not hosts and scope["http_version"] == "1.1"  # HTTP/1.0 needs none
    if is_missing or len(hosts) > 1 or not all(map(HOST.fullmatch, hosts)):
        raise HTTPException(400, "a request has one header Host: a host, with or without a port")
