"""Compressed bodies: complete, damaged and malicious."""

import asyncio
import gzip
import zlib

import pytest
from starlette.types import Message

from service.errors import MalformedInput, PayloadTooLarge
from service.wire.decompression import IN_BYTES, OUT_BYTES, OVERHEAD_BYTES, Decompressor, coding_of
from tests.support.contexts import receive_of

TEXT = b"A film to see twice, and twice again. " * 20_000
PACKED = {"gzip": gzip.compress(TEXT, mtime=0), "x-gzip": gzip.compress(TEXT, mtime=0), "deflate": zlib.compress(TEXT)}


async def messages(inflated: Decompressor) -> list[Message]:
    """Those of the body."""
    found = [await inflated()]
    while found[-1]["more_body"]:
        found.append(await inflated())
    return found


async def inflate(coding: str, *parts: bytes) -> bytes:
    return b"".join(
        [message["body"] for message in await messages(Decompressor(receive_of(*parts, leaves=False), coding, None))]
    )


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[first : first + size] for first in range(0, len(body), size)]


@pytest.mark.parametrize(
    ("values", "coding"),
    [
        ([], ""), (["identity"], ""), ([" Identity ,"], ""), (["GZip"], "gzip"), (["identity", "deflate"], "deflate"),
        (["gzip, br"], "gzip, br"), (["gzip", "gzip"], "gzip, gzip"),
    ],
)  # fmt: skip
def test_coding_is_read(values: list[str], coding: str) -> None:
    raw = [(b"content-encoding", value.encode()) for value in values]
    assert coding_of({"headers": raw}) == coding


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("size", [1, 7, IN_BYTES - 1, 10**6])
async def test_body_is_decompressed_however_it_is_split(coding: str, size: int) -> None:
    assert await inflate(coding, *cut(PACKED[coding], size)) == TEXT


@pytest.mark.parametrize("length", [0, 1, OUT_BYTES - 1, OUT_BYTES, OUT_BYTES + 1, 3 * OUT_BYTES])
async def test_body_of_any_length_is_decompressed(length: int) -> None:
    for level in (0, 9):
        assert await inflate("gzip", gzip.compress(b"x" * length, level)) == b"x" * length


@pytest.mark.parametrize("size", [10, 10**6])
async def test_gzip_members_are_concatenated(size: int) -> None:
    body = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert await inflate("gzip", *cut(body, size)) == b"one two"


async def test_size_of_pieces_is_limited() -> None:
    bomb = gzip.compress(bytes(64 * OUT_BYTES))
    sizes = [
        len(message["body"]) for message in await messages(Decompressor(receive_of(bomb, leaves=False), "gzip", None))
    ]
    assert sum(sizes) == 64 * OUT_BYTES
    assert max(sizes) == OUT_BYTES


async def test_other_tasks_run_between_pieces() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await messages(Decompressor(receive_of(gzip.compress(bytes(9 * OUT_BYTES)), leaves=False), "gzip", None))
    counting.cancel()
    assert turns >= len(found) - 1 >= 8


@pytest.mark.parametrize("most", [0, 1, OUT_BYTES, 2 * OUT_BYTES + 5])
async def test_no_more_than_one_byte_beyond_the_limit_is_made(most: int) -> None:
    inflated = Decompressor(receive_of(gzip.compress(bytes(100 * OUT_BYTES)), leaves=False), "gzip", most)
    made = 0
    while made <= most:
        made += len((await inflated())["body"])
    assert made == most + 1
    with pytest.raises(PayloadTooLarge, match=f"{most} bytes"):
        await inflated()


DAMAGED = {
    "nothing": ("gzip", b"", "not complete gzip"),
    "the last byte is missing": ("gzip", PACKED["gzip"][:-1], "not complete gzip"),
    "only the head": ("gzip", PACKED["gzip"][:5], "not complete gzip"),
    "not compressed": ("gzip", TEXT, "not valid gzip"),
    "deflate as gzip": ("gzip", PACKED["deflate"], "not valid gzip"),
    "wrong checksum": ("gzip", PACKED["gzip"][:-8] + bytes(8), "not valid gzip"),
    "a byte more": ("gzip", PACKED["gzip"] + b"x", "first gzip member is not complete gzip"),
    "more": ("gzip", PACKED["gzip"] + b"more", "first gzip member is not valid gzip"),
    "zeros more": ("gzip", PACKED["gzip"] + bytes(100), "first gzip member is not valid gzip"),
    "by its other name": ("x-gzip", b"xx", "not valid gzip"),
    "gzip as deflate": ("deflate", PACKED["gzip"], "not valid deflate"),
    "deflate without zlib": ("deflate", PACKED["deflate"][2:-4], "not valid deflate"),
    "deflate cut": ("deflate", PACKED["deflate"][:-1], "not complete deflate"),
    "deflate and more": ("deflate", PACKED["deflate"] + b"x", "after the end"),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("size", [100, 10**6])
async def test_damaged_body_is_an_error(damage: str, size: int) -> None:
    coding, body, message = DAMAGED[damage]
    with pytest.raises(MalformedInput) as caught:
        await inflate(coding, *(cut(body, size) or [b""]))
    assert message in str(caught.value)


async def test_bytes_before_the_damage_are_passed_on() -> None:
    for body in (gzip.compress(b"some")[:-1], gzip.compress(b"some") + b"more"):
        inflated = Decompressor(receive_of(body, leaves=False), "gzip", None)
        assert await inflated() == {"type": "http.request", "body": b"some", "more_body": True}
        with pytest.raises(MalformedInput):
            await inflated()


async def test_what_follows_the_body_or_its_damage_is_passed_on() -> None:
    whole = Decompressor(receive_of(gzip.compress(b"some")), "gzip", None)
    await messages(whole)
    assert await whole() == {"type": "http.disconnect"}
    damaged = Decompressor(receive_of(b"damaged", b"more"), "gzip", None)
    with pytest.raises(MalformedInput):
        await damaged()
    assert (await damaged())["body"] == b"more"


async def test_cancelled_receive_loses_no_data() -> None:
    """Line uploads stop waiting once a second to check whether the server is shutting down."""
    arrived = asyncio.Event()
    parts = receive_of(PACKED["gzip"], leaves=False)

    async def receive() -> Message:
        await arrived.wait()
        return await parts()

    inflated = Decompressor(receive, "gzip", None)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inflated(), 0)
    arrived.set()
    assert b"".join([message["body"] for message in await messages(inflated)]) == TEXT


async def test_number_of_empty_gzip_members_is_limited() -> None:
    empty = gzip.compress(b"", mtime=0)
    allowed = Decompressor(receive_of(empty * 100 + gzip.compress(b"end"), leaves=False), "gzip", 10)
    assert b"".join([message["body"] for message in await messages(allowed)]) == b"end"
    with pytest.raises(PayloadTooLarge, match="10 bytes"):
        await messages(Decompressor(receive_of(empty * (OVERHEAD_BYTES // len(empty) + 10), leaves=False), "gzip", 10))


async def test_disconnect_is_noticed_before_the_whole_body_is_decompressed() -> None:
    inflated = Decompressor(receive_of(gzip.compress(bytes(100 * OUT_BYTES))), "gzip", None)
    found = [await inflated()]
    while found[-1]["type"] == "http.request":
        found.append(await inflated())
    assert len(found) < 10
    assert found[-1]["type"] == "http.disconnect"
