"""MiniRocket against a slow reference in float64, and its exactness in every backend."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from artifact.arrays import Floats
from artifact.backends import create_backend
from artifact.manifest import Format
from artifact.recordings import FARTHEST, GRID
from model.export.graphs import eager, write_graph
from model.nn.minirocket import KERNELS, MAX_CHANNELS, MiniRocket, dilations_of, kernels
from model.tasks.graphs import ExportGraph

LENGTH, CHANNELS, PER_KERNEL = 40, 3, 20
HEAVY = tuple(combinations(range(9), 3))


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
    for index, dilation in enumerate(rocket.biases):
        for is_padded in (True, False):
            shares = rocket.shares[2 * index + (not is_padded)]
            weights, biases = shares.get_buffer("weight").numpy(), shares.get_buffer("bias").numpy()
            own = [heavy for kernel, heavy in enumerate(HEAVY) if (kernel + index) % 2 == (not is_padded)]
            for heavy, weight, bias in zip(own, weights, biases[:, :, 0], strict=True):
                read = [channel for channel in range(recording.shape[1]) if weight[channel].any()]
                sums = np.zeros(steps)
                for t in range(steps):
                    for tap in range(9):
                        if 0 <= (place := t + dilation * (tap - 4)) < steps:
                            sums[t] += (2 if tap in heavy else -1) * recording[place, read].astype(float).sum()
                counted = sums if is_padded else sums[4 * dilation : steps - 4 * dilation]
                features += [float((counted > level * GRID).mean()) for level in bias]
    return np.array(features)


@pytest.mark.parametrize("length", [LENGTH, 9])
def test_features_equal_the_reference(length: int) -> None:
    recordings = _recordings(3, length)
    rocket = MiniRocket(CHANNELS, length, PER_KERNEL)
    rocket.fit(recordings, seed=0)
    with torch.no_grad():
        found = rocket(torch.from_numpy(recordings)).numpy()
    assert found.shape == (3, rocket.num_features) == (3, len(KERNELS) * PER_KERNEL)
    for row, recording in zip(found, recordings, strict=True):
        assert row == pytest.approx(_reference(rocket, recording), abs=1e-7)


@pytest.mark.parametrize("format", ["onnx", "torchscript"])
def test_backends_give_the_features_of_pytorch(rocket: MiniRocket, format: Format, tmp_path: Path) -> None:
    recordings = _recordings(6)
    source = ExportGraph("model", rocket, {"x": recordings}, ("features",), (LENGTH,))
    outputs = eager(source)
    backend = create_backend(write_graph(source, outputs, tmp_path), tmp_path, format=format, device="cpu")
    assert backend.run({"x": recordings})["features"] == pytest.approx(outputs["features"], abs=1e-7)


def test_sums_of_the_farthest_values_are_exact_in_float32() -> None:
    largest = np.abs(kernels().numpy()).sum(1).max() * MAX_CHANNELS * 2 * FARTHEST / GRID
    assert largest + 1 < 2**24


def test_biases_are_whole_numbers_of_units(rocket: MiniRocket) -> None:
    biases = np.concatenate([shares.get_buffer("bias").numpy().ravel() for shares in rocket.shares])
    assert (biases % 1 == 0).all()
    assert np.unique(biases).size > 100


def test_each_kernel_reads_some_channels(rocket: MiniRocket) -> None:
    read = rocket.shares[0].get_buffer("weight").ne(0).any(2).sum(1)  # (42,)
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
    assert not torch.equal(first.get_buffer("shares.0.bias"), other.get_buffer("shares.0.bias"))
