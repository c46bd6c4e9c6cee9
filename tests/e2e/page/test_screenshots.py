"""Pictures of every tab, in light and dark, on a desktop and a phone, for people to look at.

The test writes them to `page/screenshots/`. `python -m tests.e2e.page.test_screenshots` also writes smaller ones for
README and documentation to `docs/start/page/`; before those of Live, there is load for a minute.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.support.browser import Visit, chromium
from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.showcase import TABS, show

pytestmark = pytest.mark.page

FOLDER = ROOT / "page" / "screenshots"
DOCUMENTED = ROOT / "docs" / "start" / "page"
MAX_BYTES = 300_000
"""Limit of the pictures of the documentation, together."""
SIZES: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 860}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
SCHEMES = ("light", "dark")
LOAD_S = 60.0


def take(open_page: Callable[..., Visit], url: str, folder: Path, tabs: Sequence[str] = TABS) -> dict[Path, int]:
    """Write a picture of every tab; return the files, and where the answer begins in each."""
    folder.mkdir(exist_ok=True)
    found = {}
    for size, options in SIZES.items():
        for scheme in SCHEMES:
            visit = open_page(url, color_scheme=scheme, reduced_motion="reduce", **options)
            for tab in tabs:
                page = show(visit, tab)
                page.mouse.move(0, 0)
                page.evaluate("scrollTo(0, 0)")
                answer = page.get_by_role("tabpanel").locator(".card").last.bounding_box()
                path = folder / f"{tab.lower()}-{size}-{scheme}.png"
                found[path] = round(answer["y"]) if answer else 0
                page.screenshot(path=path, full_page=True, animations="disabled")
    return found


def test_every_tab_is_pictured(visit: Callable[..., Visit], server: Server) -> None:
    pictures = take(visit, f"{server.url}/", FOLDER)
    assert len(pictures) == len(SIZES) * len(SCHEMES) * len(TABS)
    for picture in pictures:
        with Image.open(picture) as image:
            assert image.width == SIZES[picture.stem.split("-")[1]]["viewport"]["width"]
            assert len(image.convert("RGB").getcolors(2**24) or ()) > 100, "it is not empty"


def test_documentation_has_every_picture() -> None:
    names = {f"{tab.lower()}-{size}-{scheme}.webp" for tab in TABS for size in SIZES for scheme in SCHEMES}
    assert {path.name for path in DOCUMENTED.iterdir()} == names
    assert sum(path.stat().st_size for path in DOCUMENTED.iterdir()) <= MAX_BYTES


class Load:
    """Requests at a varying rate, from a thread, until the block ends."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._server.client() as client:
            for number in range(10**9):
                if self._is_over.wait(0.05 + 0.04 * ((number // 40) % 5)):
                    return
                client.post("/v1/classify", json={"inputs": ["A delight from start to end. " * 9] * (1 + number % 7)})


def document(browser: Browser, server: Server) -> None:
    """Write the pictures of the documentation: the top of each tab; on a phone, the answer; Live under load."""
    visits: list[Visit] = []

    def open_page(url: str, **options: object) -> Visit:
        visits.append(Visit(browser, url, **options))
        return visits[-1]

    def open_live(url: str, **options: object) -> Visit:
        open_page(url, **options).open("Live")
        time.sleep(LOAD_S)
        return visits[-1]

    pictures = take(open_page, f"{server.url}/", FOLDER, [tab for tab in TABS if tab != "Live"])
    with Load(server):
        pictures |= take(open_live, f"{server.url}/", FOLDER, ["Live"])
    DOCUMENTED.mkdir(exist_ok=True)
    for picture, answer in pictures.items():
        with Image.open(picture) as image:
            first, height, scale = (0, 1152, 0.625) if "desktop" in picture.name else (answer - 16, 780, 0.75)
            part = image.convert("RGB").crop((0, first, image.width, min(image.height, first + height)))
            small = part.resize((round(part.width * scale), round(part.height * scale)), Image.Resampling.LANCZOS)
            small.save(DOCUMENTED / f"{picture.stem}.webp", quality=32, method=6)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as log,
        Server(Path(log) / "log", "--drain-delay-s", "0") as service,
        chromium() as one,
    ):
        document(one, service)
