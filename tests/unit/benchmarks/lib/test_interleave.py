"""Interleaved measurements: their order, and the time of a call."""

import functools

from benchmarks.lib.interleave import interleave


def test_each_round_starts_with_another_turn() -> None:
    order: list[str] = []

    def turn(name: str) -> int:
        order.append(name)
        return len(order)

    measured = interleave({name: functools.partial(turn, name) for name in "abc"}, 3, warm_up=1)
    assert {name: len(values) for name, values in measured.items()} == {"a": 3, "b": 3, "c": 3}
    rounds = ["".join(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert rounds == ["cab", "abc", "bca", "cab"]
    assert measured["a"] == [4, 9, 11]  # the first round is dropped
