"""A reverse proxy that serves an application below a path prefix, which the application does not know."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tests.support.waiting import PATIENCE_S

HOP_BY_HOP = {"connection", "transfer-encoding", "content-encoding", "content-length", "date", "server"}
"""Headers of a response that the proxy writes itself."""


@contextmanager
def proxy(target: str, prefix: str) -> Iterator[str]:
    """Forward requests below `prefix`, such as `/a/b`, to the address `target`; yield the address of the prefix."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._forward()

        def do_POST(self) -> None:
            self._forward()

        def _forward(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
            found = httpx.request(
                self.command, target + self.path.removeprefix(prefix), content=body, headers=headers, timeout=PATIENCE_S
            )
            self.send_response(found.status_code)
            for name, value in found.headers.items():
                if name not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket.setblocking(False)  # a connection may be reset between `select` and `accept`, which would wait
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{prefix}/"
        server.shutdown()
