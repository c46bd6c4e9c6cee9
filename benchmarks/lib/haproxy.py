"""HAProxy with the configuration of the Compose profile `scaled`, in front of servers of this machine."""

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import httpx

from benchmarks.lib.servers import ROOT, TIMEOUT_S, free_port

FILE = ROOT / "docker/haproxy.cfg"


def configuration(port: int, servers: Sequence[str]) -> str:
    """The shipped configuration, with a port and addresses of this machine in place of those of Compose.

    Raises: ValueError if the shipped configuration has no such lines.
    """
    text = FILE.read_text().partition("\nresolvers")[0].replace(" resolvers docker init-addr none", "")
    text, bound = re.subn(r"bind :8080", f"bind 127.0.0.1:{port}", text)
    text, named = re.subn(r"\n    server service .*", "", text)
    lines = "".join([f"\n    server r{number} {address}" for number, address in enumerate(servers)])
    text, numbered = re.subn(r"\n    server-template .*", lines, text)
    if (bound, named, numbered) != (1, 3, 3):
        raise ValueError(f"{FILE}: expected one bind, and in three backends one server and one server-template")
    return f"{text.rstrip()}\n"


def version_of(program: str) -> str:
    """Version of HAProxy. Raises: OSError if there is no such program."""
    return subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout.split()[2]


@contextlib.contextmanager
def haproxy(program: str, urls: Sequence[str], change: Callable[[str], str] = lambda text: text) -> Iterator[str]:
    """Run HAProxy in front of servers until the end of the block; yields its URL once it has found one of them.

    Args:
        program: name or path of HAProxy.
        urls: addresses of the servers.
        change: changes the configuration.

    Raises: RuntimeError if HAProxy does not start.

    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(change(configuration(port, [url.removeprefix("http://") for url in urls])))
        file.flush()
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([program, "-db", "-f", file.name], stdout=quiet, stderr=quiet)
        try:
            _wait(process, f"{url}/v2/health/ready")
            yield url
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until a server answers behind HAProxy. Raises: RuntimeError if none does."""
    until = time.monotonic() + TIMEOUT_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, trust_env=False).is_success:
                return
        time.sleep(0.05)
    raise RuntimeError(f"no answer behind HAProxy; its exit code is {process.poll()}")
