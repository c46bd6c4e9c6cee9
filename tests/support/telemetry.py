"""Watches what ONNX Runtime's telemetry does in programs that a test starts.

When it is imported, ONNX Runtime writes a session id to the temporary folder and a device id to the cache folder of the
user. Some seconds later it calls a host on the internet, through the proxy that the environment names.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

KEPT = ("COV", "LANG", "LC_", "LD_LIBRARY_PATH", "NO_PROXY", "OMP_", "PATH", "PYTHON", "VIRTUAL_ENV", "no_proxy")
"""How the variables begin that programs inherit. Others may turn the telemetry off, as those of CI systems do."""


class Telemetry:
    """What the programs have done so far.

    Args:
        folder: their home and temporary folder.
        proxy: the socket that listens at the address of their proxy.

    """

    def __init__(self, folder: Path, proxy: socket.socket) -> None:
        self._folder = folder
        self._proxy = proxy
        self.called = threading.Event()
        """Set once a program has called a host on the internet."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            self._proxy.accept()[0].close()
        except OSError:  # nobody called until the end
            return
        self.called.set()

    def files(self) -> list[str]:
        """Names of files of the telemetry."""
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        return sorted(path.name for path in files if path.name == ".ses" or "Microsoft" in path.parts)


@contextmanager
def watched_telemetry(folder: Path) -> Iterator[Telemetry]:
    """Watch the programs that are started in the context, with few variables; `folder` is empty."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if not name.startswith(KEPT)]:
            patch.delenv(name)
        for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder))
        for name in ("HTTPS_PROXY", "https_proxy"):
            patch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        yield Telemetry(folder, proxy)
        proxy.shutdown(socket.SHUT_RDWR)
