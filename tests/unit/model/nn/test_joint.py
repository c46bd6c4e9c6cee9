"""The joint view of a matcher: sketches of words, and their comparison, compared with references."""

import numpy as np
import pytest
import torch
from scipy.special import erf

from artifact.documents import ID_UNIT, WORD_FIELDS, pad_rows
from model.config.models import OPENING, JointViewConfig, LexicalViewConfig
from model.config.training import TrainingConfig
from model.nn.joint import JointView, WordSketch
from model.nn.lexical import LexicalView
from model.tasks.graphs import golden_encodings
from tests.support import reference

NUM_NGRAMS, NUM_WORDS = 40, 14
TRAINING = TrainingConfig(epochs=1, batch_size=2, learning_rate=1e-3)
TEXTS = (
    b"The ship of the line, the ship of state.",
    b"",
    b"!",
    b"tea " + b"x" * OPENING + b" pot tea cup",
    " ".join(f"word{number}" for number in range(60)).encode(),
)


def view(prefix_length: int = 0) -> LexicalView:
    """A lexical view that knows some of the words."""
    config = LexicalViewConfig(num_ngrams=NUM_NGRAMS, dim=4, max_length=1024)
    found = LexicalView(config, prefix_length).eval()
    document, lengths = pad_rows([b"ship state tea word1 word2 word3"], 1024)
    hashes = found.find(torch.from_numpy(document), torch.from_numpy(lengths)).hashes[0].numpy()
    found.fill(hashes, np.ones((len(hashes), 4)))
    return found


def sketch_of(
    *texts: bytes,
    num_words: int = NUM_WORDS,
    frequent: tuple[int, ...] = (),
    fixed: bool = False,
    prefix_length: int = 0,
) -> np.ndarray:
    """Words (B, num_words, WORD_FIELDS) of documents."""
    lexical, sketch = view(prefix_length), WordSketch(num_words, NUM_NGRAMS)
    is_frequent = np.isin(np.arange(1, NUM_NGRAMS + 1), frequent)
    sketch.fill(is_frequent)
    lexical = lexical.with_fixed_shapes() if fixed else lexical
    document, lengths = (torch.from_numpy(part) for part in pad_rows(list(texts), 1024))
    words = lexical.find(document, lengths)
    found: np.ndarray = sketch(words, len(texts)).numpy()
    return found


def expected_sketch(text: bytes, num_words: int = NUM_WORDS, frequent: tuple[int, ...] = ()) -> np.ndarray:
    """The same of one document, from a dictionary."""
    document, lengths = (torch.from_numpy(part) for part in pad_rows([text], 1024))
    words = view().find(document, lengths)
    found = dict[int, tuple[int, bool]]()
    for value, number, position in zip(
        words.hashes[0].tolist(), words.ids[0].tolist(), words.position.tolist(), strict=True
    ):
        if number not in frequent:
            key = value // 128 + 1
            found[key] = number, found.get(key, (0, False))[1] or position < OPENING
    rows = [
        (key / 2**24, found[key][0] * ID_UNIT, key / 2**24 * (1 if found[key][1] else -1))
        for key in sorted(found)[:num_words]
    ]
    sketch = np.zeros((num_words, WORD_FIELDS))
    sketch[: len(rows)] = np.array(rows).reshape(-1, WORD_FIELDS)
    return sketch


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("frequent", [(), (1, 3)])
def test_sketch_has_the_distinct_words_with_the_smallest_hashes(fixed: bool, frequent: tuple[int, ...]) -> None:
    found = sketch_of(*TEXTS, frequent=frequent, fixed=fixed)
    for text, words in zip(TEXTS, found, strict=True):
        assert words == pytest.approx(expected_sketch(text, frequent=frequent), abs=0)
    assert (found[4][:, 0] > 0).all()  # more words than places
    assert not found[1].any()


