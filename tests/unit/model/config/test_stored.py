import json
from pathlib import Path
from typing import Any

import pytest

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.recipes import find_recipe, load_recipe
from model.config.run import from_dict
from model.config.stored import from_stored
from tests.support.paths import ROOT


def older(name: str, *overrides: str) -> dict[str, Any]:
    """Return a recipe in the old format, with the options of s3 directly in the encoder for every attention."""
    recipe = load_recipe(find_recipe(name), list(overrides)).to_dict()
    encoder = recipe["model"]["encoder"]
    if encoder["attention"] == "s3":
        recipe["model"]["encoder"] = encoder | encoder["options"] | {"options": {}}
    else:
        recipe["model"]["encoder"] = encoder | S3Options().model_dump()
    return recipe


@pytest.mark.parametrize("name", ["synthetic", "synthetic-pairs", "synthetic-series"])
@pytest.mark.parametrize("overrides", [(), ("model.encoder.options.use_stem=false",), ("model.encoder.attention=dba",)])
def test_recipe_in_the_old_format_is_converted(name: str, overrides: tuple[str, ...]) -> None:
    expected = load_recipe(find_recipe(name), list(overrides))
    recipe = older(name, *overrides)
    assert from_stored(recipe) == expected
    assert from_stored(expected.to_dict()) == expected
    assert recipe == older(name, *overrides)
    with pytest.raises(ValueError, match=r"must be in \[model\.encoder\.options\]"):
        from_dict(recipe)


@pytest.mark.parametrize("recipe", [{}, {"model": 3}, {"task": "forecasting", "model": {"encoder": 3}}])
def test_invalid_stored_recipe_is_an_error(recipe: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"task must be|missing key|must be a section"):
        from_stored(recipe)


@pytest.mark.parametrize("path", sorted(ROOT.glob("exports/*/*/manifest.json")), ids=lambda path: path.parts[-3])
def test_recipes_of_the_repositorys_manifests_are_read(path: Path) -> None:
    recipe = json.loads(path.read_text())["training"]["recipe"]
    config = from_stored(recipe)
    encoder = config.model.encoder
    assert isinstance(encoder, EncoderConfig)
    for key, value in recipe["model"]["encoder"].items():
        if key in S3Options.model_fields:
            assert getattr(encoder.options_of(S3Options), key) == value
        elif key not in ("options", "dropout"):
            assert getattr(encoder, key) == value
