"""What a run was made with. Used by training runs and benchmarks."""

import torch


def hardware(device: torch.device) -> str:
    """Name the hardware for the manifest."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
