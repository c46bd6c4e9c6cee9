"""Attribution of the nodes of exported graphs to parts of the model."""

import onnx
import pytest

from artifact.exports import version_folder
from benchmarks.models.graph_parts import (
    HEAD,
    MLP,
    NGRAM_VIEW,
    NORMS,
    OTHER,
    SKELETON,
    SMOOTHER,
    TOKENS,
    VOCABULARY,
    WORDS,
    Attribution,
    Node,
    attribute,
    attribute_optimised,
    build,
    export_nodes,
    file_nodes,
    parts_of_export,
)
from tests.support.paths import ROOT

MODEL = ("", "WordClassifier")
BLOCKS = [("v.blocks", "Blocks"), ("v.blocks.0", "Block")]
ATTENTION = [*BLOCKS, ("v.blocks.0.attention", "S3Attention")]


def node(name: str, operator: str, *modules: tuple[str, str]) -> Node:
    scopes, classes = zip(MODEL, *modules, strict=True)
    return Node(name, operator, scopes=scopes, classes=classes)


@pytest.mark.parametrize("has_vector_view", [True, False])
def test_nodes_of_the_classifier_itself_belong_to_the_part_before(has_vector_view: bool) -> None:
    names = [
        ("", HEAD),
        ("look-up", VOCABULARY),
        ("", VOCABULARY),
        ("n-gram view", NGRAM_VIEW),
        ("", TOKENS if has_vector_view else HEAD),
        *([("norm", NORMS), ("", HEAD)] if has_vector_view else []),
    ]
    modules = {
        "look-up": [("ngram_view", "NgramClassifier"), ("ngram_view.vocabulary", "Vocabulary")],
        "n-gram view": [("ngram_view", "NgramClassifier")],
        "norm": [("vector_view.norm", "LayerNorm")],
    }
    nodes = [
        node(f"n{i}", "Add", *modules[name])
        if name
        else Node(f"n{i}", "Add", scopes=("",), classes=("WordClassifier",))
        for i, (name, _) in enumerate(names)
    ]
    assert parts_of_export(nodes) == [part for _, part in names]


def test_nodes_are_matched_in_order_by_operator_and_name_without_number() -> None:
    exported = [
        node("node_mul_1", "Mul", ("words", "WordHasher")),
        node("node_cat_2", "Concat", ("words", "WordHasher")),
        node("node_add_7", "Add", ("ngram_view", "NgramClassifier")),
        node("node_sum_9", "ReduceSum", ("vocabulary", "Vocabulary")),
    ]
    nodes = [
        Node("node_mul_1", "Mul"),  # the same
        Node("node_neg", "Neg"),  # between two of the word finder
        Node("node_cat_5", "Concat"),  # another number
        Node("node_sub", "Sub"),  # between two parts
        Node("node_add_7", "Add"),
        Node("node_sum_9", "ReduceMax"),  # another operator
    ]
    expected = {"node_mul_1": WORDS, "node_neg": WORDS, "node_cat_5": WORDS, "node_add_7": NGRAM_VIEW}
    assert attribute(nodes, exported) == Attribution(expected, same=2, renumbered=1, between=1)


def test_optimised_nodes_take_parts_by_name_then_outputs_then_neighbours() -> None:
    nodes = [
        Node("m", "MatMul", ("x", "w"), ("y",)),
        Node("t", "Transpose", ("y",), ("z",)),
        Node("g", "Gelu", ("z",), ("u",)),
        Node("c", "Conv", ("u",), ("v",)),
    ]
    parts = {"m": SMOOTHER, "t": SKELETON, "g": MLP, "c": HEAD}
    optimised = [
        Node("first", "Shape", ("x",), ("n",)),
        Node("m/Fusion/", "FusedMatMul", ("x", "n"), ("z",)),  # computes the output of t; named after m
        Node("fused", "BiasGelu", ("z",), ("u",)),
        Node("reorder", "ReorderInput", ("u",), ("new",)),
        Node("v_nchwc", "Conv", ("new",), ("newer",)),
        Node("back", "ReorderOutput", ("newer",), ("v",)),
        Node("alone", "Shape", ("q",), ("r",)),
    ]
    found, guessed = attribute_optimised(optimised, nodes, parts)
    assert found == {
        "first": SMOOTHER, "m/Fusion/": SMOOTHER, "fused": MLP, "reorder": MLP, "v_nchwc": HEAD, "back": HEAD,
        "alone": OTHER,
    }  # fmt: skip
    assert guessed == {"first", "reorder", "alone"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scotus", "imdb-s3"])
def test_shipped_file_has_the_names_and_operators_of_a_new_export(name: str) -> None:
    folder = version_folder(ROOT / "exports" / name)
    nodes, exported = file_nodes(onnx.load(folder / "model.onnx").graph), export_nodes(build(folder))
    named = [one for one in nodes if one.name]  # others compute tables of one value
    assert {one.operator for one in nodes if not one.name} <= {"ConstantOfShape"}
    assert [(one.name, one.operator) for one in named] == [(one.name, one.operator) for one in exported]
    found = attribute(named, exported)
    assert found.same == len(named)
    assert len(found.parts) >= 0.97 * len(named)
