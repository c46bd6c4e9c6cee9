"""The benchmark of the cost of long documents: windows, turns and the report."""

from pathlib import Path
from typing import Literal

from artifact.backends.base import Array, Tensors
from benchmarks.lib.record import Record
from benchmarks.models.long_speed import LENGTHS, PASS, WINDOW, WINDOWS, Turn, draw, report, windows


def test_windows_cover_the_document() -> None:
    text = bytes(97 + place % 26 for place in range(65_536))
    found = windows(text)
    assert len(found) == 19
    assert {len(window) for window in found} == {WINDOW}
    assert found[0] == text[:WINDOW]
    assert found[-1] == text[-WINDOW:]


def test_turn_computes_the_rows_of_the_next_document_in_batches() -> None:
    class Backend:
        device: Literal["cpu", "cuda"] = "cpu"

        def __init__(self) -> None:
            self.batches: list[list[bytes]] = []

        def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
            del limit_s
            rows = zip(inputs["bytes"], inputs["lengths"], strict=True)
            self.batches.append([row[:length].tobytes() for row, length in rows])
            return {}

    backend = Backend()
    turn = Turn(backend, [[b"a", b"bb", b"c", b"d", b"e"], [b"f"]], 4)
    assert turn() > 0
    assert backend.batches == [[b"a", b"bb", b"c", b"d"], [b"e"]]
    turn()
    turn()
    assert backend.batches[2:] == [[b"f"], [b"a", b"bb", b"c", b"d"], [b"e"]]


def test_report_tells_cost_ratio_and_slope(tmp_path: Path) -> None:
    seconds = [{"reads": PASS, "bytes": length, "rounds": [length / 1024e3] * 3} for length in LENGTHS]
    seconds += [
        {"reads": WINDOWS, "bytes": length, "rounds": [length / 512e3]} for length in LENGTHS if length > WINDOW
    ]
    record = Record("long_speed", "p", "c", "d", "r", {"cpu": "x"}, {}, {}, {"model": "scotus@1", "seconds": seconds})
    text = report(record)
    assert "| 65,536 |    64.00 |   1.000 |  128.00 |             0.50 x |" in text
    assert "power 1.00 of the length" in text
    draw(record, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 1000
