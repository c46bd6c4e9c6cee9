import torch

from model.training.provenance import hardware


def test_hardware_of_the_cpu_names_its_threads() -> None:
    assert hardware(torch.device("cpu")) == f"CPU, {torch.get_num_threads()} threads"
