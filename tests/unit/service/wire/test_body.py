"""Bodies, decompressed and counted as they arrive."""

import gzip

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from service.errors import Overloaded, PayloadTooLarge
from service.wire.body import SMALL_BYTES, Body, HeldBodies
from service.wire.headers import first_headers
from tests.support.contexts import receive_of, scope_of


def body_of(bodies: HeldBodies, *parts: bytes, receive: Receive | None = None, **headers: str) -> Body:
    scope = scope_of({name.replace("_", "-"): value for name, value in headers.items()})
    return Body(bodies, scope, first_headers(scope), receive or receive_of(*parts))


async def read(body: Body) -> list[Message]:
    messages = [await body()]
    while messages[-1].get("more_body"):
        messages.append(await body())
    return messages


async def test_body_is_passed_on_and_counted_until_the_request_ends() -> None:
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
    with pytest.raises(PayloadTooLarge, match="5 bytes"):
        await read(body_of(bodies, b"abc", b"def"))


@pytest.mark.parametrize(
    ("content_length", "message"),
    [
        ("6", "has 6 bytes; at most 5"),
        ("0016", "has 16 bytes; at most 5"),
        ("9" * 20, f"has {'9' * 20} bytes; at most 5"),
        ("9" * 5000, "is longer than 5 bytes"),
    ],
)
async def test_content_length_over_the_limit_is_rejected_unread(content_length: str, message: str) -> None:
    async def receive() -> Message:
        raise AssertionError("read")

    bodies = HeldBodies(5, 100)
    with pytest.raises(PayloadTooLarge, match=f"^the body {message}$"):
        await body_of(bodies, receive=receive, content_length=content_length)()
    assert bodies.held == 0


@pytest.mark.parametrize("content_length", ["5", "005", "-6", "x", "²", ""])
async def test_bodies_without_a_valid_content_length_are_counted(content_length: str) -> None:
    (message,) = await read(body_of(HeldBodies(5, 100), b"abc", content_length=content_length))
    assert message["body"] == b"abc"


async def test_decompressed_size_is_counted() -> None:
    size = 2 * SMALL_BYTES
    bodies = HeldBodies(size, size + SMALL_BYTES)
    sent = gzip.compress(bytes(size))
    first, second = (body_of(bodies, receive=receive_of(sent, leaves=False), content_encoding="gzip") for _ in range(2))
    assert b"".join([message["body"] for message in await read(first)]) == bytes(size)
    assert bodies.held == size
    with pytest.raises(Overloaded):
        await read(second)
    first.release()
    assert bodies.held == size


async def test_decompression_stops_at_the_limit() -> None:
    bodies = HeldBodies(1000, 10_000)
    body = body_of(bodies, gzip.compress(bytes(10**7)), content_encoding="gzip")
    for _ in range(2):
        with pytest.raises(PayloadTooLarge, match="1000 bytes"):
            await read(body)
    assert bodies.held == 1001


async def test_compressed_lines_are_decompressed_without_a_limit() -> None:
    body = body_of(HeldBodies(2, 2), gzip.compress(b"abc\n"), gzip.compress(b"def"), content_encoding="gzip")
    body.unlimit()
    assert b"".join([message["body"] for message in await read(body)]) == b"abc\ndef"


async def test_raw_body_is_neither_decompressed_nor_counted() -> None:
    bodies = HeldBodies(1, 1)
    assert (await body_of(bodies, b"abc", content_encoding="gzip").raw())["body"] == b"abc"
    assert bodies.held == 0


async def test_size_of_all_bodies_is_limited() -> None:
    limit = 2 * SMALL_BYTES
    bodies = HeldBodies(limit, limit)
    for _ in range(2):
        await read(body_of(bodies, bytes(SMALL_BYTES)))
    late, small = body_of(bodies, bytes(SMALL_BYTES + 1)), body_of(bodies, bytes(SMALL_BYTES))
    with pytest.raises(Overloaded, match=f"196609 bytes; at most {limit}"):
        await read(late)
    late.release()
    assert bodies.held == limit
    await read(small)  # it takes no more memory than its connection
    assert bodies.held == limit + SMALL_BYTES


async def test_single_body_may_exceed_the_limit_of_all_bodies() -> None:
    (message,) = await read(body_of(HeldBodies(10, 8), b"123456789"))
    assert len(message["body"]) == 9


async def test_lines_are_not_limited_and_their_route_counts_them() -> None:
    bodies = HeldBodies(2, 2)
    body = body_of(bodies, b"abc", b"def", content_length="6")
    body.unlimit()
    await read(body)
    assert bodies.held == 0
    body.hold(9)
    body.hold(4)
    assert bodies.held == 4
    body.release()
    assert bodies.held == 0


@pytest.mark.parametrize(
    ("own", "others", "is_memory_full"), [(9, 0, False), (9, 1, True), (0, 9, True), (4, 4, False)]
)
def test_held_bytes_exceed_the_limit_only_together_with_others(own: int, others: int, *, is_memory_full: bool) -> None:
    bodies = HeldBodies(10, 8)
    body = body_of(bodies)
    body.hold(own)
    bodies.held += others
    assert body.is_memory_full is is_memory_full
    if is_memory_full:
        with pytest.raises(Overloaded, match="at most 8"):
            body.check()
    else:
        body.check()


async def test_body_is_read_until_the_client_disconnects() -> None:
    assert await body_of(HeldBodies(10, 100), b"ab", b"cd").read() == b"abcd"
    with pytest.raises(ClientDisconnect):
        await body_of(HeldBodies(10, 100)).read()


@pytest.mark.parametrize(("parts", "seen"), [((b"all",), b"all"), ((b"a", b"ll"), None), ((b"",), b"")])
async def test_body_that_was_peeked_at_is_read_whole_and_counted_once(
    parts: tuple[bytes, ...], seen: bytes | None
) -> None:
    bodies = HeldBodies(100, 100)
    body = body_of(bodies, *parts)
    assert await body.peek() == seen
    assert await body.read() == b"".join(parts)
    assert bodies.held == len(b"".join(parts))


async def test_peeking_does_not_hide_a_disconnect() -> None:
    body = body_of(HeldBodies(100, 100))
    assert await body.peek() is None
    with pytest.raises(ClientDisconnect):
        await body.read()
