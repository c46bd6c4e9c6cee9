"""Recipes stored in checkpoints and manifests, including the format before `[model.encoder.options]` existed.

In that format, the options of `s3` were keys of `model.encoder`, for every attention. Only this module still accepts
them there; in a recipe for training they are an error.
"""

from typing import Any

from model.config.attentions import S3Options
from model.config.run import RunConfig, from_dict


def from_stored(recipe: dict[str, Any]) -> RunConfig:
    """Create the recipe stored in a checkpoint or a manifest. Raises: ValueError naming the key."""
    model = recipe.get("model")
    encoder = model.get("encoder") if isinstance(model, dict) else None
    if isinstance(model, dict) and isinstance(encoder, dict) and S3Options.model_fields.keys() & encoder.keys():
        return from_dict({**recipe, "model": {**model, "encoder": _with_options(encoder)}})
    return from_dict(recipe)


def _with_options(encoder: dict[str, Any]) -> dict[str, Any]:
    """Move the options of `s3` to the section `options`, or drop them for other attentions."""
    options = {key: encoder[key] for key in S3Options.model_fields if key in encoder}
    kept = {key: value for key, value in encoder.items() if key not in options}
    return kept if kept.get("attention", "s3") != "s3" else {**kept, "options": options}
