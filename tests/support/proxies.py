"""Real proxies in front of a server, with the configurations in `deploy/proxy`."""

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.lib.servers import free_port
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

FOLDER = ROOT / "deploy" / "proxy"
FILES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "caddy": "Caddyfile"}
KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
SETTINGS_OF_NGINX = "access_log off; " + "".join(f"{kind}_temp_path {kind}; " for kind in KINDS)
OPTIONS_OF_CADDY = "{\n\tadmin off\n\tlocal_certs\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n"


def make_certificate(folder: Path) -> Path:
    """Write a certificate of 127.0.0.1 and its key to one file."""
    path = folder / "tls.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", folder / "cert"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + (folder / "cert").read_text())
    return path


@contextmanager
def running(name: str, service: str, folder: Path, change: Callable[[str], str] = lambda text: text) -> Iterator[str]:
    """Run a proxy in front of the service at an address; yield the address of the proxy.

    Only addresses, the certificate, and where files are written differ from the configuration.

    Args:
        name: nginx, haproxy or caddy.
        service: address of the service.
        folder: for files of the proxy.
        change: changes the configuration.

    """
    program = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, f"install {name}; `make test-proxy` does"
    port = free_port()
    text = change((FOLDER / FILES[name]).read_text())
    for before, after in _changes(name, service, port, folder):
        assert before in text
        text = text.replace(before, after)
    path = folder / FILES[name]
    path.write_text(text)
    arguments: dict[str, list[str | Path]] = {
        # The temporary folders of tests are closed to the user of nginx's workers.
        "nginx": ["-p", folder, "-c", path, "-e", folder / "errors", "-g", f"daemon off; pid {folder}/pid; user root;"],
        "haproxy": ["-db", "-f", path],
        "caddy": ["run", "--config", path, "--adapter", "caddyfile"],
    }
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen([program, *arguments[name]], stdout=stream, stderr=stream, env=environment)
    try:
        wait_until(lambda: _listens(process, port, log), log.read_text)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _changes(name: str, service: str, port: int, folder: Path) -> list[tuple[str, str]]:
    """What is replaced in a configuration, and by what."""
    changes = [("127.0.0.1:8000", service.removeprefix("http://"))]
    if name == "caddy":
        changes += [("(longdoc) {", f"{OPTIONS_OF_CADDY}(longdoc) {{"), ("example.org", f"https://127.0.0.1:{port}")]
    else:
        changes.append(("/etc/longdoc/tls.pem", str(make_certificate(folder))))
    if name == "nginx":
        changes += [
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("http {", f"http {{ {SETTINGS_OF_NGINX}"),
        ]
    if name == "haproxy":
        changes.append(("bind :443", f"bind 127.0.0.1:{port}"))
    return changes


def _listens(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    """Whether a proxy answers. Raises: AssertionError with its log if it has ended."""
    assert process.poll() is None, log.read_text()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as plain:
        context.wrap_socket(plain, server_hostname="127.0.0.1").close()
        return True
    return False
