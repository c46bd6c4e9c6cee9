"""Recipes of checkpoints and manifests, also of those that were written before `s3` had a section of options.

Until then, options of `s3` stood in `model.encoder` itself, whatever the attention. This is the only place that still
reads them there: in a recipe that is about to be trained they are an error.
"""

from typing import Any

from model.config.attentions import S3Options
from model.config.run import RunConfig, from_dict


def from_stored(recipe: dict[str, Any]) -> RunConfig:
    """Build the run that a checkpoint or a manifest records. Raises: ValueError naming the key."""
    model = recipe.get("model")
    encoder = model.get("encoder") if isinstance(model, dict) else None
    if isinstance(model, dict) and isinstance(encoder, dict) and S3Options.model_fields.keys() & encoder.keys():
        return from_dict({**recipe, "model": {**model, "encoder": _with_options(encoder)}})
    return from_dict(recipe)


def _with_options(encoder: dict[str, Any]) -> dict[str, Any]:
    """The encoder's section with the options of `s3` where they are now, and without them for other attentions."""
    options = {key: encoder[key] for key in S3Options.model_fields if key in encoder}
    kept = {key: value for key, value in encoder.items() if key not in options}
    return kept if kept.get("attention", "s3") != "s3" else {**kept, "options": options}
