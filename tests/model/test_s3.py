import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import nn

from model.attention.s3 import S3Attention, SkeletonAttention, Smoother
from model.classifier import TextClassifier
from model.config import EncoderConfig
from model.encoder import Block
from model.ops.fourier import fourier_convolution, segment_means
from tests.model import reference

Documents = tuple[torch.Tensor, torch.Tensor]

# Both sides in float64: sums of at most some hundred terms of order one.
RELATIVE = 1e-12


def close(ours: torch.Tensor, theirs: np.ndarray) -> bool:
    difference = np.abs(ours.detach().numpy() - theirs).max()
    return bool(difference <= RELATIVE * max(1.0, np.abs(theirs).max()))


def randomise(module: nn.Module) -> dict[str, np.ndarray]:
    """Give every parameter and statistic a random value, so that none can be left out unnoticed; returns the state."""
    generator = torch.Generator().manual_seed(1)
    module.double().eval()
    for name, tensor in module.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5, generator=generator)
        elif tensor.is_floating_point():
            tensor.normal_(std=0.5, generator=generator)
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def random_tokens(config: EncoderConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, config.seq_len, config.dim, dtype=torch.float64, generator=generator)


def test_fourier_convolution_uses_each_channels_own_segment(config: EncoderConfig) -> None:
    x = random_tokens(config)
    kernel = torch.randn(config.seq_len // 2 + 1, config.dim, 2, dtype=torch.float64)
    ours = fourier_convolution(segment_means(x, config.num_segments), kernel)
    for b in range(2):
        assert close(ours[b], reference.fourier_convolution(x[b].numpy(), kernel.numpy(), config.num_segments))


def test_smoother_equals_reference(config: EncoderConfig) -> None:
    smoother = Smoother(config)
    state = randomise(smoother)
    x = random_tokens(config)
    for b in range(2):
        assert close(smoother(x)[b], reference.smoother(x[b].numpy(), state, config.num_segments))


def test_skeleton_attention_equals_reference(config: EncoderConfig) -> None:
    layer = SkeletonAttention(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    q, k, v = (torch.randn(2, config.num_heads, config.seq_len, config.head_dim, dtype=torch.float64) for _ in "qkv")
    for b in range(2):
        heads = [list(part[b].numpy()) for part in (q, k, v)]
        assert close(layer(q, k, v)[b], reference.skeleton_attention(*heads, state))


def test_attention_equals_reference(config: EncoderConfig) -> None:
    layer = S3Attention(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x = random_tokens(config)
    for b in range(2):
        assert close(layer(x)[b], reference.attention(x[b].numpy(), state, config))


def test_block_equals_reference(config: EncoderConfig) -> None:
    layer = Block(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x = random_tokens(config)
    for b in range(2):
        assert close(layer(x)[b], reference.block(x[b].numpy(), state, config))


def test_classifier_equals_reference(config: EncoderConfig, documents: Documents) -> None:
    model = TextClassifier(config, 3)
    state = randomise(model)
    logits = model(*documents)
    for b, (document, length) in enumerate(zip(*documents, strict=True)):
        assert close(logits[b], reference.classifier(bytes(document[:length].tolist()), state, config))


def test_gradient_reaches_every_parameter(config: EncoderConfig, documents: Documents) -> None:
    model = TextClassifier(config, 3)
    nn.functional.cross_entropy(model(*documents), torch.tensor([0, 1, 2, 0, 1])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_standardise_head_equals_standardised_inputs(config: EncoderConfig, documents: Documents) -> None:
    model = TextClassifier(config, 2)
    randomise(model)
    first = model.head[0]
    weight = first.weight.clone()
    pooled = model.encoder(*documents).mean(dim=1)
    standardised = (pooled - pooled.mean(dim=0)) / pooled.std(dim=0)
    model.standardise_head(*documents)
    assert close(first(pooled), (standardised @ weight.T).detach().numpy())


def test_standardise_head_changes_nothing_but_the_first_layer_of_the_head(
    config: EncoderConfig, documents: Documents
) -> None:
    model = TextClassifier(config, 2)
    randomise(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.standardise_head(*documents)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"head.0.weight", "head.0.bias"}


def test_reloaded_model_is_identical(config: EncoderConfig, documents: Documents, tmp_path: Path) -> None:
    model = TextClassifier(config, 2).eval()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    # Another seed draws other rows and columns: only the file can bring the right ones back.
    other = TextClassifier(dataclasses.replace(config, sampling_seed=9), 2).eval()
    rows = "encoder.blocks.0.attention.skeleton.rows"
    assert not torch.equal(model.state_dict()[rows], other.state_dict()[rows])
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(model(*documents), other(*documents))


def test_answer_does_not_depend_on_batch_mates(config: EncoderConfig, documents: Documents) -> None:
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


def test_bytes_beyond_the_length_are_not_read(config: EncoderConfig, documents: Documents) -> None:
    model = TextClassifier(config, 2).double().eval()
    document, lengths = documents
    dirty = torch.where(torch.arange(config.seq_len) < lengths[:, None], document, 77)
    assert not torch.equal(dirty, document)
    assert torch.equal(model(dirty, lengths), model(document, lengths))


def test_bfloat16_stays_close_to_float32(config: EncoderConfig, documents: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Mixed precision as on a GPU: the Fourier convolution stays in float32, gradients are finite."""
    model = TextClassifier(config, 3)
    model.eval()
    expected = model(*documents).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(*documents)
    assert mixed.dtype == torch.bfloat16
    # bfloat16 has 8 bits: 2**-8 a step, over the some ten matrix products from bytes to logits.
    assert (mixed - expected).abs().max() <= 10 * 2**-8 * max(1.0, float(expected.abs().max()))
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(*documents).float(), torch.tensor([0, 1, 2, 0, 1]))
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
