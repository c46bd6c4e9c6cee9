"""A program that waits for a job of its parser: tests kill it, and see whether the process of the parser ends."""

import asyncio
import os

from service.metrics import Metrics
from service.parser import Parser
from service.settings import Settings
from tests.support import jobs


async def parse() -> None:
    """Write the id of the parser's process to standard output, and let it compute."""
    parser = Parser(Settings(), Metrics())
    os.write(1, b"%d\n" % await parser.run(jobs.process, b""))
    await parser.run(jobs.spin, b"")


if __name__ == "__main__":
    asyncio.run(parse())
