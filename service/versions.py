"""Versions of a model: which ones are served, and how a request pins one."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

VERSION_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
SYNTAX = "give latest, all, or the versions of each model, such as reviews:3,4;pairs:3"


def pinned(name: str, version: int | str) -> str:
    """`name@version`, as a request pins a version; names contain no @."""
    return f"{name}@{version}"


@dataclass(frozen=True)
class VersionPolicy:
    """Which versions of a model are served: the highest one (`latest`), `all`, or the listed ones.

    If the policy lists versions, models that it does not list are served in their highest version.
    """

    text: str
    """Text of the setting."""
    listed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Versions to serve, by name of the model."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the setting. Raises: ValueError with the syntax."""
        if text in ("latest", "all"):
            return cls(text)
        listed: dict[str, frozenset[int]] = {}
        for entry in text.split(";"):
            name, _, numbers = (part.strip() for part in entry.partition(":"))
            versions = [number.strip() for number in numbers.split(",")]
            if not name or not all(map(VERSION_NUMBER.fullmatch, versions)):
                raise ValueError(SYNTAX)
            if name in listed:
                raise ValueError(f"{name} is listed twice; {SYNTAX}")
            listed[name] = frozenset(map(int, versions))
        return cls(text, listed)

    def takes_one(self, name: str) -> bool:
        """Whether only the highest valid version of a model is served."""
        return self.text != "all" and name not in self.listed

    def selects(self, name: str, version: int) -> bool:
        """Whether a version of a model may be served."""
        return name not in self.listed or version in self.listed[name]

    def in_turn(self, name: str, versions: Iterable[int], kept: Collection[object]) -> Iterator[int]:
        """Yield versions of a model in the order in which they are tried: the highest first.

        Args:
            name: the name of the model.
            versions: those that the policy selects.
            kept: where the caller puts what it serves; if the policy serves one version, none is tried after the first.

        """
        for version in sorted(versions, reverse=True):
            yield version
            if kept and self.takes_one(name):
                return
