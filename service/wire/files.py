"""Serves files from memory."""

import functools
import hashlib
import mimetypes
from collections.abc import Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from service.sharing import Content, Once
from service.wire.responses import SharedResponse


class Files:
    """An ASGI application for a route with the variable `name`: the files of a folder, without subfolders.

    Each file is read and compressed at its first request, then kept in memory. Files that are added later are not
    found.

    Args:
        folder: the folder.
        headers: added to each response.

    """

    def __init__(self, folder: Path, headers: Mapping[str, str] | None = None) -> None:
        self._files = {
            path.name: Once(functools.partial(_read, path, headers or {}))
            for path in folder.iterdir()
            if path.is_file()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a file. Raises: HTTPException, 404 or 405."""
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        file = self._files.get(scope["path_params"]["name"])
        if file is None:
            raise HTTPException(404)
        await (await file.get())(scope, receive, send)


def _read(path: Path, headers: Mapping[str, str]) -> SharedResponse:
    """The response with a file."""
    body = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    # A weak tag: the compressed and the plain file have the same one.
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    return SharedResponse(Content(body), media_type, {**headers, "etag": tag})
