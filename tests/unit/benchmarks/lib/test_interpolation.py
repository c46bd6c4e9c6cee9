"""Values between measured ones."""

from benchmarks.lib.interpolation import linear


def test_values_between_and_beyond_measured_ones_are_on_lines() -> None:
    table = {16: 4.0, 4: 1.0, 24: 4.5}
    assert [linear(table, at) for at in (1, 4, 8, 16, 20, 40)] == [1.0, 1.0, 2.0, 4.0, 4.25, 5.5]
    assert [linear({4: 1.0}, at) for at in (1, 8)] == [1.0, 1.0]
