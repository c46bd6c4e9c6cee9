"""Gradients of a batch, replayed as a CUDA graph. Used by `model.training.loop`."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from model.training.learner import TrainingBatch

WARM_UP = 3
"""Computations before a recording, in which PyTorch's libraries choose algorithms and allocate memory."""

AddGradients = Callable[[TrainingBatch], Tensor]
"""A function that adds the gradients of a batch's loss to those of the parameters, and returns the loss."""
Replay = Callable[[], Tensor]


def record_cuda_graph(compute: Replay) -> Replay:
    """Record a computation on CUDA, after WARM_UP computations; each call of what it returns replays it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = compute()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay


class Recorded:
    """The same function as `compute`, recorded once for each shape of a batch and then replayed.

    Launching the kernels of a small model one by one takes longer than the kernels themselves. Gradients must be set to
    zero between steps, not to None: a recording adds to the tensors that it has seen.

    Reference:  https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
    """

    def __init__(
        self,
        compute: AddGradients,
        model: nn.Module,
        device: torch.device,
        record: Callable[[Replay], Replay] = record_cuda_graph,
    ) -> None:
        self.compute, self.model, self.device, self.record = compute, model, device, record
        self.recordings: dict[tuple[torch.Size, ...], tuple[TrainingBatch, Replay]] = {}
        """Shapes of a batch -> its inputs, which a replay reads, and the replay."""

    def __call__(self, batch: TrainingBatch) -> Tensor:
        """Add the gradients of a batch on the CPU or the device; returns its loss, which the next call overwrites."""
        shapes = tuple(tensor.shape for tensor in batch)
        if shapes not in self.recordings:
            self.recordings[shapes] = self._record(batch)
        inputs, replay = self.recordings[shapes]
        for own, given in zip(inputs, batch, strict=True):
            own.copy_(given)
        return replay()

    def _record(self, batch: TrainingBatch) -> tuple[TrainingBatch, Replay]:
        """Record a computation; random numbers, gradients and statistics of the model are then as before."""
        inputs = tuple(tensor.to(self.device, copy=True) for tensor in batch)
        statistics = [(tensor, tensor.clone()) for tensor in self.model.buffers()]
        gradients = [(p, None if p.grad is None else p.grad.clone()) for p in self.model.parameters()]
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            replay = self.record(lambda: self.compute(inputs))
        for tensor, value in statistics:
            tensor.copy_(value)
        for parameter, gradient in gradients:
            if parameter.grad is not None:
                parameter.grad.copy_(torch.zeros_like(parameter) if gradient is None else gradient)
        return inputs, replay
