"""Extract features of docs as rows of weights, with an exact vocabulary."""

from collections import Counter
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy
import srsly
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Array1d, Ints1d, Ints2d

from .. import sparse
from .gazetteer import PLACES, Gazetteer
from .lookup import Lookup, of_tokens, pair_up
from .template import GAZETTEER, Column, Template
from .tokens import Tokens, read_tokens


class FeatureBatch(NamedTuple):
    """The features of the tokens of a batch.

    rows (Ints2d): The features of each token: one per slot, -1 for none. In int32.
        Shape: (N, S)
    lengths (Ints1d): Tokens of each doc, in int32. Shape: (B,)
    """

    rows: Ints2d
    lengths: Ints1d


class Features(Shim):
    """The features of tokens.

    A column is one kind of value of a token. Its values that are frequent enough in training are
    numbered. A slot is a column at some offset. Each slot and value is one feature with a row of
    its own:

        row = first row of the slot + number of the value

    Features of a word are computed once and cached.
    """

    def __init__(self, template: Template, dropout: float = 0.0) -> None:
        """Initialize without any features.

        template (Template): The template of the features.
        dropout (float): The share of features that tokens lose in training.
        """
        super().__init__(None)
        self.template = template
        self.dropout = dropout
        self._clear()

    def _clear(self) -> None:
        self._values: Optional[Dict[str, List[str]]] = None
        self._pairs: Dict[str, Array1d] = {}
        self._phrases: Dict[str, List[str]] = {}
        self._forget()

    def _forget(self) -> None:
        self._lookup: Optional[Lookup] = None

    @property
    def has_vocab(self) -> bool:
        """Whether there is a vocabulary."""
        return self._values is not None

    def __len__(self) -> int:
        """V, the number of features."""
        values = {**(self._values or {}), **self._pairs}
        return sum(
            len(column.offsets) * len(values.get(column.name, ()))
            for column in self.template.columns
        )

    def find(self, docs: Sequence[Doc]) -> FeatureBatch:
        """Find the features of tokens.

        docs (Sequence[Doc]): The docs.
        RETURNS (FeatureBatch): Their features.
        """
        look = self._look
        tokens = read_tokens(docs, look.of_tokens, look.gazetteers)
        values = look.values(tokens, docs[0].vocab if docs else None)
        rows = sparse.gather_window(
            values, tokens.lengths, look.slot_columns, look.slot_offsets, look.first_rows
        )
        return FeatureBatch(rows, tokens.lengths)

    def names(self) -> List[str]:
        """The names of the features, such as "LOWER[-1]=of".

        RETURNS (List[str]): A name for each row. Length: V
        """
        names = []
        for column, offset in self._look.slots:
            place = f"[{offset:+d}]" if offset else ""
            if column.pair_of is not None:
                place = f"[{offset:+d},{offset + 1:+d}]"
            names += [f"{column.name}{place}={value}" for value in self._value_names(column)]
        return names

    def _value_names(self, column: Column) -> List[str]:
        values = self._values or {}
        if column.pair_of is None:
            return values[column.name]
        names = values[column.pair_of]
        keys = self._pairs[column.name].tolist()
        return [f"{names[key >> 32]}+{names[key & 0xFFFFFFFF]}" for key in keys]

    def build_vocab(self, docs: Iterable[Doc]) -> None:
        """Build the vocabulary of features.

        docs (Iterable[Doc]): The docs to take features from.
        """
        self._clear()
        columns = self.template.columns
        gazetteers = {
            f"{GAZETTEER}:{name}": Gazetteer.from_file(path)
            for name, path in self.template.gazetteers.items()
        }
        self._phrases = {name: gazetteer.phrases for name, gazetteer in gazetteers.items()}
        strings = StringStore(PLACES)
        tokens, vocab = _read_all(docs, of_tokens(columns), gazetteers, strings)
        self._values = {}
        for column in columns:
            if column.pair_of is None:
                least = self.template.least_count(column.kind)
                counts = _count_values(column, tokens, vocab, strings)
                self._values[column.name] = sorted(
                    value for value, count in counts.items() if count >= least
                )
        # Pairs are of values that have their numbers.
        look = Lookup(columns, self._values, {}, self._phrases)
        values = look.values(tokens, vocab)
        for column in columns:
            if column.pair_of is not None:
                pairs = pair_up(values[:, look.index[column.pair_of]], tokens.lengths)
                keys, n_times = numpy.unique(pairs[pairs >= 0], return_counts=True)
                least = self.template.least_count(column.kind)
                self._pairs[column.name] = keys[n_times >= least]

    @property
    def _look(self) -> "Lookup":
        """Threads that ask at once for the first time each make one; any of them will do."""
        look = self._lookup
        if look is None:
            if self._values is None:
                raise ValueError(
                    "features of a linear CRF: expected a vocabulary, made by `nlp.initialize` "
                    "or loaded, there is none"
                )
            look = Lookup(self.template.columns, self._values, self._pairs, self._phrases)
            self._lookup = look
        return look

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_lookup": None}

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Features":
        return Features(self.template, self.dropout).from_bytes(self.to_bytes())

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing: features are not trained."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: features are extracted on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the vocabulary.

        RETURNS (bytes): What `from_bytes` takes.
        """
        pairs = {name: keys.astype("<i8").tobytes() for name, keys in self._pairs.items()}
        return srsly.msgpack_dumps(
            {
                "columns": self._template(),
                "values": self._values,
                "pairs": pairs,
                "phrases": self._phrases,
            }
        )

    def _template(self) -> List[List[Any]]:
        """What of the template says which feature a row is."""
        return [[column.name, list(column.offsets)] for column in self.template.columns]

    def from_bytes(self, data: bytes) -> "Features":
        """Load the vocabulary.

        data (bytes): What `to_bytes` returned.
        RETURNS (Features): These features.
        RAISES (ValueError): If it is something else, or of another template.
        """
        try:
            saved = srsly.msgpack_loads(data)
            values, phrases = saved["values"], saved["phrases"]
            pairs = {
                name: numpy.frombuffer(keys, dtype="<i8") for name, keys in saved["pairs"].items()
            }
            found = saved.get("columns", [*(values or {}), *pairs])
            _check_values(self.template.columns, values, pairs, phrases)
        except Exception as error:
            raise ValueError(
                f"features of a linear CRF: expected what was saved of them, found damage: {error}"
            ) from error
        # Before 0.2 only the names of columns were saved.
        template = self._template()
        expected = template if "columns" in saved else [name for name, _ in template]
        if values is not None and found != expected:
            raise ValueError(
                f"features of a linear CRF: expected those of the config, {expected}, got {found}"
            )
        self._clear()
        self._values, self._pairs, self._phrases = values, pairs, phrases
        return self


def _check_values(
    columns: Sequence[Column],
    values: Optional[Dict[str, List[str]]],
    pairs: Dict[str, Array1d],
    phrases: Dict[str, List[str]],
) -> None:
    """Check that a vocabulary is lists of strings, and pairs of their numbers."""
    for name, names in [*(values or {}).items(), *phrases.items()]:
        if not isinstance(names, list) or not all(isinstance(value, str) for value in names):
            raise ValueError(f"{name}: expected a list of strings, got {type(names).__name__}")
        if name not in phrases and len(set(names)) < len(names):
            raise ValueError(f"{name}: expected each value once")
    for column in columns:
        keys = pairs.get(column.name, numpy.zeros(0, dtype="<i8"))
        numbers = numpy.stack([keys >> 32, keys & 0xFFFFFFFF])
        n_values = len((values or {}).get(column.pair_of or "", ()))
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < n_values):
            raise ValueError(f"{column.name}: expected pairs of {n_values} values")
        if column.kind == GAZETTEER and values is not None and column.name not in phrases:
            raise ValueError(f"{column.name}: expected phrases, found none")


def _read_all(
    docs: Iterable[Doc],
    columns: Sequence[Column],
    gazetteers: Dict[str, Gazetteer],
    strings: StringStore,
) -> Tuple[Tokens, Optional[Vocab]]:
    """The tokens of all docs, and the vocab of the docs. Keeps what the hashes mean."""
    vocab, parts = None, [read_tokens([], [], {})]
    for doc in docs:
        vocab = doc.vocab
        parts.append(read_tokens([doc], columns, gazetteers, strings))
    keys = {
        column.name: numpy.concatenate([part.keys[column.name] for part in parts[1:]])
        for column in columns
        if len(parts) > 1
    }
    orth = numpy.concatenate([part.orth for part in parts])
    return Tokens(orth, keys, numpy.concatenate([part.lengths for part in parts])), vocab


def _count_values(
    column: Column, tokens: Tokens, vocab: Optional[Vocab], strings: StringStore
) -> "Counter[str]":
    counts: Counter[str] = Counter()
    if vocab is None:
        return counts
    keys = tokens.orth if column.view is not None else tokens.keys[column.name]
    for key, count in zip(*(array.tolist() for array in numpy.unique(keys, return_counts=True))):
        if column.view is not None:
            value = column.view(vocab[key])
        elif key in strings:
            value = strings[key]
        else:
            value = vocab.strings[key]
        if value:
            counts[value] += count
    return counts
