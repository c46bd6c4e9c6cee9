"""Tables of a made-up record."""

from pathlib import Path

from benchmarks.lib.record import Data
from benchmarks.models.any_series.__main__ import BENCHMARK
from benchmarks.models.any_series.speed import MEASURED
from tests.support.records import expect_in_report, made_up


def row(part: str, forecaster: str, *values: float) -> Data:
    """A row whose measures are the values, of each seed, and multiples of them."""
    measures = ("smape", "mae", "mse", "interval", "coverage", "ahead")
    return {
        **{"part": part, "series": 1_428, "forecaster": forecaster},
        **{measure: [factor * value for value in values] for factor, measure in enumerate(measures, 1)},
    }


def less(part: str, forecaster: str, other: str) -> Data:
    return {
        **{"part": part, "forecaster": forecaster, "less": other},
        **{measure: [-0.25, -0.5, 0.125] for measure in ("smape", "mae", "mse")},
    }


def test_report_has_all_series_parts_differences_and_the_ablation(tmp_path: Path) -> None:
    m3 = {
        "revision": "abc",
        "rows": [row(part, name, 10) for part in ("monthly", "all") for name in ("naive", "Theta")],
        "differences": [less("all", "naive", "Theta")],
    }
    ili = {
        "revision": "abd",
        "rows": [row("24 steps", "naive", 1), row("60 steps", "naive", 2), row("60 steps", "trained export", 3)],
        "differences": [less("60 steps", "naive", "trained export")],
    }
    ablation = {"revision": "abe", "rows": [row("all", "s3", 10, 12)], "differences": []}
    measured = made_up(
        {
            "table": {"ILI": ili, "M3": m3},
            "ablation": {"M3": ablation},
            "seconds": {"Theta": [4_731, 0.0024]},
            "overlap": [["M3", "M1", 143]],
            "left_out": {"M1": [862, 139], "Tourism": [1_311, 0]},
            "speed": {
                **{"revision": "abf", "load_after": 0.25, "series": 3_003, "requests": 4},
                "seconds": {name: [[0.002, 0.02], [0.009, 0.09], [0.003, 0.03]] for name in MEASURED},
            },
        }
    )
    expected = [
        "| M3 | naive | 10.00 | 20.000 | 40.00 | 50.0 | 60.0 |\n| M3 | Theta |",
        "## Difference in sMAPE\n\n| set | part | forecaster | less Theta |",
        "| M3 | all | naive | -0.25 [-0.50, +0.12] |",
        "## By frequency: MASE\n\n| set | part | series | naive | Theta |",
        "| M3 | monthly | 1,428 | 20.000 | 20.000 |\n| M3 | all | 1,428 | 20.000 | 20.000 |",
        "## Long sets: MSE\n\n| set | part | series | naive | trained export |",
        "| ILI | 24 steps | 1,428 | 3.000 | |\n| ILI | 60 steps | 1,428 | 6.000 | 9.000 |",
        "## Ablation: All series",
        "| M3 | s3 | 11.00 ± 1.41 |",
        "Theta 2.4 ms (4,731 series)",
        "up to a factor: M3 and M1 143.\n",
        "they share such values: 139 of 1,001 of M1, 0 of 1,311 of Tourism.\n",
        "Revisions: abc, abd, abe, abf.\n",
        "| a series of 512 values | 3.0 (2.0 to 9.0) | 30.0 (20.0 to 90.0) |",
        "| the 3,003 series of M3 over HTTP, 4 requests | 3.0 (2.0 to 9.0) |",
        "of 3 rounds in turns",
    ]
    expect_in_report(BENCHMARK, measured, expected, tmp_path)
