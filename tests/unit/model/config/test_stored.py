import json
from pathlib import Path
from typing import Any

import pytest

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import NgramViewConfig
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun, from_dict
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


STEM = {"longest": 2, "num_slots": 1024, "patch_length": 8, "dropout": 0.5}
"""Section `stem` of the format before `ngram_view`."""


def classifier(recipe: dict[str, Any], **changes: object) -> ClassificationRun:
    """Read a stored recipe of a classifier with changes of its model."""
    config = from_stored({**recipe, "model": {**recipe["model"], **changes}})
    assert isinstance(config, ClassificationRun)
    return config


def without_views(name: str) -> dict[str, Any]:
    """Return a recipe without the sections that the format before `ngram_view` lacks."""
    recipe = load_recipe(find_recipe(name), ["model.encoder.seq_len=64"]).to_dict()
    del recipe["model"]["ngram_view"], recipe["model"]["vector_view"]
    return recipe


def test_kind_bytes_without_sizes_of_ngrams_is_the_published_model() -> None:
    recipe = load_recipe(find_recipe("imdb-paper"), []).to_dict()
    view = {key: value for key, value in recipe["model"]["ngram_view"].items() if key != "sizes"}
    assert classifier(recipe, kind="bytes", ngram_view=view).model.kind == "paper"
    assert classifier(load_recipe(find_recipe("imdb-bytes"), []).to_dict()).model.kind == "bytes"


def test_stem_of_a_byte_classifier_is_dropped() -> None:
    recipe = without_views("synthetic")
    assert classifier(recipe, kind="bytes", stem=STEM) == load_recipe(
        find_recipe("synthetic"), ["model.encoder.seq_len=64"]
    )
    with pytest.raises(ValueError, match=r"unknown key model\.stem"):
        from_dict({**recipe, "model": {**recipe["model"], "stem": STEM}})


def test_stem_of_words_becomes_the_ngram_view() -> None:
    recipe = without_views("documents")
    config = classifier(recipe, stem=STEM)
    assert config.model.kind == "words"
    assert config.model.ngram_view == NgramViewConfig(longest=2, num_ngrams=1024, max_length=512)
    assert config.model.vector_view is None
    assert config.model.encoder == EncoderConfig(**recipe["model"]["encoder"])
    assert "stem" not in recipe["model"]
    assert from_stored(config.to_dict()) == config


def test_stem_without_keys_has_the_defaults_of_its_time() -> None:
    config = classifier(without_views("documents"), stem={})
    assert config.model.ngram_view == NgramViewConfig(longest=3, num_ngrams=65_536, max_length=1024)


def test_options_of_s3_in_the_encoder_are_converted_together_with_a_stem() -> None:
    recipe, expected = older("documents"), load_recipe(find_recipe("documents"))
    del recipe["model"]["ngram_view"], recipe["model"]["vector_view"]
    config = classifier(recipe, stem=STEM)
    assert config.model.encoder == expected.model.encoder
    assert config.model.ngram_view.max_length == 128 * 8


def test_two_views_become_the_ngram_view_alone() -> None:
    view = {"max_length": 1024, "bytes_per_token": 4, "rounds": [{"learning_rate": 2e-3}], "epochs": 1}
    recipe = without_views("documents")
    recipe["data"]["unlabelled"] = True
    config = classifier(recipe, kind="views", stem=STEM, vector_view=view)
    assert (config.model.kind, config.model.vector_view, config.data.unlabelled) == ("words", None, False)
    assert (config.model.ngram_view.longest, config.model.max_length) == (2, 1024)


def test_vector_view_of_words_becomes_one_of_ngrams() -> None:
    recipe = load_recipe(find_recipe("imdb-s3")).to_dict()
    expected = from_stored(recipe)
    del recipe["model"]["ngram_vectors"]
    view = recipe["model"]["vector_view"]
    view["rounds"] = [
        {"word_dropout" if key == "ngram_dropout" else key: value for key, value in one.items()}
        for one in view["rounds"]
    ]
    view["vectors"] = {"num_words": 40_000, "ignored": "< br / >"}
    assert from_stored(recipe) == expected
    with pytest.raises(ValueError, match=r"unknown key model\.vector_view\."):
        from_dict(recipe)


@pytest.mark.parametrize("recipe", [{}, {"model": 3}, {"task": "forecasting", "model": {"encoder": 3}}])
def test_invalid_stored_recipe_is_an_error(recipe: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"task must be|missing key|must be a section"):
        from_stored(recipe)


def test_encoder_of_a_model_without_a_vector_view_may_be_stored() -> None:
    """Manifests of earlier versions name an encoder that the graph does not contain."""
    recipe = load_recipe(find_recipe("scotus")).to_dict()
    config = from_stored(recipe)
    assert config.model.encoder is not None
    without = from_stored({**recipe, "model": {**recipe["model"], "encoder": None, "vector_view": None}})
    assert isinstance(config, ClassificationRun)
    assert isinstance(without, ClassificationRun)
    assert without.model.buckets == config.model.buckets


@pytest.mark.parametrize("path", sorted(ROOT.glob("exports/*/*/manifest.json")), ids=lambda path: path.parts[-3])
def test_recipes_of_the_repositorys_manifests_are_read(path: Path) -> None:
    recipe = json.loads(path.read_text())["training"]["recipe"]
    config = from_stored(recipe)
    encoder, stored = config.model.encoder, recipe["model"]["encoder"]
    if stored is None:
        assert encoder is None
        return
    assert isinstance(encoder, EncoderConfig)
    for key, value in stored.items():
        if key in S3Options.model_fields:
            assert getattr(encoder.options_of(S3Options), key) == value
        elif key not in ("options", "dropout"):
            assert getattr(encoder, key) == value
