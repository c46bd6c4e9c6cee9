"""`python -m benchmarks.lib.quote`: write the figures of the reports into README and docs.

A table between two comments is the first one of a report. One may choose a section of the report, rows by their first
cell, and columns beside the first one, also of other tables with the same first column:

    <!-- report: peers; columns: answers/s | goodput/s; rows: ours | FastAPI -->
    <!-- end -->

A link to a report whose title leads to a cell, by the first cells of its row and its column, shows that cell:

    [92.44 ± 0.05](benchmarks/results/classification/report.md "imdb > ours")
"""

import re
from collections.abc import Iterator, Sequence

from benchmarks.lib.record import RESULTS
from benchmarks.lib.servers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLE = re.compile(r"(<!-- report: (\w+)((?:; \w+: [^;\n]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r'\[[^]]*\](\([^)\s]*benchmarks/results/(\w+)/report\.md "([^"]+)"\))')


def quoted(page: str) -> str:
    """The text of a page with the current figures. Raises: LookupError if a report has no such table or cell."""
    page = TABLE.sub(lambda found: f"{found[1]}\n{_table(found[2], found[3])}\n{found[4]}", page)
    return FIGURE.sub(lambda found: f"[{_figure(found[2], found[3])}]{found[1]}", page)


def _table(name: str, options: str) -> str:
    chosen = dict(option.split(": ", 1) for option in options.split("; ")[1:])
    tables = list(_tables(name, chosen.get("section")))
    if not tables:
        raise LookupError(f"{name}: no table in section {chosen.get('section')!r}")
    first, *others = tables[0][0]
    columns = chosen["columns"].split(" | ") if "columns" in chosen else others
    joined = [table for table in tables if table[0][0] == first]
    cells = [_column(joined, column, name) for column in (first, *columns)]
    rows = list(zip(*cells, strict=True))
    if "rows" in chosen:
        wanted, known = chosen["rows"].split(" | "), [row[0] for row in rows[2:]]
        if unknown := [row for row in wanted if row not in known]:
            raise LookupError(f"{name}: no row {unknown[0]!r}; there are: {', '.join(known)}")
        rows = [*rows[:2], *(row for row in rows[2:] if row[0] in wanted)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _column(tables: Sequence[list[list[str]]], column: str, name: str) -> list[str]:
    for table in tables:
        if column in table[0]:
            return [row[table[0].index(column)] for row in table]
    raise LookupError(f"{name}: no column {column!r}; there are: {', '.join(c for t in tables for c in t[0])}")


def _figure(name: str, path: str) -> str:
    *row, column = path.split(" > ")
    for table in _tables(name):
        found = [cells for cells in table[2:] if cells[: len(row)] == row]
        if found and column in table[0]:
            if len(found) > 1:
                raise LookupError(f"{name}: {len(found)} rows begin with {' > '.join(row)}")
            return found[0][table[0].index(column)]
    raise LookupError(f"{name}: no cell {path!r}")


def _tables(name: str, section: str | None = None) -> Iterator[list[list[str]]]:
    """The tables of a report, or of one section of it: header, rule, rows."""
    text = (RESULTS / name / "report.md").read_text()
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        rule = ["--:" if cell.endswith(":") else "---" for cell in lines[1]]
        yield [lines[0], rule, *lines[2:]]


def main() -> None:
    """Rewrite the pages whose figures have changed."""
    for page in PAGES:
        old = page.read_text()
        if (new := quoted(old)) != old:
            page.write_text(new)
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
