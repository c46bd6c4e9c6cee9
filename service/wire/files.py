"""Serves files from memory."""

import functools
import hashlib
import mimetypes
from collections.abc import Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.sharing import Content, Once
from service.wire.responses import SharedResponse


class Files:
    """The files of a folder, without subfolders.

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

    async def get(self, name: str) -> Response:
        """The response with a file. Raises: HTTPException, 404."""
        if name not in self._files:
            raise HTTPException(404)
        return await self._files[name].get()


def _read(path: Path, headers: Mapping[str, str]) -> SharedResponse:
    """The response with a file."""
    body = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    # A weak tag: the compressed and the plain file have the same one.
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    return SharedResponse(Content(body), media_type, {**headers, "etag": tag})
