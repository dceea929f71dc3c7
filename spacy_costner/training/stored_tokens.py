"""The features and targets of a corpus as columns of its tokens, in memory or in files."""

import io
import tempfile
from array import array
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Dict, Optional, Sequence, Tuple

import numpy
from thinc.types import Array1d, Array2d, ArrayXd, Ints1d, Ints2d

from .. import chain
from ..features import FeatureBatch, TokenValues
from ..features.memory import ranges
from ..ml import linear_part
from .soft_targets import DocPair, read_soft_targets
from .targets import Targets

if TYPE_CHECKING:
    from ..pipeline.component import CostSensitiveNER


class Column:
    """Rows of numbers, written from any place on. Rows that are not written are 0."""

    def __init__(self, folder: Optional[Path], like: ArrayXd) -> None:
        """Begin without rows.

        folder (Optional[Path]): Where their file is, which has no name there and ends with the
            process. None: in memory.
        like (ArrayXd): Rows of this type and width. Shape: (N, ...)
        """
        self.folder, self.dtype, self.shape = folder, like.dtype, like.shape[1:]
        self.file: IO[bytes] = io.BytesIO()
        if folder is not None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open while it is used)

    def write(self, first: int, rows: ArrayXd) -> None:
        """Write rows from a place on. Shape: (N, ...)

        RAISES (OSError): If the disk is full.
        """
        try:
            self.file.seek(first * self.dtype.itemsize * int(numpy.prod(self.shape)))
            self.file.write(numpy.ascontiguousarray(rows, dtype=self.dtype).data)
        except OSError as error:
            raise OSError(f"fit: --cache: {self.folder}: {error}") from error

    def read(self) -> ArrayXd:
        """All rows. Nothing can be written afterwards. Shape: (N, ...)"""
        self.file.flush()
        if isinstance(self.file, io.BytesIO):
            rows = numpy.frombuffer(self.file.getbuffer(), dtype=self.dtype)
        else:
            rows = numpy.asarray(numpy.memmap(self.file, dtype=self.dtype, mode="r"))
        return rows.reshape(-1, *self.shape)

    def __del__(self) -> None:
        if not isinstance(self.file, io.BytesIO):
            with suppress(OSError):  # of a full disk
                self.file.close()


class StoredTokens:
    """The features and targets of the tokens of docs, of which pieces become batches.

    Features are the values of a token's own columns, from which its slots are gathered when a batch
    is made. Masks of tags have rows only where a batch of docs needs them.
    """

    def __init__(self, ner: "CostSensitiveNER", folder: Optional[Path] = None) -> None:
        """Begin without tokens.

        ner (CostSensitiveNER): An initialized component with a linear model.
        folder (Optional[Path]): Where the files are. None: in memory.
        """
        self.folder, self.tags = folder, ner.chain_tags
        self.features, _ = linear_part(ner.model)
        self.reach, self.n_tokens = self.features.reach, 0
        self._columns: Dict[str, Column] = {}
        self._common: Targets
        self._places, self._weights = array("q"), array("d")
        self._rows: Dict[str, ArrayXd] = {}

    def add(self, values: Ints2d, targets: Targets) -> None:
        """Add docs.

        values (Ints2d): The values of their tokens. Shape: (N, C)
        targets (Targets): Their targets, without soft targets and incorrect spans.
        """
        gold = targets.gold
        rows = {
            "values": values,
            "tags": gold.tags.astype("int64"),
            "token_weights": gold.token_weights,
            "allowed": gold.allowed,
            "possible": targets.constraints.emissions,
        }
        for name, part in rows.items():
            if part is not None:
                if name not in self._columns:
                    self._columns[name] = Column(self.folder, part)
                self._columns[name].write(self.n_tokens, part)
        self.n_tokens += len(gold.tags)
        self._common = targets

    def add_piece(self, first: int, end: int, doc: slice, weight: Optional[float]) -> int:
        """Add a piece of a doc.

        first (int), end (int): The tokens of the piece.
        doc (slice): Those of the whole doc.
        weight (Optional[float]): The weight of the doc, if it has one.
        RETURNS (int): Its number.
        """
        begin, stop = max(doc.start, first - self.reach), min(doc.stop, end + self.reach)
        self._places.extend([first, end, begin, stop])
        self._weights.append(numpy.nan if weight is None else weight)
        return len(self._weights) - 1

    def finish(self) -> None:
        """End what is added, before the first batch is read."""
        for column in self._columns.values():
            column.write(self.n_tokens, numpy.zeros((1, *column.shape)))
        self._rows = {name: column.read() for name, column in self._columns.items()}

    def read(self, pieces: Ints1d, pairs: Sequence[DocPair] = ()) -> Tuple[FeatureBatch, Targets]:
        """Make a batch of pieces.

        pieces (Ints1d): Their numbers. Shape: (B,)
        pairs (Sequence[DocPair]): Their examples, if some have soft targets.
        RETURNS (Tuple[FeatureBatch, Targets]): Their features and targets.
        """
        places = numpy.frombuffer(self._places, dtype="int64").reshape(-1, 4)[pieces]
        first, end, begin, stop = places.T
        of, tokens = ranges(begin, stop)
        values = TokenValues(self._rows["values"][tokens], (stop - begin).astype("int32"))
        rows = self.features.gather(values).rows
        inside = (tokens >= first[of]) & (tokens < end[of])
        if not inside.all():
            rows, tokens = rows[inside], tokens[inside]
        seen = FeatureBatch(rows, (end - first).astype("int32"))
        return seen, self._targets(seen, tokens, self._weights_of(pieces), pairs)

    def _targets(
        self,
        seen: FeatureBatch,
        tokens: Ints1d,
        weights: Optional[Array1d],
        pairs: Sequence[DocPair],
    ) -> Targets:
        """The targets of some tokens."""
        tags = self._rows["tags"][tokens]
        allowed, possible = self._mask("allowed", tokens), self._mask("possible", tokens)
        if allowed is not None:
            is_known = ~allowed.any(axis=1)
            allowed[is_known] = chain.to_mask(tags[is_known], len(self.tags))
        if possible is not None:
            possible[~possible.any(axis=1)] = True
        gold = self._common.gold._replace(
            tags=tags,
            allowed=allowed,
            token_weights=self._of("token_weights", tokens),
            weights=weights,
            features=seen.rows,
        )
        constraints = self._common.constraints._replace(emissions=possible)
        soft = None
        if pairs:
            soft = read_soft_targets(pairs, self.tags, constraints, seen.lengths, weights)
        return Targets(gold, constraints, seen.lengths, soft=soft)

    def _of(self, name: str, tokens: Ints1d) -> Optional[Array1d]:
        return self._rows[name][tokens] if name in self._rows else None

    def _mask(self, name: str, tokens: Ints1d) -> Optional[Array2d]:
        """The mask of tokens, with no tag where it says nothing. None: nowhere does it."""
        mask = self._of(name, tokens)
        return mask if mask is not None and mask.any() else None

    def _weights_of(self, pieces: Ints1d) -> Optional[Array1d]:
        weights = numpy.frombuffer(self._weights)[pieces]
        return None if numpy.isnan(weights).all() else numpy.nan_to_num(weights, nan=1.0)
