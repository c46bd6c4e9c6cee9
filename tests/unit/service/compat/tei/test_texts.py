"""Truncation of TEI's texts and what the response says about it."""

import pytest

from artifact.documents import OnOverflow, TextCoverage
from service.compat.tei.texts import ResponseStats, Truncation
from service.engine.served import Timing
from tests.support.models import matcher, serving


@pytest.mark.parametrize(
    ("asked", "on_overflow"),
    [
        ({}, "windows"),
        ({"truncate": None, "truncation_direction": "Left"}, "windows"),
        ({"truncate": False}, "error"),
        ({"truncate": True}, "head"),
        ({"truncate": True, "truncation_direction": "left"}, "tail"),
    ],
)
def test_truncate_options_select_the_overflow_strategy(asked: dict[str, object], on_overflow: OnOverflow) -> None:
    assert Truncation.model_validate(asked).on_overflow == on_overflow


def test_names_of_directions_differ_in_more_than_case() -> None:
    """Generators of clients make the same name of `left` and `Left`."""
    assert Truncation.model_json_schema()["properties"]["truncation_direction"]["enum"] == ["Left", "Right"]


async def test_outcome_adds_up_the_bytes_read() -> None:
    async with serving(matcher()) as client:
        model = client.engine.models["twins"]
        found = ResponseStats.of(model, [TextCoverage(5, 4, 1), TextCoverage(3, 3, 1)], Timing(0, 0, 0))
    assert (found.bytes_total, found.bytes_used) == (8, 7)
