"""Recipes stored in checkpoints and manifests, including four earlier formats.

Before `[model.encoder.options]` existed, the options of `s3` were keys of `model.encoder`, for every attention. Before
`[model.ngram_view]` existed, classifiers had a section `[model.stem]`, and classifiers of words (`kind = "words"`) read
patches of `stem.patch_length` bytes. Before `[model.ngram_vectors]` existed, the vector view read words, whose vectors
had a section `[model.vector_view.vectors]`. Before `model.ngram_view.sizes` existed, kind `paper` was called `bytes`.
Only this module still accepts these keys; in a recipe for training they are an error.
"""

from typing import Any

from model.config.attentions import S3Options
from model.config.run import RUNS, ClassificationRun, RunConfig, from_dict


def from_stored(recipe: dict[str, Any]) -> RunConfig:
    """Create the recipe stored in a checkpoint or a manifest. Raises: ValueError naming the key."""
    model = recipe.get("model")
    if not isinstance(model, dict) or not isinstance(encoder := model.get("encoder"), dict):
        return from_dict(recipe)
    if S3Options.model_fields.keys() & encoder.keys():
        model = {**model, "encoder": _with_options(encoder)}
    if RUNS.get(recipe.get("task", "")) is ClassificationRun and isinstance(model.get("stem"), dict):
        model = _with_ngram_view(model)
        if isinstance(data := recipe.get("data"), dict):  # only the vector view read these
            recipe = {**recipe, "data": {**data, "unlabelled": False}}
    if isinstance(view := model.get("vector_view"), dict) and "vectors" in view:
        model = {**model, "vector_view": _with_ngrams(view)}
    if model.get("kind") == "bytes" and "sizes" not in model.get("ngram_view", ()):
        model = {**model, "kind": "paper"}
    return from_dict({**recipe, "model": model})


def _with_options(encoder: dict[str, Any]) -> dict[str, Any]:
    """Move the options of `s3` to the section `options`, or drop them for other attentions."""
    options = {key: encoder[key] for key in S3Options.model_fields if key in encoder}
    kept = {key: value for key, value in encoder.items() if key not in options}
    return kept if kept.get("attention", "s3") != "s3" else {**kept, "options": options}


def _with_ngram_view(model: dict[str, Any]) -> dict[str, Any]:
    """Replace the section `stem` by the n-gram view with the same lengths."""
    kept = {key: value for key, value in model.items() if key not in ("stem", "vector_view")}
    if kept.get("kind") == "bytes":
        return kept
    stem, vectors = model["stem"], model.get("vector_view")
    if isinstance(vectors, dict):
        length = vectors.get("max_length", 4096)
    else:
        length = model["encoder"].get("seq_len", 0) * stem.get("patch_length", 16)
    lengths = {"longest": stem.get("longest", 3), "num_ngrams": stem.get("num_slots", 65_536), "max_length": length}
    return {**kept, "kind": "words", "ngram_view": lengths}


def _with_ngrams(view: dict[str, Any]) -> dict[str, Any]:
    """Replace the keys of a vector view that reads words."""
    rounds = [
        {"ngram_dropout" if key == "word_dropout" else key: value for key, value in one.items()}
        for one in view.get("rounds", ())
    ]
    return {**{key: value for key, value in view.items() if key != "vectors"}, "rounds": rounds}
