from typing import Literal

import pytest

from model.config.encoder import EncoderConfig
from model.config.models import (
    ClassifierConfig,
    MatcherConfig,
    NgramVectorsConfig,
    NgramViewConfig,
    RoundConfig,
    StemConfig,
    VectorViewConfig,
    buckets_of,
)
from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.errors import UserError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.patch_length=7", r"model\.context_length must be encoder\.seq_len \* patch_length = 42, not 48"),
        ("model.kind=paper", r"model\.patch_length must be 1 in the paper's forecaster, not 8"),
    ],
)
def test_patch_length_that_does_not_fit_the_window_is_an_error(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe(find_recipe("synthetic-series"), [override])


@pytest.mark.parametrize(
    ("max_length", "multiple", "buckets"),
    [
        (4096, 16, (256, 512, 1024, 2048, 4096)),
        (3000, 8, (256, 512, 1024, 2048, 3000)),
        (4096, 512, (512, 1024, 2048, 4096)),
        (2400, 24, (2400,)),
        (257, 1, (256, 257)),
        (256, 1, (256,)),
        (24, 1, (24,)),
        (1, 1, (1,)),
    ],
)
def test_buckets_are_powers_of_two_and_the_longest(max_length: int, multiple: int, buckets: tuple[int, ...]) -> None:
    assert buckets_of(max_length, multiple) == buckets


@pytest.mark.parametrize("mode", ["paper", "paper-masked"])
def test_buckets_of_a_model_depend_on_its_kind_and_mode(mode: Literal["paper", "paper-masked"]) -> None:
    encoder, paper = EncoderConfig(seq_len=64), EncoderConfig(seq_len=64, mode=mode)
    words, ngrams = NgramViewConfig(max_length=1000), StemConfig(patch_length=16)
    assert ClassifierConfig(kind="words", encoder=encoder, ngram_view=words).buckets == (256, 512, 1000)
    assert ClassifierConfig(kind="paper", encoder=encoder, ngram_view=words).buckets == (64,)
    assert ClassifierConfig(kind="paper", encoder=EncoderConfig(seq_len=512)).buckets == (256, 512)
    assert ClassifierConfig(kind="paper", encoder=EncoderConfig(seq_len=512, mode=mode)).buckets == (512,)
    assert ClassifierConfig(kind="bytes", ngram_view=words).buckets == (256, 512, 1000)
    for patch, buckets in ((4, (256, 512, 1000)), (10, (1000,))):
        read, patches = EncoderConfig(seq_len=1000 // patch), VectorViewConfig(bytes_per_token=patch)
        assert ClassifierConfig(kind="bytes", encoder=read, ngram_view=words, vector_view=patches).buckets == buckets
    assert MatcherConfig(stem=ngrams, encoder=encoder).buckets == (256, 512, 1024)
    assert MatcherConfig(stem=ngrams, encoder=paper).buckets == (1024,)


def test_words_without_a_vector_view_need_no_encoder() -> None:
    words = NgramViewConfig(max_length=1000)
    assert ClassifierConfig(kind="words", ngram_view=words).buckets == (256, 512, 1000)
    assert ClassifierConfig(kind="words", ngram_view=words, vector_view=VectorViewConfig()).encoder is None
    message = "encoder must be a section for kind 'paper' and for a vector view with rounds"
    with pytest.raises(ValueError, match=message):
        ClassifierConfig(kind="paper")
    with pytest.raises(ValueError, match=message):
        ClassifierConfig(kind="words", vector_view=VectorViewConfig(rounds=(RoundConfig(),)))


def test_vector_view_needs_ngram_vectors() -> None:
    encoder, none = EncoderConfig(seq_len=64), NgramVectorsConfig(epochs=0)
    with_rounds, without = (VectorViewConfig(rounds=rounds) for rounds in ((RoundConfig(),), ()))
    message = r"ngram_vectors\.epochs must be at least 1 for a vector view with rounds, not 0"
    with pytest.raises(ValueError, match=message):
        ClassifierConfig(kind="words", encoder=encoder, ngram_vectors=none, vector_view=with_rounds)
    assert not ClassifierConfig(kind="words", ngram_vectors=none, vector_view=without).has_rounds


def test_vector_view_reads_no_prefixes() -> None:
    message = r"ngram_view\.prefixes must be false, and not in ngram_view\.tried, for a vector view with rounds and for"
    encoder, vectors = EncoderConfig(seq_len=64), VectorViewConfig(rounds=(RoundConfig(),))
    for view in (NgramViewConfig(prefixes=True), NgramViewConfig(tried=("prefixes",))):
        with pytest.raises(ValueError, match=message):
            ClassifierConfig(kind="words", encoder=encoder, ngram_view=view, vector_view=vectors)
        assert ClassifierConfig(kind="words", ngram_view=view, vector_view=VectorViewConfig()).ngram_view == view
        with pytest.raises(ValueError, match=message):
            ClassifierConfig(kind="bytes", ngram_view=view)


def test_published_model_has_no_vector_view() -> None:
    with pytest.raises(ValueError, match="vector_view must be absent for kind 'paper'"):
        ClassifierConfig(kind="paper", encoder=EncoderConfig(seq_len=64), vector_view=VectorViewConfig())


def test_patches_of_bytes_fill_the_rows() -> None:
    message = (
        r"bytes_per_token must divide ngram_view\.max_length for kind .bytes., and encoder\.seq_len be 4096 / 4, not 64"
    )
    with pytest.raises(ValueError, match=message):
        ClassifierConfig(kind="bytes", encoder=EncoderConfig(seq_len=64), vector_view=VectorViewConfig())


@pytest.mark.parametrize("sizes", [(), (0, 3), (3, 13), (5, 3), (3, 3)])
def test_sizes_of_byte_ngrams_are_checked(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"sizes\n  Value error, must be ascending, in 1\.\.12, not \("):
        NgramViewConfig(sizes=sizes)


@pytest.mark.parametrize("mode", ["paper", "paper-masked"])
def test_words_need_a_length_aware_encoder(mode: str) -> None:
    with pytest.raises(UserError, match=r"model\.encoder\.mode must be 'length-aware' for kind 'words', not "):
        load_recipe(find_recipe("documents"), [f"model.encoder.mode={mode}"])


@pytest.mark.parametrize("recipe_name", ["imdb-s3", "documents"])
def test_vector_view_is_left_out_with_its_rounds(recipe_name: str) -> None:
    config = load_recipe(find_recipe(recipe_name), ["model.vector_view.rounds=[]"])
    assert isinstance(config, ClassificationRun)
    assert config.model.vector_view is not None
    assert config.model.vector_view.rounds == ()


def test_paper_forecaster_has_its_own_attention() -> None:
    sets = [
        "model.kind=paper",
        "model.patch_length=1",
        "model.encoder.seq_len=48",
        "model.encoder.attention=softmax",
    ]
    with pytest.raises(UserError, match=r"encoder\.attention must be 's3' in the paper's forecaster, not 'softmax'"):
        load_recipe(find_recipe("synthetic-series"), sets)


@pytest.mark.parametrize("mode", ["length-aware", "paper-masked"])
def test_forecaster_in_another_mode_is_an_error(mode: str) -> None:
    with pytest.raises(UserError, match=r"model\.encoder\.mode must be 'paper', because windows have no padding, not"):
        load_recipe(find_recipe("synthetic-series"), [f"model.encoder.mode={mode}"])


@pytest.mark.parametrize("recipe_name", ["synthetic-pairs", "synthetic-series"])
def test_error_in_the_encoder_names_the_full_key(recipe_name: str) -> None:
    with pytest.raises(UserError, match=r"--set .*: model\.encoder\.num_heads must divide"):
        load_recipe(find_recipe(recipe_name), ["model.encoder.num_heads=3"])
