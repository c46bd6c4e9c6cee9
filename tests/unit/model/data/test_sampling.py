"""Random samples of documents within limits of number and size."""

from model.data.sampling import sample


def test_documents_within_the_limits_are_all_used() -> None:
    assert sample([1, 2, 3], 3, 6) == [0, 1, 2]


def test_sample_has_a_limited_number_of_documents() -> None:
    found = sample([1] * 100, 10, 100)
    assert found == sorted(set(found))
    assert len(found) == 10
    assert found != list(range(10))
    assert found == sample([1] * 100, 10, 100)


def test_sample_has_a_limited_size() -> None:
    sizes = [1 + i % 7 for i in range(100)]
    found = sample(sizes, 100, 50)
    assert found == sorted(set(found))
    # The next document of the random order did not fit.
    assert 50 - 7 < sum(sizes[i] for i in found) <= 50


def test_sample_has_at_least_one_document() -> None:
    assert len(sample([10] * 5, 5, 3)) == 1
