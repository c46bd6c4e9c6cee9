"""API keys."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping

from pydantic import SecretStr

from service.errors import Unauthorized


class Keys:
    """The valid API keys; a request must send one of them. Without keys, every request is allowed.

    Args:
        keys: valid keys.

    """

    def __init__(self, keys: Iterable[SecretStr]) -> None:
        self._digests = [_digest(key.get_secret_value()) for key in keys]

    def check(self, headers: Mapping[str, str]) -> None:
        """Check the key of a request in constant time. Raises: Unauthorized if it is missing or wrong."""
        if not self._digests:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = [token.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "").strip()]
        digests = [_digest(key) for key in given]
        if not any([hmac.compare_digest(d, key) for d in digests for key in self._digests]):  # noqa: C419  # compare all, always
            raise Unauthorized("send a valid key as `Authorization: Bearer KEY` or `X-API-Key: KEY`")


def _digest(key: str) -> bytes:
    """Digest of a key; the length is the same for every key, so that comparing digests reveals nothing."""
    return hashlib.sha256(key.encode()).digest()
