"""Notes about the labels of training data."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable

SHOWN_CLASSES = 50
"""Maximum number of classes that a note lists; of more, the largest."""
SHOWN_LENGTH = 40
"""Maximum characters of a label in a note."""


def class_notes(written: Iterable[str]) -> tuple[str, ...]:
    """Notes that list the labels with their numbers, and those that are likely the same.

    Args:
        written: labels as they are written. Spaces around them do not count.

    """
    spelled = Counter(written)
    counts = Counter[str]()
    for label, count in spelled.items():
        counts[label.strip()] += count
    shown = counts.most_common(SHOWN_CLASSES) if len(counts) > SHOWN_CLASSES else sorted(counts.items())
    more = f" and {len(counts) - len(shown)} smaller ones" if len(counts) > len(shown) else ""
    notes = [f"classes: {', '.join(f'{label[:SHOWN_LENGTH]} {count:,}' for label, count in shown)}{more}"]
    spellings: dict[str, dict[str, int]] = defaultdict(dict)
    for label, count in sorted(spelled.items()):
        spellings[_spelling(label.strip())][label] = count
    for same in filter(lambda found: len(found) > 1, spellings.values()):
        names = ", ".join(f"{name[:SHOWN_LENGTH]!r} {count:,}" for name, count in same.items())
        ignored = "; spaces around a label are ignored" if any(name != name.strip() for name in same) else ""
        notes.append(f"warning: labels that are likely the same: {names}{ignored}")
    return tuple(notes)


def _spelling(label: str) -> str:
    """What labels that are likely the same have in common: not upper case, not spaces, not the `.0` of a float."""
    folded = unicodedata.normalize("NFKC", label).casefold()
    joined = re.sub(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])", "", folded)
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", joined)
