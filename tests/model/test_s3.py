import dataclasses

import numpy as np
import torch
from torch import nn

from model.attention.s3 import SkeletonAttention, Smoother
from model.classifier import TextClassifier
from model.config import EncoderConfig
from model.ops.fourier import fourier_convolution, segment_means
from tests.model import reference

# Both sides in float64: sums of at most some hundred terms of order one.
RELATIVE = 1e-12


def close(ours: torch.Tensor, theirs: np.ndarray) -> bool:
    difference = np.abs(ours.detach().numpy() - theirs).max()
    return bool(difference <= RELATIVE * max(1.0, np.abs(theirs).max()))


def randomise(module: nn.Module) -> nn.Module:
    """Give every parameter and statistic a random value, so that none can be left out unnoticed."""
    generator = torch.Generator().manual_seed(1)
    for tensor in [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]:
        tensor.data = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5
    return module.double().eval()


def test_fourier_convolution_uses_each_channels_own_segment(config: EncoderConfig) -> None:
    x = torch.randn(2, config.seq_len, config.dim, dtype=torch.float64)
    kernel = torch.randn(config.seq_len // 2 + 1, config.dim, 2, dtype=torch.float64)
    ours = fourier_convolution(segment_means(x, config.num_segments), kernel)
    for b in range(2):
        assert close(ours[b], reference.fourier_convolution(x[b].numpy(), kernel.numpy(), config.num_segments))


def test_smoother_equals_reference(config: EncoderConfig) -> None:
    smoother = randomise(Smoother(config))
    state = {name: tensor.numpy() for name, tensor in smoother.state_dict().items()}
    x = torch.randn(2, config.seq_len, config.dim, dtype=torch.float64)
    for b in range(2):
        smooth = reference.fourier_convolution(x[b].numpy(), state["kernel"], config.num_segments)
        stem = reference.conv1d(np.hstack([smooth, x[b].numpy()]), state["conv.weight"], state["conv.bias"])
        scale = state["norm.weight"] / np.sqrt(state["norm.running_var"] + 1e-5)
        normed = (stem - state["norm.running_mean"][:, None]) * scale[:, None] + state["norm.bias"][:, None]
        assert close(smoother(x)[b], np.maximum(normed, 0))


def test_skeleton_attention_equals_reference(config: EncoderConfig) -> None:
    layer = randomise(SkeletonAttention(config, torch.Generator().manual_seed(0)))
    state = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    q, k, v = (torch.randn(2, config.num_heads, config.seq_len, config.head_dim, dtype=torch.float64) for _ in "qkv")
    for b in range(2):
        heads = [
            reference.skeleton_attention(
                q[b, h].numpy(),
                k[b, h].numpy(),
                v[b, h].numpy(),
                state["rows"].tolist(),
                state["columns"].tolist(),
            )
            for h in range(config.num_heads)
        ]
        row, column = (np.hstack([head[part] for head in heads]) for part in (0, 1))
        expected = reference.layer_norm(row, state["row_norm.weight"], state["row_norm.bias"]) / 2
        expected += reference.layer_norm(column, state["column_norm.weight"], state["column_norm.bias"]) / 2
        assert close(layer(q, k, v)[b], expected)


def test_gradient_reaches_every_parameter(config: EncoderConfig, documents: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = TextClassifier(config, 3)
    nn.functional.cross_entropy(model(*documents), torch.tensor([0, 1, 2, 0, 1])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_reloaded_model_is_identical(config: EncoderConfig, documents: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = TextClassifier(config, 2).eval()
    other = TextClassifier(dataclasses.replace(config, sampling_seed=9), 2).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(*documents), other(*documents))


def test_answer_does_not_depend_on_batch_mates(
    config: EncoderConfig, documents: tuple[torch.Tensor, torch.Tensor]
) -> None:
    model = TextClassifier(config, 2).double().eval()
    document, lengths = documents
    together = model(document, lengths)
    for i in range(len(lengths)):
        alone = model(document[i : i + 1], lengths[i : i + 1])[0]
        assert close(together[i], alone.detach().numpy())


def test_nul_is_not_padding(config: EncoderConfig) -> None:
    model = TextClassifier(config, 2).double().eval()
    document = torch.zeros(2, config.seq_len, dtype=torch.uint8)
    short, long = model(document, torch.tensor([3, 4], dtype=torch.int32))
    assert not torch.allclose(short, long)
