"""The OpenAPI document, and FastAPI's pages that show it, without files of other servers."""

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import fastapi_offline
import orjson
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

from service.routes.page import page_headers
from service.sharing import Content, Once
from service.wire.errors import NATIVE
from service.wire.files import Files
from service.wire.media import JSON
from service.wire.responses import SharedResponse

if TYPE_CHECKING:
    from fastapi import FastAPI

ASSETS = "/static-offline-docs/"
"""Path prefix of the files that the pages load."""
STATIC = Path(fastapi_offline.__file__).parent / "static"
TITLE = "longdoc-serve"
ADDRESS = "openapi.json"
"""All addresses are relative, so that the pages work behind a proxy that removes a path prefix."""

router = NATIVE.router("Operations")
"""Its routes need no key, because a browser cannot send one when it opens a page."""


@router.head("/openapi.json", include_in_schema=False)
@router.get("/openapi.json", include_in_schema=False)
async def get_document(request: Request) -> Response:
    """Return the OpenAPI document, which a thread writes at the first request."""
    document: Once[SharedResponse] = request.app.state.document
    return await document.get()


@router.head("/docs", include_in_schema=False)
@router.get("/docs", include_in_schema=False)
async def get_swagger() -> Response:
    """Return Swagger UI."""
    return _swagger()


@router.head("/redoc", include_in_schema=False)
@router.get("/redoc", include_in_schema=False)
async def get_redoc() -> Response:
    """Return ReDoc."""
    return _redoc()


@router.head(f"{ASSETS}{{name}}", include_in_schema=False)
@router.get(f"{ASSETS}{{name}}", include_in_schema=False)
async def get_file(name: str) -> Response:
    """Return a file that the pages load."""
    return await _files().get(name)


@functools.cache
def _files() -> Files:
    """The files that the pages load."""
    return Files(STATIC)


def document_of(app: "FastAPI") -> Once[SharedResponse]:
    """The OpenAPI document of an application, once it is asked for."""
    return Once(lambda: SharedResponse(Content(orjson.dumps(app.openapi())), JSON))


@functools.cache
def _swagger() -> Response:
    files = ASSETS.lstrip("/")
    page = get_swagger_ui_html(
        openapi_url=ADDRESS,
        title=TITLE,
        swagger_js_url=f"{files}swagger-ui-bundle.js",
        swagger_css_url=f"{files}swagger-ui.css",
        swagger_favicon_url=f"{files}favicon.png",
    )
    scripts = re.findall(rb"<script>(.*?)</script>", bytes(page.body), re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    page.headers.update(page_headers({"script-src": " ".join(["'self'", *(f"'sha256-{one}'" for one in hashes)])}))
    return page


@functools.cache
def _redoc() -> Response:
    files = ASSETS.lstrip("/")
    page = get_redoc_html(
        openapi_url=ADDRESS,
        title=TITLE,
        redoc_js_url=f"{files}redoc.standalone.js",
        redoc_favicon_url=f"{files}favicon.png",
        with_google_fonts=False,
    )
    # ReDoc writes its styles into the page, and searches in a worker that it writes, too.
    page.headers.update(page_headers({"style-src": "'self' 'unsafe-inline'", "worker-src": "blob:"}))
    return page
