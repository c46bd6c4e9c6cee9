from pathlib import Path

from matplotlib import image, pyplot

from artifact.tasks.classification import ReliabilityBin
from model.training.plot import plot_learning_curve, plot_reliability


def test_learning_curve_is_drawn_for_any_number_of_epochs(tmp_path: Path) -> None:
    record = {"epoch": 1, "training_loss": 0.7, "validation_auc": 0.6}
    for count in (0, 1, 3):
        history = [record | {"epoch": epoch} for epoch in range(1, 1 + count)]
        plot_learning_curve(history, "auc", tmp_path / f"{count}.png")
        assert image.imread(tmp_path / f"{count}.png").shape[:2] == (352, 990)
    assert (tmp_path / "1.png").read_bytes() != (tmp_path / "3.png").read_bytes()
    assert pyplot.get_fignums() == []


def test_reliability_diagram_is_drawn(tmp_path: Path) -> None:
    bins = [ReliabilityBin(score=0.6, accuracy=0.5, examples=3), ReliabilityBin(score=0.9, accuracy=1.0, examples=7)]
    plot_reliability(bins, tmp_path / "two.png")
    plot_reliability(bins[:1], tmp_path / "one.png")
    assert image.imread(tmp_path / "two.png").shape[:2] == (396, 990)
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()
    assert pyplot.get_fignums() == []
