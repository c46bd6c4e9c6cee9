"""What all requests share: models, their reloader, the parser, metrics and limits; and how it starts and stops."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection
from typing import Self

from artifact.defaults import read_defaults
from service.engine.engine import Engine
from service.engine.loading import load_models
from service.engine.reload import Reloader
from service.engine.selection import Models, check_aliases
from service.metrics import SAMPLE_S, Metrics
from service.parser import Parser
from service.settings import Settings

log = logging.getLogger(__name__)


class Runtime:
    """The parts of a server that requests use; `app.state.runtime` of an application.

    Args:
        settings: the settings of the server.
        metrics: metrics of the process.
        engine: the models.
        reloader: loads and unloads models.

    """

    def __init__(self, settings: Settings, metrics: Metrics, engine: Engine, reloader: Reloader) -> None:
        self.settings = settings
        self.metrics = metrics
        self.engine = engine
        self.reloader = reloader
        self.parser = Parser(settings, metrics)
        self.uploads = 0
        """NDJSON uploads that are being answered."""
        self.must_stop_now = asyncio.Event()
        """Set if requests in flight are not waited for when the server stops."""

    @classmethod
    def load(cls, settings: Settings, metrics: Metrics | None = None, required: Collection[str] | None = None) -> Self:
        """Load the models.

        Args:
            settings: the settings of the server.
            metrics: metrics of the process; by default new ones.
            required: names of the models that a restarted worker has to serve; None at the first start.

        Raises: BadExport if no model can be served, or a required model is damaged; at the first start, if the model of
            an alias is not served, either.

        """
        metrics = metrics or Metrics()
        models, refused = load_models(settings, metrics, required)
        if required is None:
            check_aliases([model.manifest for model in models], settings)
        engine = Engine(models, settings, metrics, read_defaults(settings.exports))
        return cls(settings, metrics, engine, Reloader(engine, settings, metrics, refused))

    @property
    def models(self) -> Models:
        """The models that are served."""
        return self.engine.models

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reload changed exports until the end of the block; then answer the requests in flight, and close."""
        tasks = []
        if self.settings.reload_s:
            tasks.append(asyncio.create_task(self.reloader.run()))
        if self.metrics.is_shared:
            tasks.append(asyncio.create_task(self._sample()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await self._drain()
            self.close()

    async def _drain(self) -> None:
        """Wait for the requests in flight, unless the server must stop now."""
        waits = [asyncio.ensure_future(wait) for wait in (self.must_stop_now.wait(), self.engine.drain())]
        timeout_s = self.settings.drain_timeout_s
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not done:
            log.error("requests were still in flight after drain_timeout_s = %g", timeout_s)

    def close(self) -> None:
        """End the threads and the parser's processes, without waiting for batches that are being computed."""
        self.engine.close()
        self.parser.close()

    async def _sample(self) -> None:
        """Update this worker's gauges in the shared files, until cancelled."""
        while True:
            self.metrics.sample()
            await asyncio.sleep(SAMPLE_S)
