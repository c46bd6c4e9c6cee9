"""Attributes the nodes of exported graphs to parts of the model. Used by `benchmarks.models.graph_profile`.

The exporter notes for each node the module that it belongs to. The files of exports have no such notes. A model of the
same architecture with random weights is therefore exported again, and its nodes are matched with those of the file.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from model.export.graphs import onnx_program
from model.nn.classifier import WordClassifier
from model.nn.matcher import Matcher
from model.runs.load import task_of_export
from model.tasks.graphs import ExportGraph
from model.tasks.two_views import NGRAMS

WORDS, VOCABULARY, NGRAM_VIEW, TOKENS = "word finder", "vocabulary look-ups", "n-gram view", "token means"
EMBEDDING, SMOOTHER, SKELETON, MLP = "embedding", "smoother", "skeleton attention", "MLP"
NORMS, HEAD, OTHER = "norms and residuals", "head", "other"
PARTS = (WORDS, VOCABULARY, NGRAM_VIEW, TOKENS, EMBEDDING, SMOOTHER, SKELETON, MLP, NORMS, HEAD, OTHER)
OF_CLASS = {
    "WordHasher": WORDS,
    "Vocabulary": VOCABULARY,
    "NgramClassifier": NGRAM_VIEW,
    "NgramStem": EMBEDDING,
    "Smoother": SMOOTHER,
    "SkeletonAttention": SKELETON,
    "S3Attention": SKELETON,
}
"""Part of the nodes of a module and of the modules inside it; the innermost one counts."""


@dataclass(frozen=True)
class Node:
    """Node of a graph; scopes and classes are those of its module, from the model inwards."""

    name: str
    operator: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attribution:
    """Part of each node of a file by name, and how many nodes were attributed in which way."""

    parts: dict[str, str]
    same: int
    """Nodes with the name and the operator of an exported node, in the same order."""
    renumbered: int
    """Nodes that match an exported one except for the number in the name."""
    between: int
    """Nodes without a match, between two nodes of the same part."""


def build(folder: Path) -> ExportGraph:
    """The main graph of an export, with random weights."""
    manifest = read_manifest(folder)
    task = task_of_export(manifest, folder)
    if isinstance(manifest, ClassifierManifest) and manifest.training.ngram_view is not None:
        task = task.knowing(**{NGRAMS: manifest.training.ngram_view})
    torch.manual_seed(0)
    model: nn.Module = task.build().eval()
    if isinstance(model, WordClassifier):
        model.quantise()
    if isinstance(model, Matcher):
        model.encoder.stem.quantise()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            # the exporter would drop products with 1, and the sum with the smallest prior
            if tensor.is_floating_point() and (name.endswith("prior") or bool((tensor == 1).all())):
                tensor.uniform_(0.5, 1.5)
    return task.graphs(model)[0]


def export_nodes(source: ExportGraph, path: Path | None = None) -> list[Node]:
    """Export a graph, to a file if a path is given; returns its nodes with their modules."""
    program = onnx_program(source, source.module.eval())
    if path is not None:
        program.save(path, external_data=False)
    return [
        Node(
            str(node.name),
            node.op_type,
            tuple(str(value.name) for value in node.inputs if value is not None),
            tuple(str(value.name) for value in node.outputs),
            _listed(node.metadata_props.get("pkg.torch.onnx.name_scopes")),
            tuple(
                name.rpartition(".")[2] for name in _listed(node.metadata_props.get("pkg.torch.onnx.class_hierarchy"))
            ),
        )
        for node in program.model.graph
    ]


def _listed(text: str | None) -> tuple[str, ...]:
    """Modules of a list in the metadata of a node, without the last entry, which is the node itself."""
    return tuple(ast.literal_eval(text)[:-1]) if text else ()


def file_nodes(graph: Any) -> list[Node]:
    """Nodes of a `GraphProto`."""
    return [Node(one.name, one.op_type, tuple(one.input), tuple(one.output)) for one in graph.node]


def part_of_module(scopes: Sequence[str], classes: Sequence[str]) -> str | None:
    """Part of the nodes of a module; None for those of the model itself and for unknown modules."""
    for name in reversed(classes):
        if name in OF_CLASS:
            return OF_CLASS[name]
    if any(scope.endswith(".mlp") for scope in scopes):
        return MLP
    if "LayerNorm" in classes or "Block" in classes:
        return NORMS
    if "ByteEncoder" in classes or scopes[-1:] == ("embedding",):
        return EMBEDDING
    return HEAD if scopes[1:2] in (("head",), ("linear",)) else None


def parts_of_export(nodes: Sequence[Node]) -> list[str | None]:
    """Part of each node of an export with modules; None if the exporter noted no module.

    Nodes of the model itself are its head, except in a `WordClassifier`: those from the look-up to the n-gram view find
    the known n-grams and belong to the look-up; those from there to the first norm, if any, are the token means.
    """
    parts = [part_of_module(node.scopes, node.classes) for node in nodes]
    is_root = [part is None and node.scopes == ("",) for part, node in zip(parts, nodes, strict=True)]
    after = {VOCABULARY: VOCABULARY, NGRAM_VIEW: TOKENS if NORMS in parts else HEAD, NORMS: HEAD}
    of_root, found = HEAD, list[str | None]()
    for part, is_one in zip(parts, is_root, strict=True):
        of_root = after.get(part or "", of_root)
        found.append(of_root if is_one else part)
    return found


def attribute(nodes: Sequence[Node], exported: Sequence[Node]) -> Attribution:
    """Parts of the nodes of a file, from the nodes of the export with modules.

    Nodes are matched in order by operator and by name without its number. Nodes without a match take the part of the
    matched nodes around them, if that is one part, and no part otherwise.
    """
    of_file, of_export = (
        [(re.sub(r"_\d+", "", node.name), node.operator) for node in side] for side in (nodes, exported)
    )
    of_exported = parts_of_export(exported)
    found: list[str | None] = [None] * len(nodes)
    matched: list[int] = []
    same = 0
    for block in SequenceMatcher(a=of_file, b=of_export, autojunk=False).get_matching_blocks():
        for i, j in zip(range(block.a, block.a + block.size), range(block.b, block.b + block.size), strict=True):
            found[i] = of_exported[j]
            matched.append(i)
            same += nodes[i].name == exported[j].name
    between = 0
    for left, right in pairwise(matched):
        if right > left + 1 and found[left] == found[right] is not None:
            found[left + 1 : right] = [found[left]] * (right - left - 1)
            between += right - left - 1
    parts = {node.name: part for node, part in zip(nodes, found, strict=True) if part is not None}
    return Attribution(parts, same, len(matched) - same, between)


def attribute_optimised(
    optimised: Sequence[Node], nodes: Sequence[Node], parts: Mapping[str, str]
) -> tuple[dict[str, str], set[str]]:
    """Part of each node of the optimised graph by name, from those of the file's nodes; and the nodes that are guessed.

    An optimised node has the part of the node of its name, or else of the node that computed one of its outputs. Nodes
    that ONNX Runtime inserted, such as changes of layout, and nodes without a module are guessed: they take the part of
    the node that computes an input, or else of a node that reads an output, or else are `other`.
    """
    of_tensor = {name: parts[node.name] for node in nodes if node.name in parts for name in node.outputs}
    found: dict[str, str] = {}
    guessed: set[str] = set()
    for node in optimised:
        convolved = node.name.removesuffix("_nchwc")  # ONNX Runtime names a convolution after its output
        part = parts.get(node.name.partition("/")[0]) or _first(of_tensor, (convolved, *node.outputs))
        if part is None:
            guessed.add(node.name)
            part = _first(of_tensor, node.inputs)
        if part is not None:
            found[node.name] = part
            of_tensor |= {name: part for name in node.outputs if name not in of_tensor}
    read_by: dict[str, str] = {}
    for node in reversed(optimised):
        part = found.setdefault(node.name, _first(read_by, node.outputs) or OTHER)
        if part != OTHER:
            read_by |= dict.fromkeys(node.inputs, part)
    return found, guessed


def _first(of_tensor: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((of_tensor[name] for name in names if name in of_tensor), None)