@pytest.mark.parametrize("fixed", [False, True])
def test_words_with_the_same_first_characters_are_one(fixed: bool) -> None:
    """One from the opening counts, of several that with the smallest hash; shorter words are compared whole."""
    text = b"statement state shipment ship tea teas " + b"x" * OPENING + b" states shipping stately xxxxy"
    found = sketch_of(text, b"ship", b"shipment", fixed=fixed, prefix_length=4)
    known = dict(zip(("ship", "state", "tea"), ids_of(b"ship state tea"), strict=True))
    of_keys = {
        reference.prefix_hash("stat"): ("statement", "state"),
        reference.prefix_hash("ship"): ("shipment", "ship"),
        reference.word_hash("tea"): ("tea",),
        reference.prefix_hash("teas"): ("teas",),
        reference.prefix_hash("xxxx"): ("x" * OPENING, "xxxxy"),
    }
    rows = []
    for value, words in sorted(of_keys.items()):
        word = min(words, key=reference.word_hash)
        sign = -1 if word.startswith("x") else 1
        rows.append((value // 128 + 1, known.get(word, 0), sign * (reference.word_hash(word) // 128 + 1)))
    assert found[0][: len(rows)] == pytest.approx(np.array(rows) * [2**-24, ID_UNIT, 2**-24], abs=0)
    assert not found[0][len(rows) :].any()
    assert found[1, 0, 0] == found[2, 0, 0]


def ids_of(text: bytes) -> list[int]:
    """Ids of the words of a text."""
    document, lengths = (torch.from_numpy(part) for part in pad_rows([text], 1024))
    found: list[int] = view().find(document, lengths).ids[0].tolist()
    return found


def test_word_of_the_opening_stays_one_if_it_also_occurs_later() -> None:
    (words,) = sketch_of(TEXTS[3])
    both = sketch_of(b"tea", b"cup")
    whole = {key: value for key, _, value in words.tolist()}
    assert whole[both[0, 0, 0]] == both[0, 0, 0]
    assert whole[both[1, 0, 0]] == -both[1, 0, 0]


def test_batch_without_any_word_has_an_empty_sketch() -> None:
    assert not sketch_of(b"", b"\x00").any()


def config(attention: str, prefix_length: int) -> JointViewConfig:
    """Sizes of a small view."""
    sizes = {"num_words": NUM_WORDS, "dim": 16, "hidden_dim": 6, "prefix_length": prefix_length}
    return JointViewConfig.model_validate({"training": TRAINING, "attention": attention, **sizes})


def joint(attention: str, prefix_length: int = 0) -> JointView:
    """A view with random parameters."""
    torch.manual_seed(0)
    model = JointView(config(attention, prefix_length), NUM_NGRAMS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.fill(np.linspace(0.5, 0.01, NUM_NGRAMS))
    return model


def sketches() -> tuple[torch.Tensor, torch.Tensor]:
    """Words of eight pairs of documents that share some, from none to all of NUM_WORDS."""
    a, b = (
        torch.from_numpy(array).unflatten(1, (-1, WORD_FIELDS)) for array in golden_encodings(0, NUM_WORDS).values()
    )
    return a, b


def gelu(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = x * (1 + erf(x / np.sqrt(2))) / 2
    return found


def layer(state: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    found: np.ndarray = x @ state[f"{name}.weight"].T + state[f"{name}.bias"]
    return found


def expected_logit(model: JointView, a: np.ndarray, b: np.ndarray) -> float:
    """Logit of one pair without attention, word by word, in double precision."""
    state = {name: value.double().numpy() for name, value in model.state_dict().items()}
    sums = []
    for side, (words, others) in enumerate(((a, b), (b, a))):
        in_other = {key: whole for key, _, whole in others.tolist() if key}
        total = np.zeros(16)
        for key, number, whole in words.tolist():
            if not key:
                continue
            number = round(number / ID_UNIT)
            idf = state["idf"][number]
            is_there = [float(key in in_other), float(in_other.get(key, 0) > 0)]
            if model.has_prefixes:
                is_there.append(float(abs(in_other.get(key, 0)) == abs(whole)))
            x = np.array([idf, whole > 0, *is_there, *(idf * value for value in is_there[1:]), side])
            x = layer(state, "features.2", gelu(layer(state, "features.0", x))) + state["vectors"][number]
            y = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * state["mlp.0.weight"] + state["mlp.0.bias"]
            total += x + layer(state, "mlp.3", gelu(layer(state, "mlp.1", y)))
        sums.append(total / 16)
    h = np.concatenate(sums)
    h = np.sign(h) * np.log1p(np.abs(h))
    return float(layer(state, "out.3", gelu(layer(state, "out.0", h)))[0])


@pytest.mark.parametrize("prefix_length", [0, 4])
def test_logit_without_attention_equals_the_reference(prefix_length: int) -> None:
    model, (a, b) = joint("none", prefix_length), sketches()
    with torch.inference_mode():
        found = model(a, b)[:, 0].tolist()
    for logit, x, y in zip(found, a.numpy(), b.numpy(), strict=True):
        assert logit == pytest.approx(expected_logit(model, x, y), abs=1e-5)


@pytest.mark.parametrize(("attention", "prefix_length"), [("none", 0), ("none", 4), ("dba", 0)])
def test_logit_does_not_depend_on_other_pairs_or_on_padding(attention: str, prefix_length: int) -> None:
    model, (a, b) = joint(attention, prefix_length), sketches()
    longer = [torch.nn.functional.pad(x, (0, 0, 0, 5)) for x in (a, b)]
    with torch.inference_mode():
        together = model(a, b)
        if attention == "none":
            model.has_fixed_shapes = True
            assert torch.allclose(model(*longer), together, atol=1e-5)
            model.has_fixed_shapes = False
        alone = torch.cat([model(x, y) for x, y in zip(a.split(1), b.split(1), strict=True)])
        padded = model(*longer)
    assert torch.allclose(alone, together, atol=1e-5)
    assert torch.allclose(padded, together, atol=1e-5)


@pytest.mark.parametrize("attention", ["dba", "s3", "softmax"])
def test_attention_lets_words_of_one_document_change_those_of_the_other(attention: str) -> None:
    model, (a, b) = joint(attention), sketches()
    unknown = b.clone()
    unknown[..., 0] += (b[..., 0] > 0) * 0.5  # no longer shared
    other = unknown.clone()
    other[..., 1] = (other[..., 1] / ID_UNIT + 7) % NUM_NGRAMS * ID_UNIT * (b[..., 0] > 0)
    with torch.inference_mode():
        x, y = (model._tokens(one, torch.zeros(8, NUM_WORDS, 2), side) for one, side in ((a, 0.0), (unknown, 1.0)))
        z = model._tokens(other, torch.zeros(8, NUM_WORDS, 2), 1.0)
        words = a[..., 0] > 0, b[..., 0] > 0
        found, changed = (model._attend(x, others, words)[0] for others in (y, z))
    assert (found - changed).abs()[words[0]].max() > 1e-3


def test_quantised_vectors_are_within_half_a_step() -> None:
    model = joint("none")
    exact = model.vectors.detach().clone()
    model.quantise()
    assert model.vectors.dtype == torch.int8
    assert ((model.vectors * model.step - exact).abs() <= model.step / 2 + 1e-7).all()


def test_unknown_words_are_as_rare_as_the_rarest() -> None:
    model = joint("none")
    assert model.idf[0] == model.idf.max() == 1
    assert model.idf[1] == pytest.approx(np.log(0.5) / np.log(0.01))
