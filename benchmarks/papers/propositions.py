"""`python -m benchmarks.papers.propositions`: propositions 1 and 2 of S3Attention, simulated.

Proposition 1: a low-rank, incoherent matrix is recovered from few sampled rows and columns, with an error proportional
to the noise. Proposition 2: a convolution with a small random kernel smooths a sequence, with a stated bound.
"""

import argparse
import math
import statistics
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.papers.claims import mu
from model.nn.ops.fourier import fourier_convolution

Floats = NDArray[np.float64]
ROWS, COLUMNS, RANK = 512, 256, 4
NOISE = 1e-3
"""Spectral norm of the noise, relative to that of the matrix."""
EXACT = 1e-6
"""Relative error of a recovered matrix."""
SPIKES = 8
"""Rows and columns that contain one component of a coherent matrix."""
SAMPLES = (4, 8, 16, 32, 64, 128)
MODEL_SAMPLES, MODEL_RANKS, MODEL_LENGTH, MODEL_WIDTH = 8, (1, 16, 32), 4096, 64
"""s1 = s2 of Table 8, ranks of interest, and sizes of the token matrix on Text."""
LENGTHS = (256, 1024, 4096)
DELTA = 0.05
"""Probability with which the bound of proposition 2 may fail."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--draws", type=int, default=100, help="draws of each row (default: %(default)s)")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Simulate both propositions."""
    recovery = [recover(name, args.draws) for name in MATRICES]
    yield {"recovery": recovery, "smoothing": []}
    smoothing = [smooth(name, n, args.draws) for name in SEQUENCES for n in LENGTHS]
    yield {"recovery": recovery, "smoothing": smoothing}


def incoherent(generator: np.random.Generator) -> Floats:
    """Product of two Gaussian matrices."""
    return generator.standard_normal((ROWS, RANK)) @ generator.standard_normal((RANK, COLUMNS))


def coherent(generator: np.random.Generator) -> Floats:
    """The same, but one of its RANK components is in SPIKES rows and columns only."""
    left, right = generator.standard_normal((ROWS, RANK)), generator.standard_normal((RANK, COLUMNS))
    left[generator.permutation(ROWS)[SPIKES:], 0] = 0
    right[0, generator.permutation(COLUMNS)[SPIKES:]] = 0
    return left @ right


MATRICES = {"incoherent": incoherent, "coherent": coherent}


def recover(name: str, draws: int) -> Data:
    """Recover noisy matrices from samples: C U R, U the pseudo-inverse of the intersection, or that of rank RANK."""
    found: dict[str, list[list[float]]] = {"exact": [], "pinv": [], "rank": []}
    incoherence = []
    for draw in range(draws):
        generator = np.random.default_rng(draw)
        x = MATRICES[name](generator)
        noise = generator.standard_normal(x.shape)
        size = float(np.linalg.norm(x, 2))
        noise *= NOISE * size / np.linalg.norm(noise, 2)
        incoherence.append(float(mu(torch.from_numpy(x)[None], RANK)))
        rows, columns = generator.permutation(ROWS), generator.permutation(COLUMNS)
        errors: dict[str, list[float]] = {key: [] for key in found}
        for count in SAMPLES:
            chosen = rows[:count], columns[:count]
            scale = NOISE * size * math.sqrt(ROWS * COLUMNS) / count
            errors["exact"].append(relative(x, x, chosen, RANK, size))
            errors["pinv"].append(relative(x, x + noise, chosen, None, scale))
            errors["rank"].append(relative(x, x + noise, chosen, RANK, scale))
        for key, values in errors.items():
            found[key].append(values)
    return {"matrix": name, "mu": incoherence, **found}


def relative(x: Floats, noisy: Floats, chosen: tuple[NDArray[np.int64], ...], rank: int | None, scale: float) -> float:
    """Spectral norm of x - C U R over `scale`; `rank` limits the rank of U."""
    rows, columns = chosen
    u, s, v = np.linalg.svd(noisy[np.ix_(rows, columns)])
    kept = len(s) if rank is None else min(rank, len(s))
    inverse = v[:kept].T / s[:kept] @ u[:, :kept].T
    return float(np.linalg.norm(x - noisy[:, columns] @ inverse @ noisy[rows], 2) / scale)


def wave(n: int, generator: np.random.Generator) -> Floats:
    """Eight periods of a sine of a random phase."""
    return np.sin(2 * math.pi * (8 * np.arange(n) / n + generator.random()))


def walk(n: int, generator: np.random.Generator) -> Floats:
    """Random steps of -1 or 1 between -16 and 16."""
    steps = np.cumsum(generator.choice([-1.0, 1.0], n))
    folded: Floats = np.abs((steps + 16) % 64 - 32) - 16
    return folded


def alternating(n: int, generator: np.random.Generator) -> Floats:
    """1, -1, 1, -1, ..., beginning at random."""
    return float(generator.choice([-1.0, 1.0])) * np.where(np.arange(n) % 2, -1.0, 1.0)


SEQUENCES = {"sine": wave, "random walk": walk, "alternating": alternating}


