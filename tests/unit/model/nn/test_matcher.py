import numpy as np
import pytest
import torch

from artifact.documents import pad_rows
from model.config.encoder import EncoderConfig
from model.config.models import MatcherConfig, StemConfig
from model.nn.matcher import Matcher, MatchingHead
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, expect_gradient_everywhere, randomise

TEXTS = (b"a", b"abc", bytes(4), b"A document of some patches, not all", bytes(range(96)), b"x" * 95)


@pytest.fixture(params=["paper", "paper-masked", "length-aware"])
def matcher_config(config: EncoderConfig, request: pytest.FixtureRequest) -> MatcherConfig:
    """24 patches of 4 bytes."""
    stem = StemConfig(shortest=2, longest=4, num_buckets=64, patch_length=4)
    return MatcherConfig(stem=stem, encoder=changed(config, mode=request.param), head_dim=7)


@pytest.fixture
def matcher(matcher_config: MatcherConfig) -> Matcher:
    """Random weights and statistics in double precision, which the stem supports only in training mode."""
    matcher = Matcher(matcher_config)
    randomise(matcher)
    matcher.encoder.stem.train()
    return matcher


@pytest.fixture
def state(matcher: Matcher) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in matcher.state_dict().items()}


def padded(*texts: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, 96)
    return torch.from_numpy(document), torch.from_numpy(lengths)


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_vector_equals_reference(matcher_config: MatcherConfig, num_layers: int) -> None:
    encoder = changed(matcher_config.required_encoder, num_layers=num_layers)
    config = changed(matcher_config, encoder=encoder)
    matcher = Matcher(config)
    state = reference.below(randomise(matcher), "encoder")
    matcher.encoder.stem.train()
    for text, vector in zip(TEXTS, matcher(*padded(*TEXTS)), strict=True):
        assert close(vector, reference.document_vector(text, state, config))


def test_vector_does_not_depend_on_the_rest_of_the_batch(matcher: Matcher) -> None:
    together = matcher(*padded(*TEXTS))
    for text, vector in zip(TEXTS, together, strict=True):
        assert close(vector, matcher(*padded(text))[0].detach().numpy())


def test_bytes_beyond_the_length_are_not_read(matcher: Matcher) -> None:
    document, lengths = padded(*TEXTS)
    dirty = torch.where(torch.arange(96) < lengths[:, None], document, 77)
    assert not torch.equal(dirty, document)
    assert torch.equal(matcher(dirty, lengths), matcher(document, lengths))


def test_vector_of_a_document_within_one_patch_is_that_of_its_token(
    matcher: Matcher, matcher_config: MatcherConfig
) -> None:
    texts = padded(b"abc", b"abcd", b"abcde")
    encoder = matcher.encoder
    x = encoder.stem(*texts) * encoder.scale
    tokens = x + encoder.gate * encoder.norm(encoder.blocks(x, torch.tensor([1, 1, 2])))
    expected = [tokens[0, 0], tokens[1, 0], (tokens[2, 0] + tokens[2, 1]) / 2]
    assert matcher_config.max_length == 96
    for vector, mean in zip(encoder.pooled(*texts), expected, strict=True):
        assert close(vector, mean.detach().numpy())


def test_vector_has_a_root_mean_square_of_one(matcher: Matcher) -> None:
    square = matcher(*padded(*TEXTS)).square().mean(dim=1)
    # 1e-6 is added to a square of order one
    assert torch.allclose(square, torch.ones_like(square), rtol=0, atol=1e-4)


def test_nul_is_not_padding(matcher: Matcher) -> None:
    short, long = matcher(*padded(bytes(5), bytes(6)))
    assert not torch.allclose(short, long)


def test_head_equals_its_equation(matcher: Matcher, state: dict[str, np.ndarray]) -> None:
    a, b = torch.randn(2, 9, 12, dtype=torch.float64)
    logits = matcher.head(a, b)
    assert logits.shape == (9, 1)
    pairs = zip(a.numpy(), b.numpy(), strict=True)
    expected = [reference.matching_head(x, y, reference.below(state, "head")) for x, y in pairs]
    assert close(logits[:, 0], np.array(expected))


