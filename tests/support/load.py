"""Clients that ask until something happens."""

import asyncio
from collections import Counter
from contextlib import closing

from tests.support.offline import document
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S
from tests.support.wire import request


async def until_refused(server: Server, answers: Counter[str]) -> None:
    """Ask on new connections until none is accepted; count what came of each request that was sent."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(server.host, server.port)
        except ConnectionError:  # also reset, if the kernel was still connecting it when listening ended
            answers["refused"] += 1
            return
        with closing(writer):
            writer.write(request(body=document(2000)))
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        answers[head.split()[1]] += 1
        if "\r\nconnection: close\r\n" in head:
            answers["told to close"] += 1


async def until_answered(answers: Counter[str], kind: str, count: int) -> None:
    """Wait until clients have counted that many answers."""
    async with asyncio.timeout(PATIENCE_S):
        while answers[kind] < count:  # noqa: ASYNC110  # counted by tasks that know of no event
            await asyncio.sleep(0.01)
