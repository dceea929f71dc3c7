"""Columns of numbers with a row for each token of a corpus, in memory or in files.

A corpus may be too large for memory. So columns are written batch by batch, and then rows are read
in any order: those of the tokens of a training batch.
"""

import io
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
from thinc.types import ArrayXd, Ints1d


class Columns:
    """Named columns with a row for each token. Docs may lack a column: their rows are 0, and if all
    lack it, it doesn't exist.

    folder (Path | None): Where the files of the columns are. None: they are in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._columns: dict[str, Column] = {}
        # The same columns as arrays, after `finish`. Their first axis is that of tokens.
        self._arrays: dict[str, ArrayXd] = {}

    def write(self, name: str, first_row: int, rows: ArrayXd | None) -> None:
        """Write rows of a column, beginning at row `first_row`. None: these tokens lack it."""
        if rows is None:
            return
        if name not in self._columns:
            self._columns[name] = Column(self.folder, rows)
        self._columns[name].write(first_row, rows)

    def finish(self, n_rows: int) -> None:
        """End writing, so that rows can be read. `n_rows` is the number of tokens."""
        for name, column in self._columns.items():
            # A column ends with its last written row, and later tokens may lack it. A row behind
            # the last token makes rows of 0 for these.
            column.write(n_rows, numpy.zeros((1, *column.shape)))
            self._arrays[name] = column.read()

    def __getitem__(self, name: str) -> ArrayXd:
        """All rows of a column that exists."""
        return self._arrays[name]

    def read(self, name: str, tokens: Ints1d) -> Any:
        """Copy the rows of some tokens, by their numbers; None if the column doesn't exist."""
        if name not in self._arrays:
            return None
        return self._arrays[name][tokens]


class Column:
    """Rows of numbers, in a file or in memory. They are written in any order, and then read. Rows
    before the last written one that are not written are 0.

    folder (Path | None): Where its file is, which has no name and ends with the process. None: it
        is in memory.
    first_rows (ArrayXd): Rows that say the type of the numbers and the shape of a row.
    """

    def __init__(self, folder: Path | None, first_rows: ArrayXd) -> None:
        self.folder = folder
        self.dtype = first_rows.dtype
        self.shape = first_rows.shape[1:]
        self.file: Any = io.BytesIO()
        if folder is not None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open while it is used)

    def write(self, first_row: int, rows: ArrayXd) -> None:
        """Write rows, beginning at row `first_row`. Raises an OSError if the disk is full."""
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
            numbers = numpy.frombuffer(self.file.getbuffer(), dtype=self.dtype)
        else:
            numbers = numpy.asarray(numpy.memmap(self.file, dtype=self.dtype, mode="r"))
        return numbers.reshape(-1, *self.shape)

    def __del__(self) -> None:
        """Close the file. That fails silently if the disk is full, which `write` has reported, and
        if arrays still use the memory, which ends with them."""
        with suppress(OSError, BufferError):
            self.file.close()
