"""MiniRocket against a slow reference in float64, and its exactness in every backend."""

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from artifact.arrays import Floats
from artifact.recordings import GRID
from model.nn.minirocket import KERNELS, MiniRocket, dilations_of

LENGTH, CHANNELS, PER_KERNEL = 40, 3, 20


def _recordings(count: int, length: int = LENGTH, channels: int = CHANNELS) -> Floats:
    walks = np.random.default_rng(0).standard_normal((count, length, channels)).cumsum(axis=1) / 2
    walks[0, 5:20] = 0.25  # a flat stretch, whose sums equal a bias in most implementations
    return (np.round(walks / GRID) * GRID).astype(np.float32)


@pytest.fixture
def rocket() -> MiniRocket:
    found = MiniRocket(CHANNELS, LENGTH, PER_KERNEL)
    found.fit(_recordings(6), seed=0)
    return found


def _reference(rocket: MiniRocket, recording: Floats) -> NDArray[np.float64]:
    """Features of one recording (N, C), written from the definition."""
    steps, features = len(recording), list[float]()
    for index, (dilation, _) in enumerate(rocket.biases.items()):
        weights, biases = (rocket.get_buffer(f"{name}_{index}").numpy() for name in ("weight", "bias"))
        for kernel, heavy in enumerate(combinations(range(9), 3)):
            read = [channel for channel in range(recording.shape[1]) if weights[kernel, channel].any()]
            sums = np.zeros(steps)
            for t in range(steps):
                for tap in range(9):
                    if 0 <= (place := t + dilation * (tap - 4)) < steps:
                        sums[t] += (2 if tap in heavy else -1) * recording[place, read].astype(float).sum()
            inner = slice(4 * dilation, steps - 4 * dilation) if (kernel + index) % 2 else slice(None)
            features += [float((sums[inner] > bias).mean()) for bias in biases[kernel, :, 0]]
    return np.array(features)


def test_features_equal_the_reference(rocket: MiniRocket) -> None:
    recordings = _recordings(3)
    with torch.no_grad():
        found = rocket(torch.from_numpy(recordings)).numpy()
    assert found.shape == (3, rocket.num_features) == (3, len(KERNELS) * PER_KERNEL)
    for row, recording in zip(found, recordings, strict=True):
        assert row == pytest.approx(_reference(rocket, recording), abs=1e-7)


def test_biases_lie_between_two_values_of_the_grid(rocket: MiniRocket) -> None:
    biases = np.concatenate([rocket.get_buffer(f"bias_{index}").numpy().ravel() for index in range(len(rocket.biases))])
    assert ((biases / GRID) % 1 == 0.5).all()
    assert np.unique(biases).size > 100


def test_each_kernel_reads_some_channels(rocket: MiniRocket) -> None:
    read = rocket.get_buffer("weight_0").ne(0).any(2).sum(1)  # (84,)
    assert read.min() >= 1
    assert read.max() <= CHANNELS
    assert len(read.unique()) > 1


@pytest.mark.parametrize("length", [9, 10, 33, 150, 1250])
@pytest.mark.parametrize("per_kernel", [1, 7, 119])
def test_dilations_fit_and_share_the_features(length: int, per_kernel: int) -> None:
    found = dilations_of(length, per_kernel)
    assert sum(found.values()) == per_kernel
    assert min(found) == 1
    assert 8 * max(found) <= length - 1
    assert list(found) == sorted(found)


def test_a_batch_gives_the_bits_of_its_rows(rocket: MiniRocket) -> None:
    recordings = torch.from_numpy(_recordings(4))
    with torch.no_grad():
        together = rocket(recordings)
        for row, recording in enumerate(recordings):
            assert torch.equal(rocket(recording.unsqueeze(0))[0], together[row])


def test_the_same_seed_draws_the_same_kernels() -> None:
    first, same, other = (MiniRocket(CHANNELS, LENGTH, PER_KERNEL) for _ in range(3))
    for rocket, seed in ((first, 1), (same, 1), (other, 2)):
        rocket.fit(_recordings(6), seed)
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in first.state_dict().items())
    assert not torch.equal(first.get_buffer("bias_0"), other.get_buffer("bias_0"))
