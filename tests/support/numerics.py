"""Helpers for comparisons with `reference`."""

import numpy as np
import torch
from torch import nn

from model.nn.attention.s3 import Smoother
from model.nn.ngrams import NgramClassifier
from model.nn.ops.fourier import FactoredFourierConvolution, dft_matrices
from model.nn.stem import NgramStem
from model.nn.tokens import TokenClassifier

# Both sides are float64: sums of at most a few hundred terms of order one.
RELATIVE = 1e-12
# Also float64: answers for one document in two buckets differ by rounding of sums, relative to the largest value.
ROUNDING = 1e-13


def close(ours: torch.Tensor, theirs: np.ndarray) -> bool:
    difference = np.abs(ours.detach().numpy() - theirs).max()
    return bool(difference <= RELATIVE * max(1.0, np.abs(theirs).max()))


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether two outputs differ by rounding only."""
    difference = (ours - theirs).detach().abs().max()
    return bool(difference <= ROUNDING * max(1.0, float(theirs.detach().abs().max())))


def randomise(module: nn.Module) -> dict[str, np.ndarray]:
    """Set every parameter and statistic to a random value, so that a test notices if one is ignored; return the state.

    The rows that stand for no n-gram or no word stay zero; squares of scales are positive. Matrices of the Fourier
    transform, which modules store in single precision, become exact.
    """
    generator = torch.Generator().manual_seed(1)
    module.double().eval()
    for name, tensor in module.state_dict().items():
        if name.endswith(("running_var", "scale", "deviation", "prior")):
            tensor.uniform_(0.5, 1.5, generator=generator)
        elif tensor.is_floating_point():
            tensor.normal_(std=0.5, generator=generator)
    for layer in module.modules():
        if isinstance(layer, NgramStem):
            layer.weight.data[0] = 0.0
        if isinstance(layer, TokenClassifier):
            layer.vectors.data[0] = 0.0
            layer.scale.fill_(1.0)
        if isinstance(layer, NgramClassifier):
            layer.table.data[:, -1] = 0.1 + layer.table.data[:, -1] ** 2
            layer.table.data[0] = 0.0
        if isinstance(layer, Smoother) and layer.use_fourier:
            if layer.is_dense:
                layer.forward_dft, layer.inverse_dft = dft_matrices(layer.seq_len)
            else:
                layer.factored = FactoredFourierConvolution(layer.factored.n1, layer.factored.n2)
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def expect_gradient_everywhere(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
