"""Bodies, counted while they come."""

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from service.errors import Overloaded, PayloadTooLarge
from service.wire.body import Body, HeldBodies
from tests.support.calls import receive_of


def body_of(bodies: HeldBodies, *parts: bytes, content_length: str | None = None, is_whole: bool = True) -> Body:
    headers = Headers({} if content_length is None else {"content-length": content_length})
    return Body(bodies, headers, receive_of(*parts), is_whole=is_whole)


async def read(body: Body) -> list[Message]:
    messages = [await body()]
    while messages[-1].get("more_body"):
        messages.append(await body())
    return messages


async def test_body_is_passed_on_and_counted_until_its_request_ends() -> None:
    bodies = HeldBodies(10, 100)
    first, second = body_of(bodies, b"abc", b"de"), body_of(bodies, b"fgh")
    assert [message["body"] for message in await read(first)] == [b"abc", b"de"]
    await read(second)
    assert bodies.held == 8
    first.release()
    first.release()
    assert bodies.held == 3


async def test_body_may_be_as_long_as_the_limit() -> None:
    bodies = HeldBodies(5, 100)
    await read(body_of(bodies, b"abc", b"de", content_length="5"))
    with pytest.raises(PayloadTooLarge, match="the body is longer than 5 bytes"):
        await read(body_of(bodies, b"abc", b"def"))


@pytest.mark.parametrize("content_length", ["6", "0006", "9" * 5000])
async def test_declared_length_is_refused_before_a_byte_is_read(content_length: str) -> None:
    async def receive() -> Message:
        raise AssertionError("read")

    bodies = HeldBodies(5, 100)
    with pytest.raises(PayloadTooLarge):
        await Body(bodies, Headers({"content-length": content_length}), receive, is_whole=True)()
    assert bodies.held == 0


@pytest.mark.parametrize("content_length", ["5", "005", "-6", "x", "²", ""])
async def test_other_lengths_are_counted(content_length: str) -> None:
    (message,) = await read(body_of(HeldBodies(5, 100), b"abc", content_length=content_length))
    assert message["body"] == b"abc"


async def test_all_bodies_together_are_bounded() -> None:
    bodies = HeldBodies(10, 8)
    await read(body_of(bodies, b"abcd"))
    await read(body_of(bodies, b"efgh"))
    late = body_of(bodies, b"i")
    with pytest.raises(Overloaded, match="9 bytes of requests are held already; at most 8"):
        await read(late)
    late.release()
    assert bodies.held == 8


async def test_one_body_alone_may_be_larger_than_what_may_be_held() -> None:
    (message,) = await read(body_of(HeldBodies(10, 8), b"123456789"))
    assert len(message["body"]) == 9


async def test_lines_are_not_bounded_and_their_route_counts_them() -> None:
    bodies = HeldBodies(2, 2)
    body = body_of(bodies, b"abc", b"def", content_length="6", is_whole=False)
    await read(body)
    assert bodies.held == 0
    body.hold(9)
    body.hold(4)
    assert bodies.held == 4
    body.release()
    assert bodies.held == 0


@pytest.mark.parametrize(("own", "others", "is_too_much"), [(9, 0, False), (9, 1, True), (0, 9, True), (4, 4, False)])
def test_what_is_held_is_too_much_together_only(own: int, others: int, *, is_too_much: bool) -> None:
    bodies = HeldBodies(10, 8)
    body = body_of(bodies)
    body.hold(own)
    bodies.held += others
    assert body.is_too_much is is_too_much
    if is_too_much:
        with pytest.raises(Overloaded, match="at most 8"):
            body.check()
    else:
        body.check()
