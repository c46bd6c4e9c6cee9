"""`python -m benchmarks.papers.claims`: checks claims of the papers on movie reviews, read as bytes.

Skyformer: its error decreases with the number of landmarks; plain Nystrom on the non-PSD matrix is worse (Figure 1).
Kernelized attention: better conditioned than softmax attention (section 4.1). DBA: a random projection of the width
preserves the products up to a small relative error (section 3.2, eq. (9)). S3Attention: its Fourier convolution lowers
the incoherence of the token matrix (Table 14). Each claim is checked on an untrained model and after 100 steps.
"""

import argparse
import copy
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from torch import Tensor, nn
from tqdm import tqdm

from artifact.documents import pad_rows
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, table
from model.config.attentions import SkyformerOptions
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.nn.attention.base import HeadedAttention
from model.nn.attention.dba import DynamicBilinearAttention, compress
from model.nn.attention.kernelized import gaussian_kernel
from model.nn.attention.s3 import Smoother
from model.nn.attention.skyformer import solve_regularised
from model.nn.classifier import PaperClassifier
from model.tasks.classification import ClassificationTask

STEPS = 100
"""Training steps of the trained model, as in the S3Attention paper's Table 14."""
LANDMARKS = (16, 32, 64, 128, 256)
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64)
DRAWS = 5
"""Random draws of landmarks and projections per document."""
CONDITION_LENGTH, ERROR_LENGTH = 128, 512
"""Number of tokens of the decomposed matrices."""
RANKS = (32, 16)
PUBLISHED_INCOHERENCE = {
    "paper, rank 32": ("2.75 ± 0.03", "2.05 ± 0.01"),
    "paper, rank 16": ("3.98 ± 0.05", "3.23 ± 0.04"),
}
"""Before and after the convolution (S3Attention paper, Table 14)."""


@dataclass(frozen=True)
class Models:
    """A classifier before and after training, and held-out documents."""

    new: PaperClassifier
    trained: PaperClassifier
    documents: Tensor
    lengths: Tensor

    def both(self) -> Iterator[tuple[str, PaperClassifier]]:
        """Yield name and model of each state."""
        yield "new", self.new
        yield f"{STEPS} steps", self.trained


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--documents", type=int, default=16, help="number of documents (default: %(default)s)")
    add_data_dir(parser)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Check each claim."""
    yield {
        "skyformer_error": skyformer_error(args),
        "condition": condition(args),
        "projection_error": projection_error(args),
        "incoherence": incoherence(args),
    }


def models(args: argparse.Namespace, attention: str, *overrides: str) -> Models:
    """Create a model of the recipe `lra-text` and a copy of it, and train the copy for STEPS steps."""
    recipe = load_recipe(find_recipe("lra-text"), [f"model.encoder.attention={attention}", *overrides])
    assert isinstance(recipe, ClassificationRun)
    task, settings = ClassificationTask(recipe), recipe.training
    data = task.load(args.data_dir)
    learner = task.with_facts_of(data).learner(data)
    torch.manual_seed(recipe.seed)
    new = learner.build()
    assert isinstance(new, PaperClassifier)
    learner.initialise(new, torch.device("cpu"))
    trained = copy.deepcopy(new)
    optimiser = torch.optim.AdamW(trained.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    batches = (batch for epoch in range(STEPS) for batch in learner.batches(epoch))
    for _ in tqdm(range(STEPS), attention, unit="step"):
        loss = learner.loss(trained.train(), next(batches))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained.parameters(), settings.max_grad_norm)
        optimiser.step()
    length = learner.task.length
    long = [text[:length] for text in data.validation.texts if len(text) >= length]
    documents, lengths = map(torch.from_numpy, pad_rows(long[: args.documents], length))
    return Models(new.eval(), trained.eval(), documents, lengths)


def inputs_of(model: PaperClassifier, kind: type[nn.Module], found: Models) -> Tensor:
    """Input (B, N, C) of the first layer of type `kind`."""
    layer = next(module for module in model.modules() if isinstance(module, kind))
    seen: list[Tensor] = []
    with layer.register_forward_pre_hook(lambda _, given: seen.append(given[0])), torch.inference_mode():
        model(found.documents, found.lengths)
    return seen[0]


def queries_and_keys(model: PaperClassifier, found: Models, tokens: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of the first head in float64: (B, tokens, D)."""
    x = inputs_of(model, HeadedAttention, found)
    layer = next(module for module in model.modules() if isinstance(module, HeadedAttention))
    with torch.inference_mode():
        q, k, _ = layer.qkv(x).double().unflatten(-1, (3, layer.num_heads, -1)).unbind(2)
    return q[:, :tokens, 0], k[:, :tokens, 0]