def test_rescaled_head_has_scaled_and_shifted_logits(matcher: Matcher) -> None:
    a, b = torch.randn(2, 9, 12, dtype=torch.float64)
    before = matcher.head(a, b).detach()
    matcher.head.rescale(0.3, -1.7)
    assert close(matcher.head(a, b), (0.3 * before - 1.7).numpy())


def test_initial_head_is_a_scaled_cosine(matcher_config: MatcherConfig) -> None:
    head = MatchingHead(matcher_config).double()
    a, b = torch.randn(2, 9, 12, dtype=torch.float64)
    a, b = (v * v.square().mean(dim=1, keepdim=True).rsqrt() for v in (a, b))
    cosine = torch.nn.functional.cosine_similarity(a, b)
    # The weight is 3 / sqrt(12) in single precision.
    assert torch.allclose(head(a, b)[:, 0], 3 * 12**0.5 * cosine, rtol=0, atol=12 * 3 * 2**-24)


def test_trained_head_depends_on_the_order_of_the_documents(matcher: Matcher, matcher_config: MatcherConfig) -> None:
    a, b = torch.randn(2, 9, 12, dtype=torch.float64)
    assert not torch.allclose(matcher.head(a, b), matcher.head(b, a))
    start = MatchingHead(matcher_config).double()
    assert torch.equal(start(a, b), start(b, a))


def test_encoder_for_cuda_shares_parameters_and_statistics(matcher: Matcher) -> None:
    encoder, other = matcher.encoder, matcher.encoder.for_cuda()
    assert (encoder.stem.avoids_int8, other.stem.avoids_int8) == (False, True)
    tensors, others = ([*one.parameters(), *one.buffers()] for one in (encoder, other))
    assert all(tensor is shared for tensor, shared in zip(tensors, others, strict=True))
    assert torch.equal(other(*padded(*TEXTS)), encoder(*padded(*TEXTS)))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_gradient_reaches_every_parameter(matcher_config: MatcherConfig, use_fourier: bool) -> None:
    encoder = with_options(matcher_config.required_encoder, use_fourier=use_fourier)
    matcher = Matcher(changed(matcher_config, encoder=encoder))
    randomise(matcher)
    vectors = matcher.train()(*padded(*TEXTS))
    matcher.head(vectors[:3], vectors[3:]).square().sum().backward()
    expect_gradient_everywhere(matcher)


def test_standardise_scales_tokens_and_vectors_to_unit_deviation(matcher: Matcher) -> None:
    texts = padded(*TEXTS)
    matcher.encoder.standardise(*texts)
    encoder = matcher.encoder
    assert close((encoder.stem(*texts) * encoder.scale).std(), np.ones(()))
    v = (encoder.pooled(*texts) - encoder.mean) / encoder.deviation
    assert close(v.mean(dim=0), np.zeros(12))
    assert close(v.std(dim=0), np.ones(12))


def test_standardise_changes_nothing_else(matcher: Matcher) -> None:
    before = {name: tensor.clone() for name, tensor in matcher.state_dict().items()}
    matcher.encoder.standardise(*padded(*TEXTS))
    changed = {name for name, tensor in matcher.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"encoder.scale", "encoder.mean", "encoder.deviation"}


def test_length_aware_vector_is_the_same_for_any_number_of_patches(matcher_config: MatcherConfig) -> None:
    encoder = changed(matcher_config.required_encoder, mode="length-aware")
    matcher = Matcher(changed(matcher_config, encoder=encoder))
    randomise(matcher)
    matcher.encoder.stem.train()
    for text, expected in zip(TEXTS, matcher(*padded(*TEXTS)), strict=True):
        for length in {-(-len(text) // 4) * 4, 48, 92} - set(range(len(text))):
            document, lengths = pad_rows([text], length)
            assert close(matcher(torch.from_numpy(document), torch.from_numpy(lengths))[0], expected.detach().numpy())
