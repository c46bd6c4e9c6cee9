"""The card of an export, `README.md`: what the model answers, what was measured, its limits, and how to ask it.

Written from the manifest. People may edit it: no hash protects it, and nothing is read from it.
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from artifact.exports import CARD, read_manifest, version_folder
from artifact.manifest import ExportManifest, Result, TextManifest
from artifact.tasks.any_series import AnySeriesManifest
from artifact.tasks.classification import ClassifierManifest
from artifact.tasks.forecasting import ForecasterManifest
from artifact.tasks.labels import LabelledManifest
from artifact.tasks.matching import MatcherManifest
from artifact.tasks.series_classification import SeriesClassifierManifest
from model.errors import UserError, writing

SPECIAL = re.compile(r"([\\`*\[\]<>|])")
"""Characters of Markdown, which labels and names of channels may hold."""
MOST_NAMES = 100
"""Labels and channels that are listed."""
STEPS = 24
"""Horizon of the example."""


def write_card(folder: Path) -> Path:
    """Write the card of an export, by default of its highest version, and return its path.

    Raises: BadExport if the folder is not an export; UserError if it has a card, which somebody may have edited.
    """
    version = version_folder(folder)
    manifest, path = read_manifest(version), version / CARD
    if path.exists():
        raise UserError(f"{path} exists; remove it to write it from the manifest")
    with writing(path):
        path.write_text(card_of(manifest), encoding="utf-8")
    return path


def card_of(manifest: ExportManifest) -> str:
    """The card as Markdown."""
    training = manifest.training
    name = f"{manifest.name} version {manifest.version}"
    parts = [f"# {name}", *_answers(manifest)]
    where = "own data" if training.data == "own" else f"`{training.data}`"
    where += f" (fingerprint `{training.data_sha256}`)" if training.data_sha256 else ""
    recipe, seed = training.recipe.get("name", manifest.name), training.recipe.get("seed", 0)
    parts += [
        "## Data",
        f"Trained on {where}, in {training.seconds:,.0f} seconds on {_escaped(training.device)}; recipe `{recipe}`, "
        f"seed {seed}, code `{training.revision}`.",
        *([f"Chosen in training: {reason}."] if (reason := (training.ngram_view or {}).get("reason")) else []),
        "## Results",
        *_results(manifest.results),
        f"Validation, by which the model was chosen: {training.validation.metric} {training.validation.value:.4f}.",
        "## Limits",
        "\n".join(f"- {line}" for line in _limits(manifest)),
        "## How to ask it",
        *_requests(manifest),
        "## Terms of use",
        _escaped(manifest.data_terms) + (" **Non-commercial use only.**" if manifest.non_commercial else ""),
    ]
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(_escaped, names[:MOST_NAMES])) + more


def _answers(manifest: ExportManifest) -> Iterator[str]:
    """What the model answers."""
    match manifest:
        case SeriesClassifierManifest():
            rate = "" if manifest.rate is None else f", at {manifest.rate:g} steps per second,"
            count = len(manifest.labels)
            yield f"Classifies recordings of {len(manifest.channels)} channels{rate} into {count} classes."
            yield f"Channels: {_listed(manifest.channels)}."
        case ClassifierManifest(thresholds=tuple()):
            yield f"Gives documents any number of {len(manifest.labels)} labels: those at or above their thresholds."
        case LabelledManifest():
            given = "score" if _is_balanced(manifest) else "probability"
            yield f"Classifies documents into {len(manifest.labels)} classes, with a {given} for each."
        case MatcherManifest():
            yield "Tells how likely two documents belong together, and ranks documents by it."
        case ForecasterManifest():
            yield f"Forecasts {len(manifest.channels)} channels, with error bands."
            yield f"Channels: {_listed(manifest.channels)}. Time step: {manifest.frequency}."
        case _:
            yield "Forecasts any series of numbers, with error bands."
    if isinstance(manifest, LabelledManifest):
        yield f"Classes: {_listed(manifest.labels)}."


def _results(results: Sequence[Result]) -> Iterator[str]:
    """The results as a table, each with the baselines of its metric and condition."""
    lines = ["| metric | condition | split | n | value | others |", "| --- | --- | --- | --: | --: | --- |"]
    for one in results:
        others = ", ".join(f"{_escaped(other.name)} {other.value:g}" for other in one.baselines)
        cells = (one.metric, one.condition, one.split, f"{one.examples:,}", f"{one.value:.4f}", others)
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines)


def _limits(manifest: ExportManifest) -> Iterator[str]:
    """What to know before using the answers."""
    yield "The results hold for data like those of training; measure others with `python -m model evaluate`."
    if isinstance(manifest, LabelledManifest):
        if not isinstance(manifest, ClassifierManifest) or manifest.thresholds is None:
            yield "It answers with one of its classes, also for inputs that belong to none of them."
        error = next((one.value for one in manifest.results if one.metric == "ece"), None)
        if _is_balanced(manifest):
            yield (
                "Scores are those of equally frequent classes (`--class-weights balanced`): compare them, and do not "
                "read them as probabilities for your data."
            )
        elif error is not None:
            yield f"Scores are calibrated: on average, they differ from the share of correct answers by {error:.3f}."
    match manifest:
        case TextManifest():
            yield (
                f"It reads {manifest.max_length:,} bytes at once, and longer documents in windows that overlap by at "
                f"least {manifest.window_overlap:,} bytes."
            )
        case SeriesClassifierManifest():
            yield f"It reads {manifest.length:,} steps at once, and longer recordings in windows."
        case ForecasterManifest():
            yield f"It reads the last {manifest.context_length:,} steps and forecasts up to {manifest.horizon:,}."
            yield _bands(reliable=manifest.quantiles_reliable)
        case AnySeriesManifest():
            yield f"It reads up to {manifest.context_length:,} last values of a series, each series alone."
            yield _bands(reliable=manifest.quantiles_reliable)
        case _:
            pass


def _is_balanced(manifest: ExportManifest) -> bool:
    """Whether all classes weighed the same in training."""
    match manifest.training.recipe:
        case {"model": {"ngram_view": {"class_weights": "balanced"}}}:
            return True
    return False


def _bands(*, reliable: bool) -> str:
    if reliable:
        return "Its 80 % bands covered 70 % to 90 % of the test values at every horizon."
    return "Its error bands are not reliable: the 80 % band covered less than 70 % or more than 90 % at some horizon."


def _requests(manifest: ExportManifest) -> Iterator[str]:
    """The same question by HTTP and in Python."""
    path, body, call = _question(manifest)
    curl = f"curl -s localhost:8000{path} -H 'content-type: application/json' -d"
    if isinstance(manifest, ForecasterManifest):  # many values
        program = f'import json; print(json.dumps({{"model": "{manifest.name}", {body}}}))'
        question = f"python3 -c {shlex.quote(program)} |\n  {curl} @-"
    else:
        question = f"{curl} {shlex.quote(json.dumps({'model': manifest.name, **body}, ensure_ascii=False))}"
    yield f"```sh\n{question}\n```"
    yield f'```python\nimport artifact\n\nmodel = artifact.load("exports/{manifest.name}")\nprint({call})\n```'


def _question(manifest: ExportManifest) -> tuple[str, Any, str]:
    """Path and body of a request, which for many values is Python, and the same as a call."""
    match manifest:
        case SeriesClassifierManifest():
            series = {name: [0.0, 1.0, 0.5] for name in manifest.channels}
            call = "model.classify({name: [0.0, 1.0, 0.5] for name in model.manifest.channels})"
            return "/v1/classify", {"series": [series]}, call
        case LabelledManifest():
            return "/v1/classify", {"inputs": ["A text."]}, 'model.classify("A text.")'
        case MatcherManifest():
            query, documents = "A text about one topic.", ["A text about the same topic.", "Another text."]
            call = f'model.rank("{query}", {json.dumps(documents)})'
            return "/v1/rank", {"query": query, "documents": documents}, call
        case ForecasterManifest():
            horizon, values = min(STEPS, manifest.horizon), f"[step % 7.0 for step in range({manifest.context_length})]"
            names = json.dumps(manifest.channels, ensure_ascii=False)
            body = f'"horizon": {horizon}, "series": {{name: {values} for name in {names}}}'
            call = f"model.forecast({{name: {values} for name in model.manifest.channels}}, horizon={horizon})"
            return "/v1/forecast", body, call
        case _:
            past = [step % 7.0 for step in range(14)]
            return "/v1/forecast", {"series": past, "horizon": 7}, f"model.forecast({past}, horizon=7)"
