"""Clients that send requests until something happens."""

import asyncio
from collections import Counter
from contextlib import closing

from tests.support.offline import document
from tests.support.server import Server
from tests.support.waiting import wait_until_async
from tests.support.wire import request


async def until_refused(server: Server, answers: Counter[str]) -> None:
    """Send requests on new connections until the server refuses one; count the outcomes.

    When listening ends, the kernel resets connections that the server has not accepted yet, before or after the client
    has sent its request. Of a request that the server has read, the connection would end without a reset.
    """
    while True:
        try:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            with closing(writer):
                writer.write(request(body=document(2000)))
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except ConnectionError:
            answers["refused"] += 1
            return
        answers[head.split()[1]] += 1
        if "\r\nconnection: close\r\n" in head:
            answers["connection: close"] += 1


async def until_answered(answers: Counter[str], kind: str, count: int) -> None:
    """Wait until that many answers of a kind are counted."""
    await wait_until_async(lambda: answers[kind] >= count)
