"""Names of the attention layers in recipes, and the options of each, `[model.encoder.options]`.

The layers are in `model.nn.attention`, in modules of the same names.
"""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator

from model.config.schema import Section, allowed

LARGEST_COUNT = 4096
"""Maximum number of landmarks, projected rows, features, etc. More of them cost more than full attention."""
LARGEST_FACTOR = 1024
"""Maximum of either `fourier_factors`: exported graphs contain two DFT matrices of twice as many rows and columns."""
LONGEST_SEQUENCE = LARGEST_FACTOR**2
"""Maximum seq_len, given by the Fourier transform of `s3`."""
MAX_STEPS = 16
"""Maximum steps of an iterative inverse. Each multiplies rounding errors by up to 13/4: to 2e-8 in float64."""

LimitedCount = Annotated[int, allowed(lambda value: 1 <= value <= LARGEST_COUNT, f"from 1 to {LARGEST_COUNT}")]
StepCount = Annotated[int, allowed(lambda value: 1 <= value <= MAX_STEPS, f"from 1 to {MAX_STEPS}")]


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"must be odd, not {value}")
    return value


class AttentionOptions(Section):
    """Options of an attention. The base class is for attentions without options."""

    def check(self, seq_len: int, dim: int, num_heads: int) -> None:
        """Check the options against the sizes of the encoder. Raises: ValueError("KEY must be ...")."""


class S3Options(AttentionOptions):
    """Options of `s3`, named as in Algorithms 1 and 2 of Wang et al. 2024, arXiv:2408.08567."""

    num_segments: int = 8
    """r: number of channel segments whose means enter the Fourier convolution."""
    num_rows: int = 8
    """s1: number of tokens sampled for row attention."""
    num_columns: int = 8
    """s2: number of features per head sampled for column attention."""
    use_smoother: bool = True
    """Whether to smooth tokens before the attention."""
    use_fourier: bool = True
    """Whether the smoother has its Fourier convolution (ablation, Table 7)."""
    use_stem: bool = True
    """Whether the smoother has its convolution stem (ablation, Table 7)."""
    kernel_size: Annotated[LimitedCount, AfterValidator(_odd)] = 3
    """Number of tokens that the convolution stem reads; 3 in the paper."""
    use_rows: bool = True
    use_columns: bool = True
    """Whether to use row and column attention; if both are false, only the smoother mixes tokens (ablation)."""

    def check(self, seq_len: int, dim: int, num_heads: int) -> None:
        """Check the options against the sizes of the encoder. Raises: ValueError."""
        if self.use_smoother and not (self.use_fourier or self.use_stem):
            raise ValueError("options.use_fourier and use_stem must not both be false; set use_smoother to false")
        if not (self.use_smoother or self.use_rows or self.use_columns):
            raise ValueError("options.use_smoother, use_rows and use_columns must not all be false")
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
    """Factors n1 n2 = seq_len closest to each other, used by the DFT in exports of `s3`."""
    first = next(d for d in range(math.isqrt(seq_len), 0, -1) if seq_len % d == 0)
    return first, seq_len // first


class DynamicBilinearOptions(AttentionOptions):
    """Options of `dba`; the defaults are those of Table 7 of Qin et al. 2022, arXiv:2211.16368."""

    compressed_length: LimitedCount = 16
    """d_p: number of tokens after compression."""
    inner_dim: LimitedCount = 24
    """d_in: width of the compressed queries and keys."""


class LinformerOptions(AttentionOptions):
    """Options of `linformer`."""

    projected_length: LimitedCount = 128
    """k: length of the projected keys and values; only useful below seq_len."""


class NystromOptions(AttentionOptions):
    """Options of `nystrom`."""

    num_landmarks: LimitedCount = 128
    """m: number of landmarks (segments of the sequence); at most seq_len are used."""
    num_steps: StepCount = 6
    """Steps of the iterative pseudo-inverse."""
    kernel_size: Annotated[LimitedCount, AfterValidator(_odd)] = 33
    """Kernel size of the convolution of the values."""


class PerformerOptions(AttentionOptions):
    """Options of `performer`."""

    num_features: LimitedCount = 128
    """m: number of random features per query and key."""


class SkyformerOptions(AttentionOptions):
    """Options of `skyformer`."""

    num_landmarks: LimitedCount = 128
    """d: number of landmarks among the rows of [Q; K], at most seq_len of each; 128 in the paper's experiments."""
    gamma: Annotated[float, allowed(lambda value: 0.0 < value <= 1.0, "in (0, 1]")] = 0.01
    """Added to the diagonal of the landmarks' kernel matrix; 0.1 in the published code. It is d times the gamma of the
    paper, whose matrix S has entries 1 / sqrt(d)."""
    num_steps: StepCount = 6
    """Steps of the iterative inverse."""


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
