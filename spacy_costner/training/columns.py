"""Columns of numbers with a row for each token of a corpus, in memory or in files.

First the rows of all tokens are written, batch after batch of docs. Then rows are read in any
order, such as the order of the tokens of a training batch. Files are for a corpus that is too large
for memory.
"""

import io
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
from thinc.types import ArrayXd, Ints1d


class Columns:
    """Columns, by name, with a row for each token. A column doesn't have to be written for all
    docs: the rows of the other docs are 0. A column that is never written doesn't exist.

    folder (Path | None): The folder for the files of the columns. None: they are kept in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._columns: dict[str, StoredColumn] = {}
        # The same columns as arrays, once `finish` was called. The first axis is the tokens.
        self._arrays: dict[str, ArrayXd] = {}

    def write(self, name: str, first_row: int, rows: ArrayXd | None) -> None:
        """Write rows of a column, from row `first_row` on. If `rows` is None, nothing is written,
        and the column has 0 for these tokens."""
        if rows is None:
            return
        if name not in self._columns:
            self._columns[name] = StoredColumn(self.folder, rows)
        self._columns[name].write(first_row, rows)

    def finish(self, n_rows: int) -> None:
        """End writing, so that rows can be read. `n_rows` is the number of tokens of the corpus."""
        for name, column in self._columns.items():
            # The last docs may lack the column. One more row, after the last token, makes the
            # column long enough: the rows between are 0.
            column.write(n_rows, numpy.zeros((1, *column.shape)))
            self._arrays[name] = column.read()

    def __getitem__(self, name: str) -> ArrayXd:
        """Return all rows of a column, which has to exist: one for each token, and the one that
        `finish` adds."""
        return self._arrays[name]

    def read(self, name: str, tokens: Ints1d) -> Any:
        """Return a copy of the rows of some tokens, by their indices in the corpus. None if the
        column doesn't exist."""
        if name not in self._arrays:
            return None
        return self._arrays[name][tokens]


class StoredColumn:
    """Rows of numbers, in a file or in memory. They are written in any order, and then read. Rows
    that are left out while later ones are written are 0.

    folder (Path | None): The folder for its file, which has no name and is deleted when the process
        ends. None: the rows are in memory.
    first_rows (ArrayXd): Any rows of the column: they give the type of its numbers and the shape of
        a row.
    """

    def __init__(self, folder: Path | None, first_rows: ArrayXd) -> None:
        self.folder = folder
        self.dtype = first_rows.dtype
        self.shape = first_rows.shape[1:]
        self.file: Any = io.BytesIO()
        if folder is not None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open while it is used)

    def write(self, first_row: int, rows: ArrayXd) -> None:
        """Write rows, from row `first_row` on.

        RAISES (OSError): If they can't be written, for example because the disk is full.
        """
        n_bytes_of_row = self.dtype.itemsize * int(numpy.prod(self.shape))
        try:
            self.file.seek(first_row * n_bytes_of_row)
            self.file.write(numpy.ascontiguousarray(rows, dtype=self.dtype).data)
        except OSError as error:
            raise OSError(f"cache: {self.folder}: {error}") from error

    def read(self) -> ArrayXd:
        """Return all rows, without copying them. Nothing can be written afterwards.
        Shape: (rows, *shape of a row)"""
        self.file.flush()
        # The file has all numbers of the first row, then all numbers of the next row, and so on.
        if isinstance(self.file, io.BytesIO):
            numbers = numpy.frombuffer(self.file.getbuffer(), dtype=self.dtype)
        else:
            memory_map = numpy.memmap(self.file, dtype=self.dtype, mode="r")
            numbers = numpy.asarray(memory_map)  # rows of a `memmap` would be of its class, too
        return numbers.reshape(-1, *self.shape)

    def __del__(self) -> None:
        """Close the file. Two errors are ignored. If the disk is full, `write` has already reported
        it. If arrays still use the memory, it is freed with the last of them."""
        with suppress(OSError, BufferError):
            self.file.close()
