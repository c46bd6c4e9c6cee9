import pytest
import torch

from model.errors import UserError
from model.training.device import choose_device


@pytest.mark.parametrize(
    ("name", "is_available", "expected"),
    [
        ("cpu", True, "cpu"),
        ("cpu", False, "cpu"),
        ("cuda", True, "cuda"),
        ("auto", True, "cuda"),
        ("auto", False, "cpu"),
    ],
)
def test_device_is_the_named_or_the_best_available_one(
    name: str, is_available: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    assert choose_device(name) == torch.device(expected)


def test_unavailable_cuda_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="--device cuda: no CUDA device is available"):
        choose_device("cuda")
