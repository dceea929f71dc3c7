"""Columns of numbers with a row for each token in a corpus, stored in memory or in files.

First, the rows of all tokens are written, one batch of docs at a time. Then, rows can be read in
any order, such as the order of the tokens in a training batch. Files are used if a corpus is too
large for memory.
"""

import io
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
from thinc.types import ArrayXd, Ints1d


class Columns:
    """Named columns with a row for each token. If a column isn't written for some docs, their rows
    are 0. Columns that are never written don't exist.

    folder (Path | None): The directory for the files. If None, the columns are kept in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._columns: dict[str, StoredColumn] = {}
        # The same columns as arrays, available after `finish`. The first axis is tokens.
        self._arrays: dict[str, ArrayXd] = {}

    def write(self, name: str, first_row: int, rows: ArrayXd | None) -> None:
        """Write rows of a column, starting at row `first_row`. If `rows` is None, nothing is
        written, and the column is 0 for these tokens."""
        if rows is None:
            return
        if name not in self._columns:
            self._columns[name] = StoredColumn(self.folder, rows)
        self._columns[name].write(first_row, rows)

    def finish(self, n_rows: int) -> None:
        """Finish writing, so that rows can be read. `n_rows` is the number of tokens in the
        corpus."""
        for name, column in self._columns.items():
            # The column may not have been written for the last docs. Write an additional row after
            # the last token, to fill any missing rows with 0.
            column.write(n_rows, numpy.zeros((1, *column.shape)))
            self._arrays[name] = column.read()

    def __getitem__(self, name: str) -> ArrayXd:
        """Return all rows of an existing column: one row for each token, and the additional row
        that `finish` writes."""
        return self._arrays[name]

    def read(self, name: str, tokens: Ints1d) -> Any:
        """Return a copy of the rows of the given tokens, or None if the column doesn't exist.
        Tokens are indices in the corpus."""
        if name not in self._arrays:
            return None
        return self._arrays[name][tokens]


class StoredColumn:
    """Rows of numbers, in a file or in memory. All rows are written, in any order, before they are
    read. Skipped rows are 0 if a later row is written.

    folder (Path | None): The directory for the column's file, which is unnamed and deleted when the
        process ends. If None, the rows are kept in memory.
    first_rows (ArrayXd): Any rows of the column, used to determine the data type and the shape of a
        row.
    """

    def __init__(self, folder: Path | None, first_rows: ArrayXd) -> None:
        self.folder = folder
        self.dtype = first_rows.dtype
        self.shape = first_rows.shape[1:]
        self.file: Any = io.BytesIO()
        if folder is not None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (stays open while in use)

    def write(self, first_row: int, rows: ArrayXd) -> None:
        """Write rows, starting at row `first_row`.

        RAISES (OSError): If the rows can't be written, for example because the disk is full.
        """
        n_bytes_of_row = self.dtype.itemsize * int(numpy.prod(self.shape))
        try:
            self.file.seek(first_row * n_bytes_of_row)
            self.file.write(numpy.ascontiguousarray(rows, dtype=self.dtype).data)
        except OSError as error:
            raise OSError(f"cache: {self.folder}: {error}") from error

    def read(self) -> ArrayXd:
        """Return all rows, without copying them. No more rows can be written afterwards. Shape:
        (rows, *shape of a row)"""
        self.file.flush()
        # The file contains all numbers of the first row, followed by all numbers of the next row,
        # and so on.
        if isinstance(self.file, io.BytesIO):
            numbers = numpy.frombuffer(self.file.getbuffer(), dtype=self.dtype)
        else:
            memory_map = numpy.memmap(self.file, dtype=self.dtype, mode="r")
            numbers = numpy.asarray(memory_map)  # otherwise, rows would also be of type `memmap`
        return numbers.reshape(-1, *self.shape)

    def __del__(self) -> None:
        """Close the file. Two errors are ignored: if the disk is full, `write` has already reported
        it, and if arrays still use the memory, it is freed together with the last of them."""
        with suppress(OSError, BufferError):
            self.file.close()
