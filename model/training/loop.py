"""Training loop: optimiser, schedule, validation, checkpoints. Used by `model.training.stages`."""

import math
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from model.errors import UserError
from model.progress import progress
from model.training import checkpoint
from model.training.checkpoint import BEST, LAST, Progress, RunFolder
from model.training.gradients import AddGradients, Recorded
from model.training.learner import Learner, TrainingBatch

BETA1 = 0.9
"""Decay of AdamW's mean of gradients."""
TIMED_STEPS = 5
"""Number of steps whose mean duration gives the estimate for a run; the first step, which is slower, is left out."""


class Trainer:
    """One training run. Call it to train to the end; after an interruption, `last.pt` resumes from the same step."""

    def __init__(
        self,
        run: RunFolder,
        learner: Learner,
        model: nn.Module,
        progress: Progress,
        state: dict[str, Any] | None = None,
    ) -> None:
        training = run.config.training
        self.run, self.learner, self.model, self.progress = run, learner, model, progress
        self.step_seconds = list[float]()
        self.examples_per_step = training.batch_size * training.batches_per_step
        self.steps_per_epoch = learner.examples_per_epoch // self.examples_per_step
        self.optimiser = torch.optim.AdamW(
            parameter_groups(model, training.learning_rate),
            betas=(BETA1, training.beta2),
            weight_decay=training.weight_decay,
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, self._rate)
        self.is_recorded = run.device.type == "cuda" and learner.has_fixed_shapes
        self.compute: AddGradients = self._add_gradients
        if self.is_recorded:
            self.compute = Recorded(self._add_gradients, model, run.device)
        if state is not None:
            checkpoint.load_weights(model, state, run.path / LAST)
            self.optimiser.load_state_dict(state["optimiser"])
            self.schedule.load_state_dict(state["schedule"])
            torch.set_rng_state(state["generator"])

    def _rate(self, step: int) -> float:
        """Learning rate relative to its maximum: linear warm-up, then cosine decay to zero."""
        training = self.run.config.training
        total = training.epochs * self.steps_per_epoch
        if step < training.warmup_steps:
            return (step + 1) / training.warmup_steps
        done = (step - training.warmup_steps) / max(1, total - training.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def __call__(self) -> Progress:
        """Train to the last epoch. On Ctrl-C, save a checkpoint and raise KeyboardInterrupt."""
        try:
            if self.learner.validates_initial_model and self.progress.best is None:
                self._validate_start()
            while self.progress.epoch < self.run.config.training.epochs and not self._is_stuck():
                self._epoch()
        except KeyboardInterrupt:
            self._save(LAST)
            raise
        return self.progress

    def fit(self, epochs: int, name: str = "final fit") -> None:
        """Train the first epochs of the schedule without validation and checkpoints. `name` is for the progress bar."""
        self.model.train()
        for epoch in range(epochs):
            with self._bar(f"{name}, epoch {epoch + 1}/{epochs}") as bar:
                for batches in self._batches(epoch):
                    self._step(batches)
                    bar.update(self.examples_per_step)

    def _bar(self, description: str, step: int = 0) -> "tqdm[Any]":
        """Progress bar of an epoch, from a step on."""
        size, unit = self.examples_per_step, self.learner.unit
        return progress(total=self.steps_per_epoch * size, initial=step * size, desc=description, unit=unit)

    def _is_stuck(self) -> bool:
        """Whether the last `patience` epochs did not improve on the best value before them."""
        patience, history = self.run.config.training.patience, self.progress.history
        if not patience or len(history) <= patience:
            return False
        values: list[float] = [record[f"validation_{self.learner.metric}"] for record in history]
        if self.learner.is_error:
            return min(values[-patience:]) >= min(values[:-patience])
        return max(values[-patience:]) <= max(values[:-patience])

    def _validate_start(self) -> None:
        """Validate and save the initial model, which may stay the best. Raises: UserError for NaN or infinity."""
        value = self.learner.validate(self.model.eval(), self.run.device)
        if not math.isfinite(value):
            raise UserError(f"validation {self.learner.metric} of the untrained model is {value}: check the data")
        with defer_interrupt():
            self.progress.best = value
            self._save(BEST)
        tqdm.write(f"start: validation {self.learner.metric} {value:.4f}")

    def _epoch(self) -> None:
        """Run the rest of the current epoch, validate, record and save."""
        progress = self.progress
        self.model.train()
        with self._bar(f"epoch {progress.epoch + 1}/{self.run.config.training.epochs}", progress.step) as bar:
            for index, batches in enumerate(self._batches(progress.epoch)):
                if index < progress.step:
                    continue
                started = time.perf_counter()
                with defer_interrupt():
                    progress.loss_sum += self._step(batches)
                    progress.step += 1
                    seconds = time.perf_counter() - started
                    progress.seconds += seconds
                self._print_estimate(seconds)
                bar.update(self.examples_per_step)
                bar.set_postfix(loss=f"{progress.loss_sum / progress.step:.4f}", refresh=False)
        value = self.learner.validate(self.model.eval(), self.run.device)
        with defer_interrupt():
            self._finish_epoch(value)

    def _print_estimate(self, seconds: float) -> None:
        """Add the duration of a step; print the expected duration of the run once TIMED_STEPS have been timed."""
        if len(self.step_seconds) > TIMED_STEPS:
            return
        self.step_seconds.append(seconds)
        if len(self.step_seconds) > TIMED_STEPS:
            training = self.run.config.training
            left = (training.epochs - self.progress.epoch) * self.steps_per_epoch - self.progress.step
            mean = sum(self.step_seconds[1:]) / TIMED_STEPS
            tqdm.write(f"{duration(left * mean)} to train {_epochs(training.epochs)} at most, plus validation")

    def _finish_epoch(self, value: float) -> None:
        """Append the epoch to metrics.jsonl and save the checkpoints. Raises: UserError if training has diverged."""
        progress, metric = self.progress, self.learner.metric
        if not math.isfinite(value):
            raise UserError(
                f"epoch {progress.epoch + 1}: validation {metric} is {value}: training has diverged; lower "
                "training.learning_rate"
            )
        progress.peak_memory_bytes = max(progress.peak_memory_bytes, peak_memory_bytes(self.run.device))
        loss = progress.loss_sum / progress.step
        progress.epoch, progress.step, progress.loss_sum = progress.epoch + 1, 0, 0.0
        examples = progress.epoch * self.steps_per_epoch * self.examples_per_step
        progress.history.append(
            {
                "epoch": progress.epoch,
                "training_loss": loss,
                f"validation_{metric}": value,
                "examples_per_second": examples / progress.seconds,
                "peak_memory_bytes": progress.peak_memory_bytes,
            }
        )
        is_better = progress.best is None or (value < progress.best if self.learner.is_error else value > progress.best)
        if is_better:
            progress.best = value
            self._save(BEST)
        progress.is_stuck = self._is_stuck()
        self._save(LAST)
        self.run.write_metrics(progress.history)
        tqdm.write(f"epoch {progress.epoch}: training loss {loss:.4f}, validation {metric} {value:.4f}")

    def _batches(self, epoch: int) -> Iterator[tuple[TrainingBatch, ...]]:
        """Yield the batches of each step; a last step with fewer batches is dropped."""
        batches = iter(self.learner.batches(epoch))
        return zip(*[batches] * self.run.config.training.batches_per_step, strict=False)

    def _step(self, batches: Sequence[TrainingBatch]) -> float:
        """Run one optimiser step with the mean gradient of the batches; returns their mean loss."""
        total = 0.0
        self.optimiser.zero_grad(set_to_none=not self.is_recorded)
        for batch in batches:
            total += float(self.compute(batch))
        nn.utils.clip_grad_norm_(self.model.parameters(), self.run.config.training.max_grad_norm)
        self.optimiser.step()
        self.schedule.step()
        return total

    def _add_gradients(self, batch: TrainingBatch) -> Tensor:
        """Add the gradients of a batch, divided by the number of batches of a step; returns its loss, divided alike."""
        device = self.run.device
        on_device = tuple(tensor.to(device, non_blocking=True) for tensor in batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = self.learner.loss(self.model, on_device) / self.run.config.training.batches_per_step
        loss.backward()
        return loss.detach()

    def _save(self, name: str) -> None:
        """Write a checkpoint to the run folder: best.pt with the weights, last.pt with all that a resumed run needs."""
        state: dict[str, Any] = {"model": self.model.state_dict()}
        if name == LAST:
            state["optimiser"] = self.optimiser.state_dict()
            state["schedule"] = self.schedule.state_dict()
            state["generator"] = torch.get_rng_state()
        self.run.save(name, self.progress, state)


def duration(seconds: float) -> str:
    """Rounded duration in words."""
    minutes = math.ceil(seconds / 60)
    if minutes <= 1:
        return "about a minute or less"
    return f"about {minutes} minutes" if minutes < 120 else f"about {minutes / 60:.0f} hours"


def parameter_groups(model: nn.Module, learning_rate: float) -> list[dict[str, Any]]:
    """Parameter groups with the recipe's learning rate times the model's `rates` (multiplier by name prefix)."""
    rates: dict[str, float] = getattr(model, "rates", {})
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        factors = [factor for prefix, factor in rates.items() if name.startswith(prefix)]
        groups.setdefault(factors[0] if factors else 1.0, []).append(parameter)
    return [{"params": group, "lr": learning_rate * factor} for factor, group in groups.items()]


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block; a checkpoint in the middle of a step could not be resumed."""
    is_main = threading.current_thread() is threading.main_thread()  # only it can set signal handlers
    signals = [number for number in (signal.SIGINT, signal.SIGTERM) if is_main and is_ctrl_c(number)]
    received: list[int] = []
    for number in signals:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number in signals:
            signal.signal(number, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt


@contextmanager
def terminate_like_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C in the block, so that a terminated run can be resumed from the same step."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def is_ctrl_c(number: int) -> bool:
    """Whether a signal raises KeyboardInterrupt, as SIGINT does by default."""
    return signal.getsignal(number) is signal.default_int_handler


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory in bytes: allocated on the GPU, or resident memory of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"
