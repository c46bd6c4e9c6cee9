"""A client of raw connections: it writes any bytes and reads responses one by one."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from tests.support.waiting import PATIENCE_S

NOTHING = b""


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """One connection."""

    def __init__(self, url: str, timeout: float = PATIENCE_S, window: int | None = None) -> None:
        """Args: address; timeout of each read and write in seconds; size of the kernel's receive buffer in bytes.

        The certificate of an `https` address is not verified.
        """
        scheme, _, address = url.partition("://")
        host, port = address.split(":")
        self.socket = socket.socket()
        if window is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.settimeout(timeout)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self._stream = self.socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def send(self, *parts: bytes) -> "Wire":
        """Write parts, each as a separate packet where the network allows it."""
        for part in parts:
            self.socket.sendall(part)
        return self

    def send_last(self, *parts: bytes) -> "Wire":
        """Write parts and close the sending half of the connection."""
        self.send(*parts)
        self.socket.shutdown(socket.SHUT_WR)
        return self

    def head(self) -> tuple[int, dict[str, str]]:
        """Read the status and headers of the next response."""
        status = self._stream.readline()
        assert status.startswith(b"HTTP/1.1 "), status
        headers = {}
        while (line := self._stream.readline()) not in (b"\r\n", NOTHING):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(status.split()[1]), headers

    def chunks(self) -> Iterator[bytes]:
        """Yield a chunked body as it arrives; fail if it ends too early."""
        while size := int(self._stream.readline(), 16):
            yield self._stream.read(size)
            assert self._stream.read(2) == b"\r\n"
        assert self._stream.readline() == b"\r\n"

    def answer(self, *, has_body: bool = True) -> Answer:
        """Read the next response completely; interim responses (100 Continue) are not skipped."""
        status, headers = self.head()
        if not has_body or status == 100:
            return Answer(status, headers, NOTHING)
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, b"".join(self.chunks()))
        length = int(headers["content-length"])
        body = self._stream.read(length)
        assert len(body) == length, "the body was truncated"
        return Answer(status, headers, body)

    def read(self, size: int) -> bytes:
        """Read a part of a body."""
        return self._stream.read(size)

    def rest(self) -> bytes:
        """Read everything until the server closes or resets the connection."""
        received = bytearray()
        try:
            while part := self._stream.read1():
                received += part
        except ConnectionResetError:
            pass
        return bytes(received)

    def has_ended(self) -> bool:
        """Return whether the server closed the connection; waits until it does so or sends something."""
        try:
            return self._stream.read(1) == NOTHING
        except ConnectionResetError:
            return True


def request(
    target: str = "/v1/classify", body: bytes | None = b"x", method: str = "POST", version: str = "1.1", **headers: str
) -> bytes:
    """Return the bytes of a request; `_` in the name of a header stands for `-`."""
    fields = {"host": "x", "content-type": "text/plain"}
    if body is not None:
        fields["content-length"] = str(len(body))
    fields.update({name.replace("_", "-"): value for name, value in headers.items()})
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {target} HTTP/{version}\r\n{lines}\r\n".encode("latin-1") + (body or NOTHING)


def chunked(*parts: bytes) -> bytes:
    """Encode parts of a body in the chunked coding, without the last chunk."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


LAST_CHUNK = b"0\r\n\r\n"
