"""`/`: the web page, whose source is in `page/`, and the files that it loads; or a redirect to the documentation.

All addresses in the page are relative, so that it works behind a proxy that adds a path prefix.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from service.wire.dependencies import CurrentRuntime
from service.wire.errors import NATIVE
from service.wire.files import Files

FOLDER = Path(__file__).parents[1] / "page"
"""The built page; `make page` writes it."""
ASSETS = "/assets/"
"""Path prefix of the files that the page loads. Their names contain a hash of their content."""
POLICY = {
    "default-src": "'none'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "script-src": "'self'",
    "style-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
"""Content-Security-Policy of a page: no inline scripts or styles, nothing from other origins, no frames around it."""
KEEP = "public, max-age=31536000, immutable"
"""Cache-Control of the files: one year."""


def page_headers(policy: Mapping[str, str]) -> dict[str, str]:
    """Headers of a page whose policy differs from POLICY in the given directives."""
    directives = "; ".join(f"{name} {sources}" for name, sources in {**POLICY, **policy}.items())
    return {"cache-control": "no-cache", "content-security-policy": directives, "referrer-policy": "no-referrer"}


router = NATIVE.router("Operations")
"""Its route needs no key, because a browser cannot send one when it opens a page."""


@router.head("/", include_in_schema=False)
@router.get("/", name="page", response_class=HTMLResponse)
async def get_page(request: Request, runtime: CurrentRuntime) -> Response:
    """Return the page; with `LONGDOC_PAGE=false`, redirect to the documentation of the routes."""
    path, root_path = request.scope["path"], request.scope.get("root_path", "")
    if not runtime.settings.page:
        return RedirectResponse(f"{root_path}/docs" if root_path else "docs")
    if root_path and path == root_path:  # without the slash, the addresses in the page would lose the prefix
        return RedirectResponse(f"{root_path}/")
    return HTMLResponse(_page(), headers=page_headers({}))


@router.head(f"{ASSETS}{{name}}", include_in_schema=False)
@router.get(f"{ASSETS}{{name}}", include_in_schema=False)
async def get_asset(name: str, runtime: CurrentRuntime) -> Response:
    """Return a file that the page loads; browsers keep it and do not ask again."""
    if not runtime.settings.page:
        raise HTTPException(404)
    return await _assets().get(name)


@functools.cache
def _assets() -> Files:
    """The files that the page loads."""
    return Files(FOLDER / "assets", {"cache-control": KEEP})


@functools.cache
def _page() -> bytes:
    """The HTML document."""
    return (FOLDER / "index.html").read_bytes()
