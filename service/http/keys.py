"""API keys."""

import hashlib
import hmac
from collections.abc import Iterable

from pydantic import SecretStr
from starlette.datastructures import Headers

from service.errors import Unauthorized


class Keys:
    """Keys of which a request needs one; without keys, every request is allowed.

    Args:
        keys: that are valid.
        open_paths: that need none.
        open_folders: whose files need none; each ends with a slash.

    """

    def __init__(
        self, keys: Iterable[SecretStr], open_paths: frozenset[str], open_folders: tuple[str, ...] = ()
    ) -> None:
        self._digests = [_digest(key.get_secret_value()) for key in keys]
        self._open_paths = open_paths
        self._open_folders = open_folders

    def check(self, path: str, headers: Headers) -> None:
        """Ask for one of the keys, in a time that does not depend on how much of it is right. Raises: Unauthorized."""
        if not self._digests or path in self._open_paths or path.startswith(self._open_folders):
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = [token.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "")]
        digests = [_digest(key) for key in given]
        if not any([hmac.compare_digest(d, key) for d in digests for key in self._digests]):  # noqa: C419  # always all
            raise Unauthorized("send a valid key as `Authorization: Bearer KEY` or `X-API-Key: KEY`")


def _digest(key: str) -> bytes:
    """Of equal length for every key, so that a comparison tells nothing of it."""
    return hashlib.sha256(key.encode()).digest()
