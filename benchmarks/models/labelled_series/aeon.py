"""`python -m benchmarks.models.labelled_series.aeon`: the MiniRocket classifier of the package aeon.

Continues the record of `benchmarks.models.labelled_series`, on the same sets and seeds. Needs an environment of its
own, because aeon reads older versions of NumPy only: aeon and pydantic are enough. Recordings of unequal length are
stretched to the longest one of training.
"""

import argparse
from dataclasses import replace

import numpy as np
from aeon.classification.convolution_based import MiniRocketClassifier
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.recordings import resample
from artifact.series import impute
from artifact.tables.recordings import RecordingFile
from benchmarks.lib.benchmark import add_data_dir
from benchmarks.lib.record import read, write
from benchmarks.models.labelled_series.sets import AEON, packed, read_split, sets_of

NAME, SEEDS, SHORTEST = "labelled_series", 3, 9


def main() -> None:
    """Add the classifier of aeon to the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_dir(parser)
    args = parser.parse_args()
    record = read(NAME)
    runs = record.data.setdefault("aeon", [])
    done = {(run["set"], run["seed"]) for run in runs}
    for name in sets_of(args.data_dir):
        if all((name, seed) in done for seed in range(SEEDS)):
            continue
        train, test = (read_split(name, split, args.data_dir) for split in ("TRAIN", "TEST"))
        length = max(SHORTEST, *(len(one.values) for one in train.recordings))
        (x, y), (tested, labels) = _arrays(train, length), _arrays(test, length)
        for seed in range(SEEDS):
            if (name, seed) not in done:
                answers = MiniRocketClassifier(random_state=seed).fit(x, y).predict(tested)
                correct = {AEON: packed(answers == labels)}
                runs.append({"set": name, "seed": seed, "examples": len(labels), "correct": correct})
                print(f"{name}, seed {seed}: {100 * (answers == labels).mean():.1f} %", flush=True)
        write(replace(record, data=record.data))


def _arrays(file: RecordingFile, length: int) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    """Recordings (B, channels, length), and their labels."""
    values = [_stretched(one.values, length).T for one in file.recordings]
    return np.stack(values).astype(np.float32), np.array([one.label for one in file.recordings])


def _stretched(values: Doubles, length: int) -> Doubles:
    return resample(np.stack([impute(column) for column in values.T], axis=1), length)


if __name__ == "__main__":
    main()
