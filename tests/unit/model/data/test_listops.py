"""Generated ListOps expressions: values, shape and splits."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.data import listops


def value_of(expression: str) -> int:
    """Evaluate by rewriting the innermost brackets, unlike the generator."""
    while len(expression) > 1:
        end = expression.index("]")
        start = max(expression.rfind(operator, 0, end) for operator in "XNDS")
        digits = [int(digit) for digit in expression[start + 1 : end]]
        operator = expression[start]
        if operator == "D":
            ordered = sorted(digits)
            value = (ordered[(len(digits) - 1) // 2] + ordered[len(digits) // 2]) // 2
        else:
            value = {"X": max(digits), "N": min(digits), "S": sum(digits) % 10}[operator]
        expression = expression[:start] + str(value) + expression[end + 1 :]
    return int(expression)


@given(seed=st.integers(0, 2**32))
def test_values_are_correct_and_lengths_within_bounds(seed: int) -> None:
    text, value = listops.expression(random.Random(seed), 20, 200)
    assert 20 <= len(text) <= 200
    assert value == value_of(text.decode())


def test_known_expressions_have_their_values() -> None:
    """Includes [MAX 4 3 [MIN 2 3] 1 0 [MEDIAN 1 5 8 9 2]], the example of the Long Range Arena paper."""
    assert value_of("X43N23]10D15892]]") == 5
    assert value_of("D1234]") == 2
    assert value_of("S99X05]]") == 3


def test_expressions_have_the_published_shape() -> None:
    generator = random.Random(0)
    texts = [listops.expression(generator, 500, 2000)[0].decode() for _ in range(20)]
    for text in texts:
        assert set(text) <= set("XNDS]0123456789")
        assert text[0] in "XNDS"
        depth = deepest = 0
        arguments = [0]
        for token in text:
            if token == "]":
                depth -= 1
                assert 2 <= arguments.pop() <= listops.MAX_ARGUMENTS
                continue
            arguments[-1] += 1
            if token in "XNDS":
                depth += 1
                arguments.append(0)
            deepest = max(deepest, depth)
        assert depth == 0
        assert deepest < listops.MAX_DEPTH


def test_splits_are_fixed_and_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(listops, "SIZES", {"train": 5, "test": 5})
    train = listops.read_short(tmp_path, "train")
    assert train == listops.read_short(tmp_path, "train")
    assert not {text for text, _ in train} & {text for text, _ in listops.read_short(tmp_path, "test")}
    assert all(100 <= len(text) <= 500 for text, _ in train)
    assert all(500 <= len(text) <= 2000 for text, _ in listops.read(tmp_path, "test"))
