"""Description of the hardware. Used by training runs and benchmarks."""

import torch


def hardware(device: torch.device) -> str:
    """Name of the hardware, for manifests and records."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"
