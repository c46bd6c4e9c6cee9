"""Time stamps."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from artifact.tables.times import numeric_reader, parse_time, text_of

FIVE = datetime(2024, 5, 1, 5)
DAY = datetime(2024, 5, 1)
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01T05:00:00", FIVE),
        ("2024-05-01 05:00", FIVE),
        (" 2024-5-1 5:00 ", FIVE),
        ("2024/5/1 5:00", FIVE),
        ("2024.05.01, 05:00:00", FIVE),
        ("20240501T05", FIVE),
        ("2024-05-01 05:00:00.25", FIVE + timedelta(seconds=0.25)),
        ("2024-05-01 05:00:00,250000000", FIVE + timedelta(seconds=0.25)),
        ("2024-05-01T05:00:00Z", FIVE.replace(tzinfo=UTC)),
        ("2024-05-01 05:00:00 UTC", FIVE.replace(tzinfo=UTC)),
        ("2024-05-01 05:00:00+02", FIVE.replace(tzinfo=EAST)),
        ("2024-05-01 05:00:00 +0200", FIVE.replace(tzinfo=EAST)),
        ("2024/05/01 05:00:00-02:00", FIVE.replace(tzinfo=timezone(-timedelta(hours=2)))),
        ("2024-05-01", DAY),
        ("2024-05", DAY),
        ("2024/5", DAY),
        ("2024M05", DAY),
        ("1-May-2024", DAY),
        ("May 1, 2024", DAY),
        ("May 2024", DAY),
        ("2024-Q2", datetime(2024, 4, 1)),
        ("2024q2", datetime(2024, 4, 1)),
        ("2024 Q2", datetime(2024, 4, 1)),
        ("Q2 2024", datetime(2024, 4, 1)),
    ],
)
def test_time_stamps_have_many_forms(text: str, expected: datetime) -> None:
    found = parse_time(text)
    assert found == expected
    assert found.tzinfo == expected.tzinfo or found.utcoffset() == expected.utcoffset()


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "2024", "202405", "2024.5", "1999.12", "2024-13", "2024-02-30", "0000-Q1", "2024-Q5"),
        *("1/2/2024", "5:00"),
    ],
)
def test_other_texts_are_no_times(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("31/12/2024", datetime(2024, 12, 31)),
        ("1.2.2024 5:30", datetime(2024, 2, 1, 5, 30)),
        ("01-02-24", datetime(2024, 2, 1)),
        ("12/31/2024", None),
        ("2024-02-01", datetime(2024, 2, 1)),
    ],
)
def test_day_is_first_if_asked(text: str, expected: datetime | None) -> None:
    assert parse_time(text, day_first=True) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1990", "1991.0"], [datetime(1990, 1, 1), datetime(1991, 1, 1)]),
        (["202401", "202402.0"], [datetime(2024, 1, 1), datetime(2024, 2, 1)]),
        (["20240131"], [datetime(2024, 1, 31)]),
        (["2024013123"], [datetime(2024, 1, 31, 23)]),
        (["20240131235959"], [datetime(2024, 1, 31, 23, 59, 59)]),
        (["999999000", "1000000200"], [datetime(2001, 9, 9, 1, 30), datetime(2001, 9, 9, 1, 50)]),
        (["1000000000.5"], [datetime(2001, 9, 9, 1, 46, 40, 500000)]),
        (["1000000000250"], [datetime(2001, 9, 9, 1, 46, 40, 250000)]),
        (["1000000000250000"], [datetime(2001, 9, 9, 1, 46, 40, 250000)]),
        (["1000000000250000000"], [datetime(2001, 9, 9, 1, 46, 40, 250000)]),
        ([*["202401"] * 60, "soon", "202413"], [*[datetime(2024, 1, 1)] * 60, None, None]),
    ],
)
def test_numbers_tell_times(texts: list[str], expected: list[datetime | None]) -> None:
    read = numeric_reader(texts)
    assert read is not None
    assert list(map(read, texts)) == expected


@pytest.mark.parametrize("texts", [[], ["0", "1"], ["2201"], ["202412", "202413"], ["-5"], ["1.5"], ["x"], ["12345"]])
def test_other_numbers_count_steps(texts: list[str]) -> None:
    assert numeric_reader(texts) is None


def test_cells_have_types() -> None:
    texts = ["2024-05-01T00:00:00", "2024-05-01", "5", "x", ""]
    assert [text_of(cell) for cell in (DAY, DAY.date(), 5, " x ", None)] == texts
