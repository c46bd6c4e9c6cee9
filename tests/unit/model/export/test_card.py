"""Cards of exports."""

import re
import shutil
from pathlib import Path

import pytest

from artifact.exports import CARD, read_manifest, version_folder
from artifact.tasks.classification import ClassifierManifest
from model.config.recipes import find_recipe, load_recipe
from model.export.card import MOST_NAMES, card_of
from tests.support.commands import call
from tests.support.paths import EXPORTS

NAMES = sorted(path.name for path in EXPORTS.iterdir() if path.is_dir())
SECTIONS = ["Data", "Results", "Limits", "How to ask it", "Terms of use"]


@pytest.mark.parametrize("name", NAMES)
def test_card_of_a_shipped_export_follows_from_its_manifest(name: str) -> None:
    folder = version_folder(EXPORTS / name)
    manifest, card = read_manifest(folder), (folder / CARD).read_text(encoding="utf-8")
    assert card == card_of(manifest), f"remove {folder / CARD}, and `python -m model card {EXPORTS / name}` writes it"
    assert re.findall("^## (.*)$", card, re.MULTILINE) == SECTIONS
    for result in manifest.results:
        assert f"| {result.metric} | {result.condition} | test | {result.examples:,} | {result.value:.4f} |" in card
    assert ("**Non-commercial use only.**" in card) == manifest.non_commercial


def test_export_has_a_card_and_the_command_writes_a_missing_one(
    exported: Path, manifest: ClassifierManifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = (exported / CARD).read_text()
    assert card == card_of(manifest)
    assert "Classes: minus, plus." in card
    folder = shutil.copytree(exported, tmp_path / "synthetic" / "1")
    assert call("card", folder.parent) == 2
    assert capsys.readouterr().err == f"error: {folder / CARD} exists; remove it to write it from the manifest\n"
    (folder / CARD).unlink()
    assert call("card", folder.parent) == 0
    assert capsys.readouterr().out == f"written to {folder / CARD}\n"
    assert (folder / CARD).read_text() == card


def test_card_says_why_prefixes_are_read(manifest: ClassifierManifest) -> None:
    assert "Chosen in training" not in card_of(manifest)
    view = {"prefixes": True, "reason": "0.1 with prefixes, 0.2 without: prefixes are read"}
    training = manifest.training.model_copy(update={"ngram_view": view})
    card = card_of(manifest.model_copy(update={"training": training}))
    assert "\n\nChosen in training: 0.1 with prefixes, 0.2 without: prefixes are read.\n\n" in card


def test_scores_of_balanced_classes_are_not_called_calibrated(manifest: ClassifierManifest) -> None:
    assert "with a probability for each." in card_of(manifest)
    assert "Scores are calibrated" in card_of(manifest)
    recipe = load_recipe(find_recipe("documents"), ["model.ngram_view.class_weights=balanced"]).to_dict()
    training = manifest.training.model_copy(update={"recipe": recipe})
    card = card_of(manifest.model_copy(update={"training": training}))
    assert "with a score for each." in card
    assert "Scores are those of equally frequent classes" in card
    assert "calibrated" not in card
    assert "probabilit" not in card.replace("do not read them as probabilities for your data", "")


def test_names_of_the_data_are_escaped(manifest: ClassifierManifest) -> None:
    labels = ("a|b", "<script>", "[x](http://y)", "`*`")
    card = card_of(manifest.model_copy(update={"labels": labels}))
    assert r"a\|b, \<script\>, \[x\](http://y), \`\*\`" in card
    many = card_of(manifest.model_copy(update={"labels": tuple(map(str, range(MOST_NAMES + 5)))}))
    assert f"{MOST_NAMES - 1} and 5 more." in many
