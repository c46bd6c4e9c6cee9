"""Compare answers of the service."""

import pytest


def same_answer(a: object, b: object) -> bool:
    """Whether two JSON values agree; floats as precisely as backends, and batches of other sizes."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_answer(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_answer, a, b))
    if isinstance(a, float):
        # Forecasts are in the units of the data, in which backends differ by more than 1e-5.
        return a == pytest.approx(b, rel=1e-4, abs=1e-5)
    return a == b
