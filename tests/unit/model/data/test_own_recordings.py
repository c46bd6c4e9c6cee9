"""What follows from a user's recordings, and what evaluation needs of them."""

from pathlib import Path

import numpy as np
import pytest

from artifact.tables.recordings import LabelledRecording, RecordingFile
from model.config.data import RecordingsConfig
from model.data.own_recordings import OwnRecordings, check_columns, model_keys, patch_of
from model.errors import UserError


def source(**columns: str) -> OwnRecordings:
    """Four recordings."""
    rows = tuple(
        LabelledRecording(f"a.csv:{n}", "", np.full((3, 1), float(n)), "ab"[n % 2], **columns) for n in range(4)
    )
    return OwnRecordings(RecordingFile(Path("a.csv"), ("x",), None, rows, ()))


@pytest.mark.parametrize(
    ("config", "columns", "option"),
    [
        ({"group_column": "who"}, "group", "--group-column"),
        ({"split_column": "part"}, "split", "--set data.split_column"),
    ],
)
def test_groups_and_splits_of_training_are_needed(config: dict[str, str], columns: str, option: str) -> None:
    section = RecordingsConfig.model_validate({"name": "own", **config})
    check_columns(source(**{columns: "p"}), section)
    check_columns(source(), RecordingsConfig(name="own"))
    (name,) = config.values()
    with pytest.raises(UserError) as caught:
        check_columns(source(), section)
    assert str(caught.value) == f"a.csv: no recording has a value of {name!r}, the {option} of training"


@pytest.mark.parametrize("length", [9, 96, 97, 1_250, 4_096])
def test_patches_are_few_and_of_an_allowed_length(length: int) -> None:
    patch = patch_of(length)
    assert patch % int(patch**0.5) == 0
    assert -(-length // patch) <= 96


def test_steps_follow_from_the_number_of_recordings() -> None:
    for count, batch, steps in ((8, 4, 1_200), (100, 16, 1_200), (1_500, 16, 1_200), (16_000, 64, 2_500)):
        keys = model_keys([50] * count, {})
        assert keys["training.batch_size"] == batch
        assert keys["training.epochs"] == 10
        assert keys["training.examples_per_epoch"] == batch * steps // 10


def test_given_keys_win() -> None:
    keys = model_keys([50] * 20, {"model.length": 200, "model.encoder.attention": "softmax"})
    assert (keys["model.length"], keys["model.patch_length"], keys["model.encoder.seq_len"]) == (200, 3, 68)
    assert "model.encoder.options.num_rows" not in keys
