"""Errors outlive a process, such as a worker of a pool."""

import pickle

from longdoc_client.errors import RequestError


def test_error_can_be_pickled() -> None:
    error = RequestError({"status": 413, "code": "payload_too_large", "detail": "too long"}, 3)
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.index) == ("input 3: 413 payload_too_large: too long", 3)
