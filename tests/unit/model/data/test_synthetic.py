"""Generated documents."""

from pathlib import Path

from model.config.data import DocumentsConfig
from model.data import synthetic
from model.data.documents import load_documents


def test_synthetic_splits_differ_and_follow_their_rule() -> None:
    train, test = (synthetic.read(Path("absent"), split) for split in ("train", "test"))
    assert not {text for text, _ in train} & {text for text, _ in test}
    right = sum((text.count(b"+") > text.count(b"-")) == label for text, label in train + test)
    assert right >= 0.95 * len(train + test)  # a short document may have a tie or more of the rarer mark
    assert load_documents(DocumentsConfig(name="synthetic"), Path("absent")).test.texts == [text for text, _ in test]
