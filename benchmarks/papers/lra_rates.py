"""`python -m benchmarks.papers.lra_rates`: learning rates of length-aware S3Attention on Text.

Validation chooses that of `benchmarks.papers.lra`, scale gpu, whose other settings the runs have. Each result is
recorded when its run ends; a restarted benchmark continues.
"""

import statistics
from collections.abc import Sequence

from benchmarks.lib.record import Data
from benchmarks.lib.table import table
from benchmarks.papers.lra import GPU, TASKS, TOY
from benchmarks.papers.study import Study

RATES = ("3e-5", "1e-4", "3e-4")
"""The published rate is 1e-4."""


def by_validation(study: Study, runs: Sequence[Data]) -> str:
    """Table of the best validation accuracy of each rate."""
    rows = []
    for row in study.rows:
        found = [100 * run["validation"] for run in runs if run["row"] == row and run["scale"] == "gpu"]
        rows.append([row, f"{statistics.mean(found):.1f} ({len(found)})" if found else ""])
    return f"## Best validation accuracy, %\n\n{table(['', 'text'], rows)}"


STUDY = Study(
    name="lra_rates",
    title="Learning rates of length-aware S3Attention",
    text="The Text task of Long Range Arena as in `lra`, scale gpu. Validation chooses the rate of its row `s3`.",
    columns={"text": TASKS["text"]},
    rows={rate: (f"training.learning_rate={rate}",) for rate in RATES},
    scales={"gpu": GPU, "toy": TOY},
    appendix=by_validation,
)
BENCHMARK = STUDY.benchmark()

if __name__ == "__main__":
    BENCHMARK.main()
