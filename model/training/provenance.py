"""Description of the hardware. Used by training runs and benchmarks."""

import torch


def hardware(device: torch.device) -> str:
    """Name of the hardware, for manifests and records."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
