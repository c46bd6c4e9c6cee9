import numpy as np
import pytest
import torch
from torch import Tensor

from artifact.recordings import GRID
from model.config.attentions import AttentionName
from model.config.encoder import EncoderConfig
from model.config.models import SeriesClassifierConfig
from model.nn.series_classifier import PatchStem, SeriesClassifier, SeriesEncoder

LENGTH, CHANNELS, CLASSES = 50, 2, 3


def _config(attention: AttentionName = "s3", patch_length: int = 4) -> SeriesClassifierConfig:
    tokens = -(-LENGTH // patch_length)
    options = {"num_segments": 4, "num_rows": 4, "num_columns": 4} if attention == "s3" else {}
    encoder = EncoderConfig.model_validate(
        {"attention": attention, "seq_len": tokens + tokens % 2, "dim": 16, "num_heads": 2, "options": options}
    )
    return SeriesClassifierConfig(length=LENGTH, patch_length=patch_length, features_per_kernel=5, encoder=encoder)


def _recordings(*lengths: int) -> tuple[Tensor, Tensor]:
    """Random walks on the grid, zero beyond their lengths."""
    walks = np.random.default_rng(0).standard_normal((len(lengths), LENGTH, CHANNELS)).cumsum(axis=1)
    found = torch.from_numpy((np.round(walks / GRID) * GRID).astype(np.float32))
    counts = torch.tensor(lengths, dtype=torch.int32)
    return found * (torch.arange(LENGTH) < counts[:, None]).unsqueeze(2), counts


@pytest.fixture
def model() -> SeriesClassifier:
    torch.manual_seed(0)
    found = SeriesClassifier(_config(), CHANNELS, CLASSES).eval()
    found.rocket.fit(_recordings(*[LENGTH] * 4)[0].numpy(), seed=0)
    return found


@torch.no_grad()
def test_logits_are_the_weighted_sum_of_both_views(model: SeriesClassifier) -> None:
    (stretched, _), (series, lengths) = _recordings(LENGTH, LENGTH), _recordings(LENGTH, 20)
    views = model.linear(model.rocket(stretched)), model.encoder(series, lengths)
    model.weights.copy_(torch.tensor([3.0, 0.5]))
    assert torch.allclose(model(stretched, series, lengths), 3 * views[0] + 0.5 * views[1], atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["s3", "softmax", "dba"])
def test_logits_do_not_depend_on_neighbours(attention: AttentionName) -> None:
    torch.manual_seed(0)
    encoder = SeriesEncoder(_config(attention), CHANNELS, CLASSES).eval()
    series, lengths = _recordings(LENGTH, 20, 1, 49)
    together = encoder(series, lengths)
    for row in range(4):
        alone = encoder(series[row : row + 1], lengths[row : row + 1])[0]
        assert torch.allclose(alone, together[row], atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["s3", "softmax", "dba"])
def test_logits_do_not_depend_on_padding(attention: AttentionName) -> None:
    """A model of shorter recordings with the same weights reads the same recording."""
    torch.manual_seed(0)
    longer = SeriesEncoder(_config(attention), CHANNELS, CLASSES).eval()
    config, state = _config(attention), longer.state_dict()
    shorter = SeriesEncoder(config.model_copy(update={"length": 24}), CHANNELS, CLASSES).eval()
    shorter.load_state_dict(state)
    series, lengths = _recordings(20)
    assert torch.allclose(shorter(series[:, :24], lengths), longer(series, lengths), atol=1e-5)


@torch.no_grad()
def test_inputs_of_the_stem_equal_their_definition() -> None:
    stem = PatchStem(_config(), CHANNELS)
    series, lengths = _recordings(LENGTH, 20)
    found = stem.inputs(series, lengths).numpy()
    for row, length in enumerate(lengths.tolist()):
        own = series[row, :length].numpy().astype(float)
        scaled = (own - own.mean(0)) / np.maximum(own.std(0), 0.02)
        both = np.concatenate([own, scaled], axis=1)
        differences = np.diff(both, axis=0, prepend=both[:1])
        assert found[row, :length] == pytest.approx(np.concatenate([both, differences], axis=1), abs=1e-4)
        assert not found[row, length:].any()


@torch.no_grad()
def test_a_constant_recording_is_finite(model: SeriesClassifier) -> None:
    constant = torch.full((1, LENGTH, CHANNELS), 0.5)
    assert model(constant, constant, torch.tensor([LENGTH], dtype=torch.int32)).isfinite().all()


def test_every_parameter_of_the_encoder_gets_a_gradient() -> None:
    torch.manual_seed(0)
    encoder = SeriesEncoder(_config(), CHANNELS, CLASSES)
    encoder(*_recordings(LENGTH, 30, 20)).square().sum().backward()
    unused = [name for name, one in encoder.named_parameters() if one.grad is None or not one.grad.abs().sum() > 0]
    assert unused == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 8}, "must be from 9 to 16,384, not 8"),
        ({"patch_length": 5}, "patch_length must be a multiple of 2, not 5"),
        ({"patch_length": 1}, "encoder.seq_len must be at least 50, not 14"),
        ({"folds": 1}, "must be from 2 to 10, not 1"),
    ],
)
def test_a_wrong_section_is_an_error(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SeriesClassifierConfig.model_validate({**_config().model_dump(), **changes})
