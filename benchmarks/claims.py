"""`python -m benchmarks.claims`: what the papers claim of their attentions, looked at on reviews as bytes.

Skyformer: its error falls with the landmarks, and plain Nystrom on the matrix that is not positive does worse (Figure
1). Kernelized attention: better conditioned than softmax attention (section 4.1). DBA: a random projection of the width
keeps the products, up to a small part of their norm (section 3.2, eq. (9)). S3Attention: its Fourier
convolution lowers the incoherence of the token matrix (Table 14). Each on a new model and on one trained for 100 steps.
Writes `claims.md` and `.png` into `benchmarks/results/`.
"""

import argparse
import math
import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn
from tqdm import tqdm

from artifact.documents import pad_rows
from benchmarks.inference_paths import cpu_name
from benchmarks.served import RESULTS, table
from model.config.attentions import SkyformerOptions
from model.config.recipes import RECIPES, load_recipe
from model.config.run import ClassificationRun
from model.nn.attention.base import HeadedAttention
from model.nn.attention.dba import DynamicBilinearAttention, compress
from model.nn.attention.kernelized import gaussian_kernel
from model.nn.attention.s3 import Smoother
from model.nn.attention.skyformer import solve_regularised
from model.nn.classifier import ByteClassifier
from model.tasks.classification import Classification
from model.training.provenance import git_revision

matplotlib.use("Agg")
from matplotlib import pyplot  # the backend must be chosen first

NAME = "claims"
STEPS = 100
"""Of the short training, as in the S3Attention paper's Table 14."""
LANDMARKS = (16, 32, 64, 128, 256)
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64)
DRAWS = 5
"""Random landmarks and projections for each document."""
CONDITION_LENGTH, ERROR_LENGTH = 128, 512
"""Tokens whose matrices are decomposed."""


@dataclass(frozen=True)
class Models:
    """A classifier before and after the short training, and documents it has not seen."""

    task: Classification
    new: ByteClassifier
    trained: ByteClassifier
    documents: Tensor
    lengths: Tensor

    def both(self) -> Iterator[tuple[str, ByteClassifier]]:
        """By name."""
        yield "new", self.new
        yield f"{STEPS} steps", self.trained


def main() -> None:
    """Look at each claim, print the tables, write them and the chart."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.claims", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=16, help="looked at (default: %(default)s)")
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    args = parser.parse_args()
    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4))
    parts = [
        ("Skyformer's error", skyformer_error(args, axes[0])),
        ("Condition of the attention matrix", condition(args)),
        ("DBA's projection", projection_error(args, axes[1])),
        ("Incoherence of the token matrix", incoherence(args, axes[2])),
    ]
    head = [
        "# What the papers claim, looked at",
        "",
        f"Reviews that fill the model (512 bytes), n = {args.documents}; models: recipe `lra-text`, new and after "
        f"{STEPS} steps, one seed. Matrices of the first block, first head.",
        "",
        f"- {cpu_name()}; PyTorch {torch.__version__}; revision {git_revision()}",
        f"- command: `python -m benchmarks.claims --documents {args.documents}`",
    ]
    report = "\n".join([*head, *(f"\n## {title}\n\n{text}" for title, text in parts)])
    print(report)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{NAME}.md").write_text(report)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{NAME}.png", dpi=110)


def models(args: argparse.Namespace, attention: str, *overrides: str) -> Models:
    """Train for STEPS steps."""
    recipe = load_recipe(RECIPES / "lra-text.toml", [f"model.encoder.attention={attention}", *overrides])
    assert isinstance(recipe, ClassificationRun)
    task = Classification(recipe)
    task.load(args.data_dir)
    torch.manual_seed(0)
    new, trained = task.build(), task.build()
    assert isinstance(new, ByteClassifier)
    assert isinstance(trained, ByteClassifier)
    task.initialise(new, torch.device("cpu"))
    trained.load_state_dict(new.state_dict())
    optimiser = torch.optim.AdamW(trained.train().parameters(), recipe.training.learning_rate)
    batches = task.batches(0)
    for _ in tqdm(range(STEPS), attention, unit="step"):
        loss = task.loss(trained, next(batches))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained.parameters(), recipe.training.max_grad_norm)
        optimiser.step()
    long = [text[: task.length] for text in task.data.validation.texts if len(text) >= task.length]
    documents, lengths = pad_rows(long[: args.documents], task.length)
    return Models(task, new.eval(), trained.eval(), torch.from_numpy(documents), torch.from_numpy(lengths))


def inputs_of(model: ByteClassifier, kind: type[nn.Module], found: Models) -> Tensor:
    """What goes into the first layer of a kind: (B, N, C)."""
    layer = next(module for module in model.modules() if isinstance(module, kind))
    seen: list[Tensor] = []
    with layer.register_forward_pre_hook(lambda _, given: seen.append(given[0])), torch.inference_mode():
        model(found.documents, found.lengths)
    return seen[0]


def queries_and_keys(model: ByteClassifier, found: Models, tokens: int) -> tuple[Tensor, Tensor]:
    """Of the first head in float64: (B, tokens, D)."""
    x = inputs_of(model, HeadedAttention, found)
    layer = next(module for module in model.modules() if isinstance(module, HeadedAttention))
    with torch.inference_mode():
        q, k, _ = layer.qkv(x).double().unflatten(-1, (3, layer.num_heads, -1)).unbind(2)
    return q[:, :tokens, 0], k[:, :tokens, 0]


def spectral(matrix: Tensor) -> Tensor:
    """Largest singular value of each (B, N, M)."""
    return torch.linalg.matrix_norm(matrix, ord=2)  # type: ignore[no-any-return]


def _lifted(q: Tensor, k: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """kappa(Q, L), kappa(L, L), kappa(L, K) for rows L of [Q; K]."""
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


def skyformer_error(args: argparse.Namespace, axis: Axes) -> str:
    """Spectral error of approximations of kernelized attention's matrix."""
    found, rows = models(args, "kernelized"), []
    for state, model in found.both():
        q, k = queries_and_keys(model, found, ERROR_LENGTH)
        matrix = gaussian_kernel(q, k)
        for name, approximate in tqdm(APPROXIMATIONS.items(), f"error, {state}", leave=False):
            medians = []
            for count in LANDMARKS:
                draws = 1 if approximate is _best else DRAWS
                generators = [torch.Generator().manual_seed(draw) for draw in range(draws)]
                errors = [spectral(matrix - approximate(q, k, count, g)) / spectral(matrix) for g in generators]
                medians.append(float(torch.stack(errors).quantile(0.5)))
            rows.append([f"{state}: {name}", *(f"{error:.1e}" for error in medians)])
            axis.loglog(LANDMARKS, medians, ("--" if state == "new" else "-") + "o", label=f"{state}: {name}")
    axis.set(xlabel="landmarks", title="Skyformer: relative spectral error")
    axis.set_xticks(LANDMARKS, map(str, LANDMARKS))
    axis.minorticks_off()
    axis.legend(fontsize=6)
    text = f"Spectral norm of C - approximation over that of C, {ERROR_LENGTH} tokens, median over documents and "
    text += f"{DRAWS} draws."
    return f"{text}\n\n{table(['landmarks', *map(str, LANDMARKS)], rows)}"


