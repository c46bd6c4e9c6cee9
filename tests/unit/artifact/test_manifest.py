"""Fields of a manifest."""

import pytest

from artifact.manifest import Result

RESULT = {"metric": "m", "value": 0.5, "split": "test", "examples": 3, "condition": "all", "seeds": (0,)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", []),
        ("0.8", []),
        (
            "TF-IDF and logistic regression (sublinear_tf, min_df=2, C=0.5, fitted on 20,000 of 30,000): 0.8431",
            [
                (
                    "TF-IDF and logistic regression (sublinear_tf, min_df=2, C=0.5, fitted on 20,000 of 30,000)",
                    0.8431,
                )
            ],
        ),
        (
            "fastText-like 0.9073, TF-IDF and logistic regression 0.9049",
            [("fastText-like", 0.9073), ("TF-IDF and logistic regression", 0.9049)],
        ),
        ("MiniRocket and ridge: 0.9865; 1-NN DTW: 0.9595", [("MiniRocket and ridge", 0.9865), ("1-NN DTW", 0.9595)]),
        ("MiniRocket and ridge: 0.9865; 1-NN DTW would take 1e+12 cells", [("MiniRocket and ridge", 0.9865)]),
        (
            "repeat-last 6.213, seasonal naive (52 steps) 2.564; S3Attention 2.431, FEDformer 2.203 (paper, Table 2)",
            [
                ("repeat-last", 6.213),
                ("seasonal naive (52 steps)", 2.564),
                ("S3Attention (paper, Table 2)", 2.431),
                ("FEDformer (paper, Table 2)", 2.203),
            ],
        ),
    ],
)
def test_baselines_are_the_names_and_numbers_of_the_text(text: str, expected: list[tuple[str, float]]) -> None:
    result = Result.model_validate({**RESULT, "compared_with": text})
    assert [(one.name, one.value) for one in result.baselines] == expected
    assert Result.model_validate(result.model_dump()) == result
    assert Result.model_validate({**RESULT, "compared_with": text, "baselines": ()}).baselines == ()
