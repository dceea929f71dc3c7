"""Columns of numbers with a row for each token of a corpus, in memory or in files."""

import io
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
from thinc.types import ArrayXd, Ints1d


class Columns:
    """Named columns with a row for each token. A column is only there if some docs need it; then
    the rows of other docs are 0.

    folder (Path | None): For files. None: in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._columns: dict[str, Column] = {}
        # The rows of all columns, once they are written.
        self._rows: dict[str, ArrayXd] = {}

    def write(self, name: str, first_row: int, rows: ArrayXd | None) -> None:
        """Write rows of a column from a place on, if there are some."""
        if rows is None:
            return
        if name not in self._columns:
            self._columns[name] = Column(self.folder, rows)
        self._columns[name].write(first_row, rows)

    def finish(self, n_rows: int) -> None:
        """End writing, before the first row is read."""
        for name, column in self._columns.items():
            # One more row, so that a column has a row for the last token.
            column.write(n_rows, numpy.zeros((1, *column.shape)))
            self._rows[name] = column.read()

    def __getitem__(self, name: str) -> ArrayXd:
        return self._rows[name]

    def read(self, name: str, places: Ints1d) -> Any:
        """Copy rows of a column; None if it is not there."""
        if name not in self._rows:
            return None
        return self._rows[name][places]


class Column:
    """Rows of numbers, written from any place on. Rows that are not written are 0."""

    def __init__(self, folder: Path | None, like: ArrayXd) -> None:
        """Begin without rows, of the type and the width of others. Their file in the folder has no
        name and ends with the process. None: in memory."""
        self.folder = folder
        self.dtype = like.dtype
        self.shape = like.shape[1:]
        self.file: Any = io.BytesIO()
        if folder is not None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open while it is used)

    def write(self, first_row: int, rows: ArrayXd) -> None:
        """Write rows from a place on. Raises an OSError if the disk is full."""
        n_bytes_of_row = self.dtype.itemsize * int(numpy.prod(self.shape))
        try:
            self.file.seek(first_row * n_bytes_of_row)
            self.file.write(numpy.ascontiguousarray(rows, dtype=self.dtype).data)
        except OSError as error:
            raise OSError(f"cache: {self.folder}: {error}") from error

    def read(self) -> ArrayXd:
        """All rows. Nothing can be written afterwards."""
        self.file.flush()
        if isinstance(self.file, io.BytesIO):
            rows = numpy.frombuffer(self.file.getbuffer(), dtype=self.dtype)
        else:
            rows = numpy.asarray(numpy.memmap(self.file, dtype=self.dtype, mode="r"))
        return rows.reshape(-1, *self.shape)

    def __del__(self) -> None:
        with suppress(OSError, BufferError):  # of a full disk; of memory that is still in use
            self.file.close()