def spectral(matrix: Tensor) -> Tensor:
    """Spectral norm of each matrix (B, N, M)."""
    return torch.linalg.matrix_norm(matrix, ord=2)  # type: ignore[no-any-return]


def _lifted(q: Tensor, k: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian kernels of (Q, L), (L, L) and (L, K), with the landmarks L: the `chosen` rows of [Q; K]."""
    marks = torch.cat((q, k), dim=1)[:, chosen]
    return gaussian_kernel(q, marks), gaussian_kernel(marks, marks), gaussian_kernel(marks, k)


def _exact(q: Tensor, k: Tensor, count: int, generator: torch.Generator) -> Tensor:
    left, middle, right = _lifted(q, k, torch.randperm(2 * q.shape[1], generator=generator)[:count])
    return left @ torch.linalg.pinv(middle, rtol=1e-10, hermitian=True) @ right  # type: ignore[no-any-return]


def _as_computed(q: Tensor, k: Tensor, count: int, generator: torch.Generator) -> Tensor:
    left, middle, right = _lifted(q, k, torch.randperm(2 * q.shape[1], generator=generator)[:count])
    options = SkyformerOptions()
    return left @ solve_regularised(middle, right, options.gamma, options.num_steps)


def _plain(q: Tensor, k: Tensor, count: int, generator: torch.Generator) -> Tensor:
    matrix, chosen = gaussian_kernel(q, k), torch.randperm(q.shape[1], generator=generator)[:count]
    inverse = torch.linalg.pinv(matrix[:, chosen][:, :, chosen], rtol=1e-10)
    return matrix[:, :, chosen] @ inverse @ matrix[:, chosen]  # type: ignore[no-any-return]


def _best(q: Tensor, k: Tensor, count: int, generator: torch.Generator) -> Tensor:
    del generator
    u, s, v = torch.linalg.svd(gaussian_kernel(q, k))
    return (u[..., :count] * s[:, None, :count]) @ v[:, :count]  # type: ignore[no-any-return]


APPROXIMATIONS: dict[str, Callable[[Tensor, Tensor, int, torch.Generator], Tensor]] = {
    "Skyformer, exact inverse": _exact,
    "Skyformer, gamma 0.01, 6 steps": _as_computed,
    "plain Nystrom": _plain,
    "best of that rank (SVD)": _best,
}


def skyformer_error(args: argparse.Namespace) -> Data:
    """Relative spectral error of approximations of kernelized attention: name -> median for each of LANDMARKS."""
    found, errors = models(args, "kernelized"), {}
    for state, model in found.both():
        q, k = queries_and_keys(model, found, ERROR_LENGTH)
        matrix = gaussian_kernel(q, k)
        for name, approximate in tqdm(APPROXIMATIONS.items(), f"error, {state}", leave=False):
            medians = []
            for count in LANDMARKS:
                draws = 1 if approximate is _best else DRAWS
                generators = [torch.Generator().manual_seed(draw) for draw in range(draws)]
                of = [spectral(matrix - approximate(q, k, count, g)) / spectral(matrix) for g in generators]
                medians.append(float(torch.stack(of).quantile(0.5)))
            errors[f"{state}: {name}"] = medians
    return errors


def condition(args: argparse.Namespace) -> Data:
    """Median ratios of the largest to the 8th, 32nd and last singular value, for three attention matrices."""
    conditions = {}
    for attention in ("softmax", "kernelized"):
        found = models(args, attention)
        for state, model in found.both():
            q, k = queries_and_keys(model, found, CONDITION_LENGTH)
            scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[2])
            for name, matrix in (
                ("kernelized", gaussian_kernel(q, k)),
                ("exp(Q K^T / sqrt(D))", torch.exp(scores)),
                ("softmax", torch.softmax(scores, dim=-1)),
            ):
                values = torch.linalg.svdvals(matrix)
                ratios = [values[:, 0] / values[:, i].clamp(min=1e-300) for i in (7, 31, -1)]
                conditions[f"{attention} model, {state}: {name}"] = [float(r.quantile(0.5)) for r in ratios]
    return conditions


def projection_error(args: argparse.Namespace) -> Data:
    """Relative error of the products of compressed queries and keys after a random projection, in two norms.

    Returns: name -> one median for each of WIDTHS.
    """
    found, medians = models(args, "dba", "model.encoder.num_heads=1"), {}
    for state, model in found.both():
        layer = next(module for module in model.modules() if isinstance(module, DynamicBilinearAttention))
        x = inputs_of(model, DynamicBilinearAttention, found)
        with torch.inference_mode():
            q, k, _ = layer.qkv(x).unflatten(-1, (3, 1, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            q, k = compress(layer.latent, q, None).double(), compress(layer.latent, k, None).double()
        product = q @ k.transpose(2, 3)
        measures = {
            "Q K^T, as eq. (9)": product.norm(dim=(2, 3)),
            "Q times that of K": q.norm(dim=(2, 3)) * k.norm(dim=(2, 3)),
        }
        errors = []
        for width in WIDTHS:
            for draw in range(DRAWS):
                shape, generator = (q.shape[3], width), torch.Generator().manual_seed(draw)
                r = torch.randn(shape, dtype=torch.float64, generator=generator) / math.sqrt(width)
                errors.append(((q @ r) @ (k @ r).transpose(2, 3) - product).norm(dim=(2, 3)))
        for name, norm in measures.items():
            relative = (torch.stack(errors) / norm).reshape(len(WIDTHS), -1)
            medians[f"{state}, over the norm of {name}"] = relative.quantile(0.5, dim=1).tolist()
    return medians


def mu(matrix: Tensor, rank: int) -> Tensor:
    """Smallest mu for which each matrix's best approximation of this rank is mu-incoherent: (B, N, C) -> (B,).

    Reference:  Wang et al. 2024, arXiv:2408.08567, Definition 1.
    """
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    left = u[:, :, :rank].square().sum(2).amax(1) * matrix.shape[1] / rank
    right = v[:, :rank].square().sum(1).amax(1) * matrix.shape[2] / rank
    return torch.maximum(left, right)


def incoherence(args: argparse.Namespace) -> Data:
    """Incoherence mu of each document's tokens before and after the Fourier convolution of the first block."""
    found, values = models(args, "s3"), {}
    for state, model in found.both():
        smoother = next(module for module in model.modules() if isinstance(module, Smoother))
        x = inputs_of(model, Smoother, found)
        with torch.inference_mode():
            smooth = smoother.convolve(x)
        for rank in RANKS:
            values[f"{state}, rank {rank}"] = [mu(x.double(), rank).tolist(), mu(smooth.double(), rank).tolist()]
    return values


def report(record: Record) -> str:
    """Report with one table per claim."""
    data = record.data
    return "\n".join(
        [
            f"Measured on {record.settings['documents']} reviews of at least 512 bytes. Models: recipe `lra-text`, "
            f"untrained (new) and after {STEPS} steps, one seed. Matrices of the first head of the first block.",
            "",
            "## Skyformer's error",
            "",
            "Spectral norm of (C - approximation), relative to that of the kernelized attention matrix C, "
            f"{ERROR_LENGTH} tokens, median over documents and {DRAWS} draws.",
            "",
            table(["landmarks", *map(str, LANDMARKS)], spelled(data["skyformer_error"], ".1e")),
            "## Condition of the attention matrix",
            "",
            "Ratio of the largest singular value to the 8th, the 32nd and the last, "
            f"{CONDITION_LENGTH} tokens, float64, median.",
            "",
            table(["", "8th", "32nd", "last"], spelled(data["condition"], ".1e")),
            "## DBA's projection",
            "",
            "Frobenius norm of Q R R^T K^T - Q K^T, relative to the norm of Q K^T (the paper bounds this ratio) and to "
            "the product of the norms of Q and K. Q and K are d_p x 64 with d_p = 16; R is a random projection to d_in "
            f"columns; median over documents and {DRAWS} draws. The paper's condition for an error e, d_in >= 10 "
            f"log(d_p) / (e^2 - e^3), requires at least {10 * math.log(16) / (4 / 27):.0f} for every e.",
            "",
            table(
                ["d_in", *map(str, WIDTHS), "slope"],
                [
                    [*row, f"{slope(data['projection_error'][row[0]]):.2f}"]
                    for row in spelled(data["projection_error"], ".2f")
                ],
            ),
            "## Incoherence of the token matrix",
            "",
            "Mu of each document's tokens, mean ± standard deviation over documents (in the paper: standard error).",
            "",
            table(
                ["", "before", "after"],
                [
                    *(
                        [name, *(mean_and_deviation(v, ".2f") for v in both)]
                        for name, both in data["incoherence"].items()
                    ),
                    *([name, *both] for name, both in PUBLISHED_INCOHERENCE.items()),
                ],
            ),
        ]
    )


def spelled(found: Mapping[str, list[float]], form: str) -> list[list[str]]:
    """Rows of a table: name and values."""
    return [[name, *(format(value, form) for value in values)] for name, values in found.items()]


def slope(medians: list[float]) -> float:
    """Slope d log(error) / d log(width)."""
    logarithms = [[math.log(value) for value in values] for values in (WIDTHS, medians)]
    return statistics.linear_regression(*logarithms).slope


def draw(record: Record, path: Path) -> None:
    """Charts of error against landmarks and width, and of incoherence after against before."""
    figure, (left, middle, right) = chart.figure((14, 4), 3)
    for name, medians in record.data["skyformer_error"].items():
        left.loglog(LANDMARKS, medians, ("--" if name.startswith("new") else "-") + "o", label=name)
    label_ticks(left, LANDMARKS)
    left.set(xlabel="landmarks", title="Skyformer: relative spectral error")
    left.legend(fontsize=6)
    for name, medians in record.data["projection_error"].items():
        middle.loglog(WIDTHS, medians, "o-", label=name)
    middle.loglog(WIDTHS, [width**-0.5 for width in WIDTHS], ":k", label="1 / sqrt(d_in)")
    label_ticks(middle, WIDTHS)
    middle.set(xlabel="d_in", title="DBA: error of the random projection")
    middle.legend(fontsize=7)
    for name, (before, after) in record.data["incoherence"].items():
        right.plot(before, after, "o", alpha=0.6, label=name)
    right.axline((0, 0), slope=1, color="k", ls=":")
    right.set(xlabel="before", ylabel="after", title="S3Attention: incoherence, Fourier convolution")
    right.legend(fontsize=7)
    chart.save(figure, path)


def label_ticks(axes: Axes, values: tuple[int, ...]) -> None:
    """Label only these values of the horizontal axis."""
    axes.set_xticks(values, map(str, values))
    axes.minorticks_off()


BENCHMARK = Benchmark.of("Claims of the papers", measure, report, draw, options, ("torch", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
