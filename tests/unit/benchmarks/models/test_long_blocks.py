"""The benchmark of blocks over long documents: batches of tokens, blocks and the report."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.lib.record import Record
from benchmarks.models.long_blocks import (
    BLOCKS,
    SETS,
    Inputs,
    TokenClassifier,
    TokenTask,
    config_of,
    draw,
    gain,
    padded,
    part_of,
    report,
    spread,
    train,
    view_of,
)
from benchmarks.models.long_documents import digits

SPLITS = ("train", "validation", "test")


def inputs_of(classes: int, dim: int, documents: int = 64) -> Inputs:
    """Documents of 1 to 5 tokens, each of which tells the class."""
    generator = torch.Generator().manual_seed(0)
    labels = np.arange(documents) % classes
    tokens = []
    for number, label in enumerate(labels):
        rows = torch.randn(1 + number % 5, dim, generator=generator)
        rows[:, label] += 8
        tokens.append(rows.half())
    ngrams = np.zeros((documents, classes), dtype=np.float32)
    return Inputs(dict.fromkeys(SPLITS, labels), dict.fromkeys(SPLITS, tokens), {"validation": ngrams, "test": ngrams})


def test_documents_are_padded_with_zeros() -> None:
    rows, counts = padded([torch.ones(2, 3).half(), torch.ones(1, 3).half()])
    assert rows.tolist() == [[[1, 1, 1], [1, 1, 1]], [[1, 1, 1], [0, 0, 0]]]
    assert counts.tolist() == [2, 1]


@pytest.mark.parametrize("block", BLOCKS)
def test_padding_and_other_documents_do_not_change_logits(block: str) -> None:
    config = config_of("scotus", block)
    view = view_of(config)
    torch.manual_seed(0)
    model = TokenClassifier(config.model.required_encoder, view, 9).eval()
    inputs = inputs_of(9, config.model.required_encoder.dim, 8)
    task = TokenTask(inputs, 0)
    alone = [
        model(rows, counts, counts).detach().numpy()[0] for rows, counts in (padded([t]) for t in inputs.tokens["test"])
    ]
    assert task.logits(model, "test") == pytest.approx(np.array(alone), abs=1e-4)


def test_epoch_has_each_document_once_in_another_order() -> None:
    inputs = inputs_of(4, 8)
    task = TokenTask(inputs, 0)
    orders = []
    for epoch in (0, 1, 0):
        found = [counts for _, counts, _ in task.batches(epoch)]
        assert [len(counts) for counts in found] == [32, 32]
        labels = torch.cat([labels for *_, labels in task.batches(epoch)])
        assert labels.bincount().tolist() == [16] * 4
        orders.append(torch.cat(found).tolist())
    assert orders[0] == orders[2] != orders[1]


def test_parts_are_consecutive_tokens_of_any_length_from_the_shortest() -> None:
    tokens, generator = torch.arange(5.0).unsqueeze(1), random.Random(0)
    found = {tuple(part_of(tokens, generator).flatten().tolist()) for _ in range(200)}
    assert found == {tuple(range(start, start + count)) for count in (3, 4, 5) for start in range(6 - count)}


def test_epochs_read_other_parts_of_the_same_documents() -> None:
    inputs = inputs_of(4, 8)
    whole, parts = TokenTask(inputs, 0), TokenTask(inputs, 0, has_parts=True)
    read = []
    for epoch in (0, 1, 0):
        pairs = list(zip(whole.batches(epoch), parts.batches(epoch), strict=True))
        assert all(torch.equal(labels, same) for (*_, labels), (*_, same) in pairs)
        assert all((2 * fewer >= counts).all() and (fewer <= counts).all() for (_, counts, _), (_, fewer, _) in pairs)
        read.append(sum(int(counts.sum()) for _, (_, counts, _) in pairs))
        assert read[-1] < sum(map(len, inputs.tokens["train"]))
    assert read[0] == read[2]


def test_block_is_trained_and_combined(tmp_path: Path) -> None:
    inputs = inputs_of(4, config_of("scotus", "none").model.required_encoder.dim, 640)
    found = train({"documents": "scotus", "block": "none", "seed": 0}, inputs, tmp_path)
    assert found["alone"] == found["correct"] == "1" * 640
    assert found["ngrams"] == digits(inputs.labels["test"] == 0)
    assert found["weights"][1] > 0


def test_spread_and_gain() -> None:
    assert spread([1.0, 3.0]) == "2.0 ± 1.4"
    assert spread([1.0]) == "1.0"
    rows = [{"correct": "1110", "ngrams": "1010"}, {"correct": "1010", "ngrams": "1010"}]
    # Means over the seeds: 0, 1/2, 0, 0; mean 1/8, standard deviation 1/4.
    assert gain(rows) == "+12.5 ± 12.5"


def test_report_and_chart_have_every_block_of_the_record(tmp_path: Path) -> None:
    shared = {"recipe": "", "revision": "r", "validation": 0.5, "weights": [1.0, 0.25], "seconds": 2.0}
    results = [
        {"documents": name, "block": block, "seed": seed, **shared, "alone": "10", "correct": "11", "ngrams": "01"}
        for name in SETS
        for block in BLOCKS
        for seed in range(3)
    ]
    record = Record("long_blocks", "p", "c", "d", "r", {"cpu": "x"}, {}, {}, {"results": results})
    text = report(record)
    for name in SETS:
        assert text.count(f"| {name} ") == len(BLOCKS)
    assert "+50.0 ± 50.0" in text
    draw(record, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 1000