def condition(args: argparse.Namespace) -> str:
    """Ratios of singular values of three attention matrices."""
    rows = []
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
                rows.append([f"{attention} model, {state}: {name}", *(f"{float(r.quantile(0.5)):.1e}" for r in ratios)])
    text = f"Largest singular value over the 8th, the 32nd and the last, {CONDITION_LENGTH} tokens, float64, median."
    return f"{text}\n\n{table(['', '8th', '32nd', 'last'], rows)}"


def projection_error(args: argparse.Namespace, axis: Axes) -> str:
    """Relative error of products of compressed queries and keys after a random projection, by two measures."""
    found, rows = models(args, "dba", "model.encoder.num_heads=1"), []
    logarithms = [math.log(width) for width in WIDTHS]
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
            medians = relative.quantile(0.5, dim=1).tolist()
            slope = statistics.linear_regression(logarithms, [math.log(median) for median in medians]).slope
            rows.append([f"{state}, over the norm of {name}", *(f"{median:.2f}" for median in medians), f"{slope:.2f}"])
            axis.loglog(WIDTHS, medians, "o-", label=f"{state}, over the norm of {name}")
    axis.loglog(WIDTHS, [width**-0.5 for width in WIDTHS], ":k", label="1 / sqrt(d_in)")
    axis.set(xlabel="d_in", title="DBA: error of the random projection")
    axis.set_xticks(WIDTHS, map(str, WIDTHS))
    axis.minorticks_off()
    axis.legend(fontsize=7)
    text = "Norm of Q R R^T K^T - Q K^T over that of Q K^T, which the paper bounds, and over those of Q and K "
    text += f"(Frobenius), Q and K of 16 x 64; median over documents and {DRAWS} draws. The paper's condition, d_in >= "
    text += f"10 log(d_p) / (e^2 - e^3), asks for {10 * math.log(16) / (4 / 27):.0f} at least, whatever the error e."
    return f"{text}\n\n{table(['d_in', *map(str, WIDTHS), 'slope'], rows)}"


def mu(matrix: Tensor, rank: int) -> Tensor:
    """Smallest mu for which the best rank-r part of each matrix is mu-incoherent: (B, N, C) -> (B,).

    Reference:  Wang et al. 2024, arXiv:2408.08567, Definition 1.
    """
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    left = u[:, :, :rank].square().sum(2).amax(1) * matrix.shape[1] / rank
    right = v[:, :rank].square().sum(1).amax(1) * matrix.shape[2] / rank
    return torch.maximum(left, right)


def incoherence(args: argparse.Namespace, axis: Axes) -> str:
    """Mu before and after the Fourier convolution of the first block."""
    found, rows = models(args, "s3"), []
    for state, model in found.both():
        smoother = next(module for module in model.modules() if isinstance(module, Smoother))
        x = inputs_of(model, Smoother, found)
        with torch.inference_mode():
            smooth = smoother.convolve(x)
        for rank in (32, 16):
            before, after = mu(x.double(), rank), mu(smooth.double(), rank)
            cells = [f"{float(m.mean()):.2f} ± {float(m.std()):.2f}" for m in (before, after)]
            rows.append([f"{state}, rank {rank}", *cells])
            axis.plot(before, after, "o", alpha=0.6, label=f"{state}, rank {rank}")
    published = [["paper, rank 32", "2.75 ± 0.03", "2.05 ± 0.01"], ["paper, rank 16", "3.98 ± 0.05", "3.23 ± 0.04"]]
    axis.axline((0, 0), slope=1, color="k", ls=":")
    axis.set(xlabel="before", ylabel="after", title="S3Attention: incoherence, Fourier convolution")
    axis.legend(fontsize=7)
    text = "Mu of each document's tokens, mean ± standard deviation over documents (the paper's: standard errors)."
    return f"{text}\n\n{table(['', 'before', 'after'], [*rows, *published])}"


if __name__ == "__main__":
    main()
