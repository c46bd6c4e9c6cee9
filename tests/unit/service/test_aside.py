"""Work on many items, beside the event loop."""

import threading

import pytest

from service.aside import FEW, PIECE_BYTES, aside, pieces
from service.log import request_id


@pytest.mark.parametrize(("count", "is_aside"), [(1, False), (FEW, False), (FEW + 1, True)])
async def test_many_items_are_worked_on_in_a_thread(count: int, *, is_aside: bool) -> None:
    assert (await aside(count, threading.get_ident) != threading.get_ident()) is is_aside


@pytest.mark.parametrize("count", [1, FEW + 1])
async def test_outcome_is_that_of_the_work(count: int) -> None:
    assert await aside(count, sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(ValueError, match="invalid literal"):
        await aside(count, int, "x")


async def test_thread_knows_the_request() -> None:
    token = request_id.set("abc")
    try:
        assert await aside(FEW + 1, request_id.get) == "abc"
    finally:
        request_id.reset(token)


def test_long_documents_are_many_items() -> None:
    assert pieces([b"a", b"b"]) == 2
    assert pieces([bytes(PIECE_BYTES * FEW)]) > FEW
