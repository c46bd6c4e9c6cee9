"""`python -m benchmarks.papers.stability`: how far one training step moves the output, by attention.

Skyformer's Appendix F compares attentions by tau = |f(x, W_i) - f(x, W_{i-1})|^2 / |W_i - W_{i-1}|^2, the mean over 20
training steps, as a ratio to that of softmax attention. W are all parameters and x are fixed documents. Here f is
either the logits or the encoder's tokens.
"""

import argparse
import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.papers.claims import long_documents, prepare, steps
from model.nn.classifier import ByteClassifier

STEPS = 20
ATTENTIONS = ("softmax", "kernelized", "skyformer", "nystrom", "s3")
PUBLISHED = {"kernelized": "0.83", "skyformer": "0.81", "nystrom": "1.03"}
"""Ratios to softmax attention (Skyformer paper, Appendix F)."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--documents", type=int, default=4, help="number of documents (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    add_data_dir(parser)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train each attention with each seed, on the same batches."""
    runs, task = list[Data](), None
    for seed in range(args.seeds):
        for name in ATTENTIONS:
            task, model = prepare(args.data_dir, f"model.encoder.attention={name}", f"seed={seed}", like=task)
            documents, lengths = long_documents(task, args.documents)
            before, found = state(model, documents, lengths), list[list[float]]()
            for _ in steps(task, model, STEPS, f"{name}, seed {seed}"):
                after = state(model, documents, lengths)
                logits, tokens, weights = (float((b - a).square().sum()) for a, b in zip(before, after, strict=True))
                found.append([logits / weights, tokens / weights])
                before = after
            logits, tokens = (statistics.mean(values) for values in zip(*found, strict=True))
            count = sum(parameter.numel() for parameter in model.parameters())
            runs.append({"attention": name, "seed": seed, "logits": logits, "tokens": tokens, "parameters": count})
            yield {"runs": runs}


@torch.inference_mode()
def state(model: ByteClassifier, documents: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, the encoder's tokens and all parameters, in float64."""
    model.eval()
    weights = torch.cat([parameter.flatten() for parameter in model.parameters()])
    return model(documents, lengths).double(), model.encoder(documents, lengths).double(), weights.double()


def report(record: Record) -> str:
    """Report with one row per attention."""
    runs, settings = record.data["runs"], record.settings
    found = {(run["attention"], run["seed"]): run for run in runs}
    seeds = [seed for seed in range(settings["seeds"]) if all((name, seed) in found for name in ATTENTIONS)]
    rows = []
    for name in ATTENTIONS:
        cells = [
            mean_and_deviation([found[name, seed][of] / found["softmax", seed][of] for seed in seeds], ".2f")
            for of in ("logits", "tokens")
        ]
        rows.append([name, *cells, PUBLISHED.get(name, ""), f"{found[name, 0]['parameters']:,}"])
    return (
        f"Recipe `lra-text` (512 bytes, batches of 16, AdamW at 3e-4 without warm-up), the first {STEPS} steps of a "
        f"new model; f on {settings['documents']} reviews of at least 512 bytes. Ratio to softmax attention of the "
        f"same seed, mean ± standard deviation over {len(seeds)} seeds. Below 1 is more stable. AdamW moves every "
        "parameter about equally far, so that |W_i - W_{i-1}|^2 grows with the number of parameters.\n\n"
        + table(["attention", "f = logits", "f = tokens", "published", "parameters"], rows)
    )


BENCHMARK = Benchmark(
    program="benchmarks.papers.stability",
    title="Stability of training steps",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
