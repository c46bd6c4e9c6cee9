"""Random features."""

import torch

from model.nn.attention.performer import orthogonal_features


def test_features_are_orthogonal_in_blocks_with_norms_of_normal_vectors() -> None:
    features = orthogonal_features(50, 8, torch.Generator().manual_seed(0))
    assert features.shape == (50, 8)
    for first in range(0, 50, 8):
        block = features[first : first + 8]
        products = block @ block.T
        assert torch.allclose(products, torch.diag(products.diag()), atol=1e-5)
    many = orthogonal_features(4000, 8, torch.Generator().manual_seed(1))
    assert abs(float(many.square().sum(1).mean()) - 8) < 0.3
