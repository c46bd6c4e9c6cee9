import torch

from model.training.provenance import hardware


def test_hardware_of_a_cpu_run_has_the_number_of_threads() -> None:
    assert hardware(torch.device("cpu")) == f"CPU, {torch.get_num_threads()} threads"
