"""Documents without labels, from which the second view of a classifier learns. Used by `model.tasks.views`."""

from pathlib import Path

from model.config.data import DocumentsConfig
from model.data import imdb
from model.data.documents import DocumentSet, load_test
from model.errors import UserError


def load_unlabelled(config: DocumentsConfig, data_dir: Path, known: DocumentSet) -> list[bytes]:
    """Read the distinct unlabelled documents of a data set, without texts of validation and test.

    Raises: UserError if the data set has none, or naming file and line of a bad row.
    """
    if config.name != "imdb":
        raise UserError(f"data.unlabelled must be false for data.name {config.name!r}: it has no unlabelled documents")
    held_out = {*known.validation.texts, *load_test(config, data_dir, known.labels).texts, *known.train.texts}
    return [text for text in dict.fromkeys(imdb.read_unlabelled(data_dir)) if text not in held_out]
