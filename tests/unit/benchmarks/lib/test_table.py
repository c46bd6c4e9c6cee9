"""Tables and their cells."""

from benchmarks.lib import table


def test_tables_are_aligned() -> None:
    text = table.table(["name", "seeds", "value"], [["a", "3", "1.50"], ["longer", "12", "-0.25"]], left=1)
    assert text == (
        "| name   | seeds | value |\n"
        "| ------ | ----: | ----: |\n"
        "| a      |     3 |  1.50 |\n"
        "| longer |    12 | -0.25 |\n"
    )
    both = table.table(["", "b"], [["x", "y"]], left=2).splitlines()
    assert both == ["|     | b   |", "| --- | --- |", "| x   | y   |"]


def test_cells_show_the_spread() -> None:
    assert table.mean_and_deviation([1.0, 2.0, 3.0], ".1f") == "2.0 ± 1.0"
    assert table.mean_and_deviation([0.5]) == "0.500"
    assert table.median_and_range([3.0, 1.0, 8.0]) == "3 (1 to 8)"
    assert table.ratio([1.0, 6.0, 4.0], [2.0, 2.0, 2.0]) == "2.00"  # median of 0.5, 3 and 2
