"""Work on many items outside the event loop."""

import threading

import pytest

from service.log import request_id
from service.offload import FEW_ITEMS, ITEM_BYTES, count_items, offload


@pytest.mark.parametrize(("count", "is_aside"), [(1, False), (FEW_ITEMS, False), (FEW_ITEMS + 1, True)])
async def test_many_items_are_worked_on_in_a_thread(count: int, *, is_aside: bool) -> None:
    assert (await offload(count, threading.get_ident) != threading.get_ident()) is is_aside


@pytest.mark.parametrize("count", [1, FEW_ITEMS + 1])
async def test_outcome_is_that_of_the_work(count: int) -> None:
    assert await offload(count, sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(ValueError, match="invalid literal"):
        await offload(count, int, "x")


async def test_thread_has_the_context_of_the_request() -> None:
    token = request_id.set("abc")
    try:
        assert await offload(FEW_ITEMS + 1, request_id.get) == "abc"
    finally:
        request_id.reset(token)


def test_long_documents_are_many_items() -> None:
    assert count_items([b"a", b"b"]) == 2
    assert count_items([bytes(ITEM_BYTES * FEW_ITEMS)]) > FEW_ITEMS
