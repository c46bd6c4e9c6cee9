import pytest
import torch

from model.training.provenance import hardware


@pytest.mark.parametrize(("threads", "told"), [(1, "CPU, 1 thread"), (2, "CPU, 2 threads")])
def test_hardware_of_a_cpu_run_has_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, told: str
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert hardware(torch.device("cpu")) == told
