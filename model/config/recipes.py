"""Recipes: TOML files from model/recipes or the user, merged with their base and with overrides."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.config.data import OWN
from model.config.run import RUNS, RunConfig, from_dict
from model.errors import UserError

RECIPES = Path(__file__).parents[1] / "recipes"
RENAMED = {  # former name -> present name
    f"imdb-{attention}": f"lra-text-{attention}"
    for attention in ("dba", "kernelized", "linformer", "nystrom", "performer", "skyformer", "softmax")
}

_Table = dict[str, Any]


def find_recipe(name: str) -> Path:
    """Path of a recipe, given as a file or as a name in model/recipes. Raises: UserError."""
    path = Path(name)
    if path.suffix == ".toml":
        return path
    if name in RENAMED:
        raise UserError(f"recipe {name!r} is now called {RENAMED[name]!r}")
    if not (RECIPES / f"{name}.toml").is_file():
        known = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
        raise UserError(f"no recipe {name!r}; expected one of {known}, or a .toml file")
    return RECIPES / f"{name}.toml"


def choose_recipe(
    name: str | None, task: str | None, overrides: Sequence[str], settings: Mapping[str, object] | None = None
) -> RunConfig:
    """Load the named recipe; without a name, the task's default recipe, or with `settings` its recipe for user data.

    `settings` are the recipe keys derived from user data.

    Raises: UserError if neither recipe nor task is given, or if the recipe is unknown, invalid, or for another task.
    """
    if name is None:
        if task is None:
            raise UserError("name a recipe, such as imdb-s3, or give --task, with --data for your own file or folder")
        name = RUNS[task].default_recipe if settings is None else RUNS[task].own_recipe
    path = find_recipe(name)
    config = load_recipe(path, overrides, settings)
    if task not in (None, config.task):
        raise UserError(f"recipe {name} is for {config.task}, not {task}")
    return config


def keys_for_own_data(name: str, task: str) -> dict[str, object]:
    """Dotted keys that a recipe for user data sets itself, without those of its base.

    Raises: UserError if the recipe is unknown, cannot be read, is for another task, or not for user data.
    """
    path = find_recipe(name)
    table = _table_of(path)
    if (of := table.get("task")) != task:
        raise UserError(f"recipe {name} is for {of}, not {task}")
    if (reads := flat(table).get("data.name")) not in OWN:
        raise UserError(f"with --data, a recipe must have data.name = 'own'; recipe {name} has {reads!r}")
    return flat(_read(path))


def load_recipe(path: Path, overrides: Sequence[str] = (), settings: Mapping[str, object] | None = None) -> RunConfig:
    """Read a recipe and set keys: first `settings`, then `section.key=value` overrides (TOML values).

    If they select another attention, the recipe's attention options are dropped.

    Raises: UserError naming the key, and the override or else the file, if the recipe is invalid.
    """
    table = _table_of(path)
    changes = [(key, value, f"{key}={value}") for key, value in (settings or {}).items()]
    changes += [(*parse_override(override), override) for override in overrides]
    for key, value, text in sorted(changes, key=lambda change: change[0] != "model.encoder.attention"):
        _set(table, key, value, text)
    try:
        return from_dict(table)
    except ValueError as error:
        if overrides and not _names_any(str(error), overrides):
            load_recipe(path, (), settings)  # otherwise the overrides together make it invalid
        blamed = [one for one in overrides if _names_any(str(error), [one])] or overrides
        raise UserError(f"{' '.join(f'--set {one}' for one in blamed) or path}: {error}") from None


def _table_of(path: Path) -> _Table:
    """A recipe, merged with its base. Raises: UserError."""
    table = _read(path)
    return _merge_base(table, path) if "base" in table else table


def _names_any(message: str, overrides: Sequence[str]) -> bool:
    """Whether a message names the key of one of the overrides."""
    return any(parse_override(override)[0] in message for override in overrides)


def _read(path: Path) -> _Table:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"recipe {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path}: {error}") from None


def _merge_base(table: _Table, path: Path) -> _Table:
    """Merge `table` into the recipe named by its key `base`; that recipe must not have a base itself."""
    name = table.pop("base")
    if not isinstance(name, str):
        raise UserError(f"{path}: base must be the name of a recipe, not {name!r}")
    base = _read(find_recipe(name))
    if "base" in base:
        raise UserError(f"{path}: base must be a recipe without a base of its own, not {name!r}")
    if "attention" in (encoder := _encoder(table)):
        _choose_attention(base, encoder["attention"])
    return _merged(base, table)


def _merged(base: _Table, table: _Table) -> _Table:
    """Merge `table` into `base` section by section; values of `table` win."""
    merged = dict(base)
    for key, value in table.items():
        below = base.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def parse_override(override: str) -> tuple[str, object]:
    """Key and value of `section.key=value`; a value that is not valid TOML is read as a string. Raises: UserError."""
    key, sign, text = override.partition("=")
    if not sign:
        raise UserError(f"--set {override!r}: expected key=value")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text


def _set(table: _Table, key: str, value: object, text: str) -> None:
    """Set one key of a recipe. Raises: UserError quoting `text` if a parent of the key is not a section."""
    if key == "model.encoder.attention":
        _choose_attention(table, value)
    *sections, last = key.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {text!r}: {section} is not a section")
    table[last] = value


def _choose_attention(table: _Table, attention: object) -> None:
    """Drop the options of the recipe's attention if another attention is chosen."""
    encoder = _encoder(table)
    if encoder.get("attention", "s3") != attention:
        encoder.pop("options", None)


def _encoder(table: _Table) -> _Table:
    """The section `model.encoder`; empty if missing."""
    model = table.get("model")
    encoder = model.get("encoder") if isinstance(model, dict) else None
    return encoder if isinstance(encoder, dict) else {}


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found
