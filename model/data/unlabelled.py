"""Documents without labels, from which the vector view of a classifier learns. Used by `model.training.views`."""

from pathlib import Path

from model.config.data import DocumentsConfig
from model.data import imdb, own
from model.data.documents import DocumentSet, load_test
from model.data.own import NO_FILES, Columns, HeldOut
from model.errors import UserError


def load_unlabelled(
    config: DocumentsConfig, data_dir: Path, known: DocumentSet, file: Path | None = None, held_out: HeldOut = NO_FILES
) -> list[bytes]:
    """Read distinct unlabelled documents, without texts that occur in a labelled split.

    Args:
        config: section `data` of the recipe.
        data_dir: folder of the data sets, or the file or folder of user data.
        known: training and validation documents.
        file: file or folder of the user's unlabelled documents; labels in it are ignored.
        held_out: files of validation and test of user data.

    Raises: UserError if there are none, or naming file and line of a bad row.

    """
    if config.name == "own":
        if file is None:
            raise UserError("data.unlabelled needs a file of unlabelled documents; name it with --unlabelled")
        found = [row.texts[0] for row in own.read(file, Columns((config.text_column,), encoding=config.encoding))]
    elif config.name == "imdb":
        found = imdb.read_unlabelled(data_dir)
    else:
        raise UserError(f"data.unlabelled must be false for data.name {config.name!r}: it has no unlabelled documents")
    test = load_test(config, data_dir, known.labels, held_out)
    labelled = {*known.train.texts, *known.validation.texts, *test.texts}
    texts = [text for text in dict.fromkeys(found) if text not in labelled]
    if not texts:
        raise UserError(f"{file or data_dir}: all unlabelled texts also occur in the labelled data")
    return texts
