"""What an HTML report holds, as a parser finds it."""

from html.parser import HTMLParser
from pathlib import Path


class ReadReport(HTMLParser):
    """Elements, addresses and texts of a report."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.size = path.stat().st_size
        self.elements: set[str] = set()
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._is_cell = False
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    @property
    def text(self) -> str:
        """All texts that are shown."""
        return "\n".join(self.texts)

    @property
    def is_closed(self) -> bool:
        """Whether the report runs and loads nothing."""
        return not self.elements & {"script", "link", "iframe", "object"} and all(
            address.startswith("data:image/svg+xml;base64,") for address in self.addresses
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        self._is_cell = tag in ("td", "th")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._is_cell:
            self.tables[-1][-1][-1] += data

    def table(self, first: str) -> list[list[str]]:
        """The rows below the head of the table whose head begins with this cell."""
        (found,) = (table for table in self.tables if table[0][0] == first)
        return found[1:]
