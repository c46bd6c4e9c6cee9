"""Files of labelled recordings: noisy waves of two speeds, in two channels."""

from pathlib import Path

import numpy as np

from artifact.arrays import Doubles

LABELS = ("slow", "fast")


def wave(label: str, number: int, steps: int = 40) -> Doubles:
    """A recording (steps, 2): a wave of the speed of its label, and noise."""
    generator = np.random.default_rng((number, LABELS.index(label)))
    period = {"slow": 20, "fast": 7}[label] * generator.uniform(0.9, 1.1)
    curve = np.sin(2 * np.pi * (np.arange(steps) / period + generator.random()))
    return np.column_stack([curve, np.zeros(steps)]) + 0.2 * generator.standard_normal((steps, 2))


def write_ts(path: Path, count: int, first: int = 0, steps: int = 40) -> Path:
    """Write `count` recordings of each label; every third one is shorter."""
    lines = ["@problemName waves", "@univariate false", "@dimensions 2", "@classLabel true slow fast", "@data"]
    for number in range(first, first + count):
        for label in LABELS:
            values = wave(label, number, steps - 5 * (number % 3 == 0))
            lines.append(":".join([*(",".join(f"{value:.4f}" for value in column) for column in values.T), label]))
    path.write_text("\n".join(lines) + "\n")
    return path
