"""Attentions by the names that recipes give them, and `[model.encoder.options]` of each.

The layers are in `model.nn.attention`, in files of the same names.
"""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator

from model.config.schema import Section, allowed

LARGEST_COUNT = 4096
"""Of landmarks, projected rows, features and the like: beyond it they cost more than the tokens they stand for."""
LARGEST_FACTOR = 1024
"""Of `seq_len`: for the Fourier transform, graphs hold two matrices of twice as many rows and columns."""
MOST_STEPS = 16
"""Of an iterative inverse: rounding errors grow as small singular values do, by 13/4 a step, to 2e-8 in float64."""

RowCount = Annotated[int, allowed(lambda value: 1 <= value <= LARGEST_COUNT, f"from 1 to {LARGEST_COUNT}")]
StepCount = Annotated[int, allowed(lambda value: 1 <= value <= MOST_STEPS, f"from 1 to {MOST_STEPS}")]


class AttentionOptions(Section):
    """What recipes may set of one attention alone; of itself, none."""

    def check(self, seq_len: int, dim: int, num_heads: int) -> None:
        """Raise ValueError("KEY must be ...") where an option does not fit the sizes of the encoder."""


class S3Options(AttentionOptions):
    """Options of `s3`; the names are those of Algorithms 1 and 2 of Wang et al. 2024, arXiv:2408.08567."""

    num_segments: int = 8
    """r: segments of the width whose means go through the Fourier convolution."""
    num_rows: int = 8
    """s1: tokens sampled for row attention."""
    num_columns: int = 8
    """s2: features of each head sampled for column attention."""
    use_smoother: bool = True
    """Whether tokens are smoothed before the attention."""
    use_fourier: bool = True
    """Whether the smoother has its Fourier convolution; without it, what the paper's ablation (Table 7) leaves."""
    use_stem: bool = True
    """Whether the smoother has its convolution stem (Table 7); without it, the Fourier convolution alone."""
    use_rows: bool = True
    use_columns: bool = True
    """Whether the attention has its two parts; at least one of them."""

    def check(self, seq_len: int, dim: int, num_heads: int) -> None:
        """Raise ValueError where an option does not fit the sizes of the encoder."""
        if self.use_smoother and not (self.use_fourier or self.use_stem):
            raise ValueError("options.use_fourier and use_stem must not both be false; set use_smoother to false")
        if not (self.use_rows or self.use_columns):
            raise ValueError("options.use_rows and use_columns must not both be false")
        if seq_len % 2:
            raise ValueError(f"seq_len must be even, not {seq_len}")
        factors = fourier_factors(seq_len)
        if self.use_smoother and self.use_fourier and max(factors) > LARGEST_FACTOR:
            raise ValueError(
                f"seq_len must be a product of two numbers of at most {LARGEST_FACTOR:,}, as 4,096 = 64 x 64, for the "
                f"Fourier transform; {seq_len:,} = {factors[0]:,} x {factors[1]:,}"
            )
        if self.num_segments < 1 or dim % self.num_segments:
            raise ValueError(f"options.num_segments must divide dim {dim}, not be {self.num_segments}")
        if not 1 <= self.num_rows <= seq_len:
            raise ValueError(f"options.num_rows must be in 1..{seq_len} (seq_len), not {self.num_rows}")
        width = dim // num_heads
        if not 1 <= self.num_columns <= width:
            raise ValueError(f"options.num_columns must be in 1..{width} (head width), not {self.num_columns}")


def fourier_factors(seq_len: int) -> tuple[int, int]:
    """The two factors of a length that are nearest to each other, by which exports of `s3` transform."""
    first = next(d for d in range(math.isqrt(seq_len), 0, -1) if seq_len % d == 0)
    return first, seq_len // first


class DynamicBilinearOptions(AttentionOptions):
    """Options of `dba`; the defaults are those of Table 7 of Qin et al. 2022, arXiv:2211.16368."""

    compressed_length: RowCount = 16
    """d_p: rows that a sequence is compressed to."""
    inner_dim: RowCount = 24
    """d_in: width of compressed queries and keys."""


class LinformerOptions(AttentionOptions):
    """Options of `linformer`."""

    projected_length: RowCount = 128
    """k: rows that keys and values are projected to; of use below seq_len only."""


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"must be odd, not {value}")
    return value


class NystromOptions(AttentionOptions):
    """Options of `nystrom`."""

    num_landmarks: RowCount = 128
    """m: segments of the sequence; a seq_len below it has as many as tokens."""
    num_steps: StepCount = 6
    """Of the iterative pseudo-inverse."""
    kernel_size: Annotated[RowCount, AfterValidator(_odd)] = 33
    """Of the convolution of the values that is added."""


class PerformerOptions(AttentionOptions):
    """Options of `performer`."""

    num_features: RowCount = 128
    """m: random features of each query and key."""


class SkyformerOptions(AttentionOptions):
    """Options of `skyformer`."""

    num_landmarks: RowCount = 128
    """d: rows of [Q; K] that stand for all, seq_len of each at most; the paper's experiments have 128."""
    gamma: Annotated[float, allowed(lambda value: 0.0 < value <= 1.0, "in (0, 1]")] = 0.01
    """Added to the diagonal of the landmarks' kernel matrix: d times the paper's, whose S has entries 1 / sqrt(d)."""
    num_steps: StepCount = 6
    """Of the iterative inverse."""


AttentionName = Literal["dba", "kernelized", "linformer", "nystrom", "performer", "s3", "skyformer", "softmax"]

OPTIONS: dict[AttentionName, type[AttentionOptions]] = {
    "dba": DynamicBilinearOptions,
    "kernelized": AttentionOptions,
    "linformer": LinformerOptions,
    "nystrom": NystromOptions,
    "performer": PerformerOptions,
    "s3": S3Options,
    "skyformer": SkyformerOptions,
    "softmax": AttentionOptions,
}