def smooth(name: str, n: int, draws: int) -> Data:
    """Largest step after the convolution: over the stated bound, and over that before, also with the layer's start."""
    over_bound, over_input, over_layer = [], [], []
    for draw in range(draws):
        generator = np.random.default_rng(draw)
        x = SEQUENCES[name](n, generator)
        kernel = generator.standard_normal(n) / n  # sigma = 1
        f = np.fft.irfft(np.fft.rfft(x, 2 * n) * np.fft.rfft(kernel, 2 * n), 2 * n)[:n]
        largest, before = np.abs(np.diff(f)).max(), np.abs(np.diff(x)).max()
        over_bound.append(float(largest / bound(np.abs(x).max(), before, n)))
        over_input.append(float(largest / before))
        start = torch.from_numpy(generator.standard_normal((n // 2 + 1, 1, 2)) / math.sqrt(MODEL_WIDTH))
        layer = fourier_convolution(torch.from_numpy(x)[None, :, None], start, n)[0, :, 0].numpy()
        over_layer.append(float(np.abs(np.diff(layer)).max() / before))
    return {"sequence": name, "n": n, "over_bound": over_bound, "over_input": over_input, "over_layer": over_layer}


def bound(a: float, b: float, n: int) -> float:
    """Bound of proposition 2 for sigma = 1: values up to a, steps up to b."""
    return b * math.sqrt(math.log(2 * n / DELTA) / (2 * n)) + a * math.sqrt(math.log(2 / DELTA) / (2 * n**2))


def report(record: Record) -> str:
    """Report with one section per proposition."""
    draws = record.settings["draws"]
    return "\n".join(
        [
            f"{draws} draws of each row.",
            "\n## Proposition 1: recovery from sampled rows and columns\n",
            f"Matrices of {ROWS} x {COLUMNS} and rank {RANK}; s rows and s columns are sampled. A coherent matrix "
            f"has one of its {RANK} components in {SPIKES} rows and columns only. Recovered: share of draws with a "
            f"relative error below {EXACT:g}, without noise. Error with noise E, {NOISE:g} of the matrix: spectral "
            "norm of X - C U R over |E| sqrt(n d) / s, which the proposition bounds by a constant; median (largest). "
            f"U is the pseudo-inverse of the intersection, as in the paper, or that of rank {RANK}. The proposition "
            "asks for s of about mu r log n.\n",
            table(["", "mu r log n", *(f"s = {count}" for count in SAMPLES)], recovery_rows(record.data["recovery"])),
            f"On Text, with {MODEL_LENGTH:,} tokens of width {MODEL_WIDTH} and mu = 1, the least possible, mu r log "
            f"n is {sizes()}. The model samples {MODEL_SAMPLES} rows, and {MODEL_SAMPLES} columns of each head.\n",
            "## Proposition 2: smoothing by a random kernel\n",
            "Largest step |f(t) - f(t - 1)|, over the stated bound and over the largest step of the input, mean ± "
            f"standard deviation. Fails: share of draws above the bound, which allows {DELTA:.0%}, and above twice the "
            "bound. The kernel has deviation 1/n (sigma = 1). Layer: the circular convolution with L of deviation "
            f"1/sqrt({MODEL_WIDTH}), as the model is initialised.\n",
            table(
                [
                    "sequence",
                    "n",
                    "over the bound",
                    "fails, %",
                    "twice fails, %",
                    "over the input",
                    "layer, over the input",
                ],
                smoothing_rows(record.data["smoothing"]),
            ),
        ]
    )


def sizes() -> str:
    """Samples that the proposition asks for, by rank."""
    return ", ".join(f"{rank * math.log(MODEL_LENGTH):.0f} for rank {rank}" for rank in MODEL_RANKS)


def recovery_rows(found: list[Data]) -> list[list[str]]:
    """Share of recovered matrices; errors of the first kind of matrix, as an error means little without recovery."""
    rows = []
    asked = [f"{statistics.mean(of['mu']) * RANK * math.log(ROWS):.0f}" for of in found]
    for of, samples in zip(found, asked, strict=True):
        shares = (np.array(of["exact"]) < EXACT).mean(axis=0)
        rows.append([f"{of['matrix']}: recovered", samples, *(f"{share:.0%}" for share in shares)])
    first = found[0]
    for key, name in (("pinv", "pseudo-inverse"), ("rank", f"of rank {RANK}")):
        values = np.quantile(first[key], (0.5, 1), axis=0).T
        rows.append([f"{first['matrix']}: error, {name}", asked[0], *(f"{m:.1f} ({q:.1f})" for m, q in values)])
    return rows


def smoothing_rows(found: list[Data]) -> list[list[str]]:
    """One row for each sequence and length."""
    return [
        [
            of["sequence"],
            f"{of['n']:,}",
            mean_and_deviation(of["over_bound"], ".2f"),
            *(f"{100 * statistics.mean(value > limit for value in of['over_bound']):.1f}" for limit in (1, 2)),
            mean_and_deviation(of["over_input"], ".3f"),
            mean_and_deviation(of["over_layer"], ".2f"),
        ]
        for of in found
    ]


BENCHMARK = Benchmark(
    program="benchmarks.papers.propositions",
    title="Propositions of S3Attention",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
