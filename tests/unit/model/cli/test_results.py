"""Tables of results."""

import pytest

from artifact.manifest import Result
from model.cli.results import behind_baseline, print_results


def result(metric: str, value: float, compared_with: str = "nothing", examples: int = 120) -> Result:
    return Result(
        metric=metric,
        value=value,
        split="test",
        examples=examples,
        condition="windows",
        seeds=(0,),
        compared_with=compared_with,
    )


def test_baseline_and_manifest_are_beside_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    results = [result("accuracy", 0.5, "TF-IDF and more: 0.7500"), result("ece", 0.25)]
    print_results(results, ["a note"], [result("ece", 0.5)])
    assert capsys.readouterr().out.splitlines() == [
        "metric    condition  split    n   value  manifest  TF-IDF",
        "accuracy  windows    test   120  0.5000            0.7500",
        "ece       windows    test   120  0.2500    0.5000",
        "a note",
        "warning: this model is behind TF-IDF and more: accuracy (windows) 0.5000, baseline 0.7500",
    ]


def test_columns_without_content_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_results([result("accuracy", 0.5)])
    assert capsys.readouterr().out.splitlines()[0] == "metric    condition  split    n   value"


@pytest.mark.parametrize(
    ("examples", "lines"), [(6, ["only 6 examples were measured: each is 16.7 % of them"]), (50, [])]
)
def test_few_examples_are_told(examples: int, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    print_results([result("accuracy", 1.0, examples=examples)])
    assert capsys.readouterr().out.splitlines()[2:] == lines


@pytest.mark.parametrize(("ours", "is_behind"), [(0.62, True), (0.64, False), (0.76, False)])
def test_model_is_behind_if_its_value_is_lower_by_two_standard_errors(ours: float, is_behind: bool) -> None:
    """Of 120 examples: the standard error of the difference is about 0.059."""
    assert bool(behind_baseline([result("auc", ours, "TF-IDF cosine: 0.7500")])) == is_behind
