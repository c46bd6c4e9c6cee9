"""Rows of Parquet. Needs pyarrow, the extra `parquet`."""

from collections.abc import Iterator, Sequence
from typing import Any

from typing_extensions import override

from artifact.errors import InputError
from artifact.tables.lines import known_value
from artifact.tables.table import BadRow, Cells, Table

ROWS = 64
"""Rows that are decoded together."""
BUFFER = 2**20


class Parquet(Table):
    """A Parquet file, read in pages and not in whole row groups. Fields of structures have dotted names.

    Raises: InputError if the file is damaged, or pyarrow is not installed.
    """

    columns: tuple[str, ...]

    def __init__(self, raw: Any, name: str, encoding: str = "") -> None:
        super().__init__(name)
        self.encoding = encoding
        try:
            from pyarrow import ArrowException, parquet
        except ModuleNotFoundError:
            raise InputError(f"{name}: Parquet needs pyarrow: pip install '.[parquet]'") from None
        self._error: type[Exception] = ArrowException
        try:
            self._file = parquet.ParquetFile(raw, pre_buffer=False, buffer_size=BUFFER)
        except ArrowException as error:
            raise self._damaged(error) from None
        self._size = raw.seek(0, 2)
        self._done = 0
        self.columns = tuple(_names(self._file.schema_arrow))

    @override
    def rows(self, columns: Sequence[str]) -> Iterator[tuple[str, Cells | BadRow]]:
        try:
            for batch in self._file.iter_batches(ROWS, columns=list(columns)):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    self._done += 1
                    yield f"{self.name}:{self._done}", tuple(known_value(row, column) for column in columns)
        except self._error as error:
            raise self._damaged(error) from None

    @override
    def position(self) -> int:
        """Share of the rows read so far, in bytes of the file."""
        position: int = self._size * self._done // max(1, self._file.metadata.num_rows)
        return position

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self.name}: {(str(error).splitlines() or [type(error).__name__])[0]}")


def _names(fields: Any) -> Iterator[str]:
    """Names of columns, each followed by those of its fields if it holds structures."""
    from pyarrow import types

    for field in fields:
        yield field.name
        if types.is_struct(field.type):
            yield from (f"{field.name}.{name}" for name in _names(field.type))
