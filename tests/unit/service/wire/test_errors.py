import pytest

from artifact.errors import LongdocError, NonFiniteOutput
from service import errors
from service.wire.errors import STATUS


def leaves(kind: type[LongdocError]) -> set[type[LongdocError]]:
    below = kind.__subclasses__()
    return set().union(*map(leaves, below)) if below else {kind}


def test_every_error_has_a_status_and_words() -> None:
    found = leaves(LongdocError)
    assert found == set(STATUS)
    for error in found:
        assert error.code
        assert error.title


def test_faults_of_the_server_are_never_4xx() -> None:
    for error in (errors.InferenceFailed, NonFiniteOutput, errors.NotReady):
        assert STATUS[error] >= 500


def test_errors_that_were_dealt_with_hold_no_frames() -> None:
    def fail() -> None:
        try:
            raise ValueError("first")
        except ValueError:
            raise errors.InferenceFailed("second") from None

    with pytest.raises(errors.InferenceFailed) as caught:
        fail()
    error = caught.value
    first = error.__context__
    assert first is not None
    assert first.__traceback__ is not None
    first.__context__ = error  # a circle
    errors.let_go(error)
    assert [dealt_with.__traceback__ for dealt_with in (error, first)] == [None, None]
    errors.let_go(None)
