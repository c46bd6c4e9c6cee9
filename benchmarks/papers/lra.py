"""`python -m benchmarks.papers.lra`: the tasks of Long Range Arena with every attention, same budget, data and seeds.

Each run is recorded when it is done; started again, the program goes on. `--scale gpu` takes the papers' lengths and
longer runs.
"""

from collections.abc import Sequence

from benchmarks.lib.record import Data
from benchmarks.lib.table import table
from benchmarks.papers.study import Study
from model.nn.attention import ATTENTIONS

PAPER_MODE = "s3, as published"
ROWS = {
    **{name: (f"model.encoder.attention={name}",) for name in sorted(ATTENTIONS)},
    PAPER_MODE: ("model.encoder.attention=s3", "model.encoder.mode=paper"),
}
"""Every attention with the same mask, and S3Attention with padding as an ordinary input."""
TASKS = {task: f"lra-{task}" for task in ("text", "listops", "image", "retrieval")}
LONG = ("training.epochs=20", "training.examples_per_epoch=16000", "training.learning_rate=5e-4")
LANDMARKS = ("model.encoder.options.num_landmarks=64",)
CPU = {"nystrom": LANDMARKS, "skyformer": LANDMARKS}
"""Half of the papers' landmarks make a run affordable; sequences are shorter than theirs, too, Image's apart."""
GPU = {
    "text": (*LONG, "model.encoder.seq_len=4096"),
    "listops": (*LONG, "data.name=listops", "model.encoder.seq_len=2048"),
    "image": LONG,
    "retrieval": (*LONG, "data.max_bytes=4000", "model.encoder.seq_len=4000"),
}
"""The papers' lengths."""
PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "S3Attention paper, Table 1": {
        "softmax": {"listops": 36.37, "text": 64.27, "retrieval": 57.46, "image": 42.44},
        "linformer": {"listops": 35.70, "text": 53.94, "retrieval": 52.27, "image": 38.56},
        "performer": {"listops": 18.01, "text": 65.40, "retrieval": 53.82, "image": 42.77},
        "nystrom": {"listops": 37.34, "text": 65.75, "retrieval": 81.29, "image": 41.58},
        PAPER_MODE: {"listops": 38.30, "text": 69.27, "retrieval": 83.26, "image": 53.90},
    },
    "Skyformer paper, Table 1": {
        "softmax": {"text": 61.95, "listops": 38.37, "retrieval": 80.69, "image": 40.57},
        "kernelized": {"text": 60.22, "listops": 38.78, "retrieval": 81.77, "image": 41.29},
        "nystrom": {"text": 64.83, "listops": 38.51, "retrieval": 80.52, "image": 41.30},
        "linformer": {"text": 58.93, "listops": 37.45, "retrieval": 78.19, "image": 37.96},
        "performer": {"text": 64.19, "listops": 38.02, "retrieval": 80.04, "image": 41.43},
        "skyformer": {"text": 64.70, "listops": 38.69, "retrieval": 82.06, "image": 40.77},
    },
    "DBA paper, Table 2": {
        "softmax": {"listops": 36.37, "text": 64.27, "retrieval": 78.38, "image": 42.44},
        "performer": {"listops": 18.01, "text": 65.40, "retrieval": 75.43, "image": 42.77},
        "linformer": {"listops": 35.70, "text": 53.94, "retrieval": 77.83, "image": 38.56},
        "nystrom": {"listops": 37.15, "text": 65.52, "retrieval": 79.56, "image": 41.58},
        "dba": {"listops": 38.10, "text": 66.25, "retrieval": 80.64, "image": 46.51},
    },
}
"""Accuracy in %, at other lengths, sizes and budgets."""


def published(study: Study, runs: Sequence[Data]) -> str:
    """The papers' figures, each with its source."""
    del study, runs
    rows = [
        [f"{row}: {source}", *(f"{found[task]:.2f}" if task in found else "" for task in TASKS)]
        for row in ROWS
        for source, of in PUBLISHED.items()
        if (found := of.get(row))
    ]
    return f"## Published, at other lengths, sizes and budgets\n\n{table(['', *TASKS], rows)}"


STUDY = Study(
    name="lra",
    title="Long Range Arena, every attention",
    text="One recipe a task (`model/recipes/lra-*.toml`), of which nothing but the attention changes; at scale cpu "
    "nystrom and skyformer have 64 landmarks instead of the papers' 128 (linformer and performer keep their 128), and "
    "'s3, as published' has batches of its own: documents of all lengths together, padded to one. The learning "
    "rate, 3e-4, is the better one of 3e-4 and 5e-4 for S3Attention on validation after 400 steps (Text, one seed; "
    "0.645 and 0.610, by hand), so that it favours s3. At 1e-3, tried before, the test had been looked at: s3 50.6, "
    "softmax 57.8. Image: gray pixels from JPEG copies. Retrieval: pairs of papers rebuilt from the ACL Anthology "
    "Network. Neither is comparable with published figures, nor are runs of this length.",
    columns=TASKS,
    rows=ROWS,
    scales={"cpu": CPU, "gpu": GPU},
    appendix=published,
)
BENCHMARK = STUDY.benchmark()

if __name__ == "__main__":
    BENCHMARK.main()
