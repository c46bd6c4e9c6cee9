"""Shared fixtures: servers, and models that compute the expected answers without a server."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from artifact.exports import read_manifest, version_folder
from artifact.tasks.classification import ClassifierManifest
from tests.support.offline import Offline, OfflineForecaster, OfflineMatcher
from tests.support.paths import EXPORTS
from tests.support.server import ControlledServer, Server


@pytest.fixture(scope="session")
def export() -> Path:
    """The repository's classifier."""
    return version_folder(EXPORTS / "imdb-s3")


@pytest.fixture(scope="session")
def manifest(export: Path) -> ClassifierManifest:
    manifest = read_manifest(export)
    assert isinstance(manifest, ClassifierManifest)
    return manifest


@pytest.fixture(scope="session")
def offline(export: Path) -> Offline:
    return Offline(export)


@pytest.fixture(scope="session")
def matcher() -> OfflineMatcher:
    """The repository's matcher."""
    return OfflineMatcher(version_folder(EXPORTS / "aan"))


@pytest.fixture(scope="session")
def forecaster() -> OfflineForecaster:
    """The default forecaster of the shared server."""
    return OfflineForecaster(version_folder(EXPORTS / "ettm2"))


@pytest.fixture
def exports_copy(export: Path, tmp_path: Path) -> Path:
    """A folder of exports that a test may damage."""
    shutil.copytree(export, tmp_path / "exports" / export.parent.name / export.name)
    return tmp_path / "exports"


def with_models(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Load the classifier only, unless the flags choose models or their folder: that takes a quarter off a start."""
    chooses = any(flag in ("--exports", "--models") or flag.startswith("--default-") for flag in flags)
    return flags if chooses else ("--models", "imdb-s3", *flags)


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start servers, by default of the classifier, with flags and options of `Server`; they stop when the test ends."""
    with ExitStack() as servers:
        yield lambda *flags, **options: servers.enter_context(
            Server(tmp_path_factory.mktemp("server") / "log", *with_models(flags), **options)
        )


@pytest.fixture
def start_controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ControlledServer]]:
    """Start servers with batches and clock controlled by the test; arguments as those of `start`."""
    with ExitStack() as servers:
        yield lambda *flags, **options: servers.enter_context(
            ControlledServer(tmp_path_factory.mktemp("server") / "log", *with_models(flags), **options)
        )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that only send requests; no deadline can pass, however slow the machine is."""
    flags = ("--drain-delay-s", "0", "--default-forecaster", "ettm2", "--deadline-s", "3600")
    with Server(tmp_path_factory.mktemp("server") / "log", *flags) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture(scope="session")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledServer]:
    """One server for all tests that hold its batches until a deadline has passed."""
    flags = ("--drain-delay-s", "0", "--default-forecaster", "ettm2")
    with ControlledServer(tmp_path_factory.mktemp("controlled") / "log", *flags) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
    assert "Traceback" not in server.text()
    assert "Warning" not in server.text()


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of all exports whose answers do not depend on earlier requests: it caches nothing."""
    flags = ("--max-cache-bytes", "0", "--drain-delay-s", "0", "--deadline-s", "3600")
    with Server(tmp_path_factory.mktemp("fresh") / "log", *flags) as server:
        yield server
        assert server.stop() == 0
