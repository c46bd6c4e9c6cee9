from pathlib import Path

from matplotlib import image, pyplot

from artifact.tasks.labels import ReliabilityBin
from model.training.plot import plot_history, plot_reliability


def test_metrics_are_drawn_over_epochs_or_stages(tmp_path: Path) -> None:
    of_epochs = [{"epoch": epoch, "training_loss": 0.7, "validation_auc": 0.6} for epoch in (1, 2, 3)]
    of_stages = [{"stage": name, "validation_cross_entropy": 0.7, "validation_auc": 0.6} for name in ("a", "b")]
    for name, history in (("learning_curve.png", of_epochs), ("stages.png", of_stages)):
        plot_history(history, "auc", tmp_path)
        whole = (tmp_path / name).read_bytes()
        assert image.imread(tmp_path / name).shape[:2] == (352, 990)
        plot_history(history[:1], "auc", tmp_path)
        assert (tmp_path / name).read_bytes() != whole
    assert pyplot.get_fignums() == []


def test_reliability_diagram_is_drawn(tmp_path: Path) -> None:
    bins = [ReliabilityBin(score=0.6, accuracy=0.5, examples=3), ReliabilityBin(score=0.9, accuracy=1.0, examples=7)]
    plot_reliability(bins, tmp_path / "two.png")
    plot_reliability(bins[:1], tmp_path / "one.png")
    assert image.imread(tmp_path / "two.png").shape[:2] == (396, 990)
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()
    assert pyplot.get_fignums() == []
