"""`python -m benchmarks.models.forecast_plots`: plots one test window of each shipped forecaster -> docs/forecasts.png.

Shows history, truth, forecast and 80 % band of the last channel, for the window in the middle of the test split;
windows are not hand-picked. Computed by the serving backend.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from artifact.loading import load_export
from artifact.manifest import ForecasterManifest, version_folder
from benchmarks.lib import chart
from benchmarks.lib.benchmark import add_data_dir
from model.config.run import ForecastingRun
from model.config.stored import from_stored
from model.data.series import load_series
from model.tasks.base import backend_run

NAMES = ("ettm2", "exchange", "weather", "ili")
BAND = (0.1, 0.9)


def main() -> None:
    """Draw one panel per export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_dir(parser)
    parser.add_argument("--exports", default="exports", type=Path)
    parser.add_argument("--out", default="docs/forecasts.png", type=Path)
    args = parser.parse_args()
    figure, axes = chart.figure((11, 6), 2, rows=2)
    for panel, name in zip(axes, NAMES, strict=True):
        draw(panel, version_folder(args.exports / name), args.data_dir)
    axes[0].legend(fontsize=8)
    chart.save(figure, args.out)


def draw(panel: Axes, folder: Path, data_dir: Path) -> None:
    """Draw one window of one export, in the units of the data."""
    loaded = load_export(folder, device="cpu")
    manifest, calibration = loaded.manifest, loaded.calibration
    assert isinstance(manifest, ForecasterManifest)
    assert calibration is not None
    config = from_stored(manifest.training.recipe)
    assert isinstance(config, ForecastingRun)
    series = load_series(config.data, data_dir)
    windows = series.windows("test", manifest.context_length, manifest.horizon)
    window = windows[len(windows) // 2].T  # (context + horizon, channels)
    context = window[: manifest.context_length]
    forecast = backend_run(manifest, folder, "cpu")({"series": np.ascontiguousarray(context[None])})[0]
    low, high = (forecast + calibration.error(level, manifest.horizon) for level in BAND)

    def units(
        values: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Convert the last channel to the units of the data."""
        return values[:, -1].astype(np.float64) * manifest.scale[-1] + manifest.mean[-1]

    past, future = np.arange(-manifest.context_length, 0), np.arange(manifest.horizon)
    panel.plot(past, units(context), color="C0", label="history")
    panel.plot(future, units(window[manifest.context_length :]), color="black", linewidth=1, label="truth")
    panel.plot(future, units(forecast), color="C1", label="forecast")
    panel.fill_between(future, units(low), units(high), color="C1", alpha=0.25, label="80 % band")
    reliable = "" if manifest.quantiles_reliable else ", band not reliable"
    panel.set_title(f"{manifest.name}: {manifest.channels[-1]}{reliable}", fontsize=10)
    panel.set_xlabel(f"steps of {manifest.frequency}")


if __name__ == "__main__":
    main()
