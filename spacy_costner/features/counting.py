"""Count the labels of the training data: what a label memory is made of."""

from typing import NamedTuple, Sequence, Union

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d

from .memory import Counts, LabelMemory
from .template import DOC, EXTENSION
from .tokens import Tokens, text_id

OUTSIDE = "O"


class Gold(NamedTuple):
    """The labels of a doc.

    label (Array1d): The hash of the entity label of each token, 0 for none. Shape: (N,)
    is_annotated (Array1d): False where annotation is missing. Shape: (N,)
    text_id (int): The hash of its text: see `text_id`.
    unit (int): Its unit: see `unit_of`.
    """

    label: Array1d
    is_annotated: Array1d
    text_id: int
    unit: int


def unit_of(doc: Doc, index: int, unit: Union[int, str]) -> int:
    """The unit of a doc.

    doc (Doc): The doc.
    index (int): How many docs come before it.
    unit (Union[int, str]): The setting `memory_unit`.
    RETURNS (int): The unit, in 64 bits.
    RAISES (ValueError): If the setting is an extension attribute that is not set.
    """
    if isinstance(unit, int):
        return index // unit
    if unit == DOC:
        return text_id(doc)
    name = unit.removeprefix(EXTENSION)
    if not Doc.has_extension(name):
        raise ValueError(
            f"spacy_costner.Features: memory_unit: expected {unit} to be set with "
            "Doc.set_extension before training, it is not"
        )
    return get_string_id(str(doc._.get(name)))


def read_gold(doc: Doc, index: int, unit: Union[int, str]) -> Gold:
    """Read the labels of a doc: see `unit_of`."""
    columns = doc.to_array([ENT_IOB, ENT_TYPE]).reshape(len(doc), 2)
    return Gold(columns[:, 1], columns[:, 0] != 0, text_id(doc), unit_of(doc, index, unit))


def count_labels(
    tokens: Tokens, gold: Sequence[Gold], attributes: Sequence[str], strings: StringStore
) -> LabelMemory:
    """Count the labels of the training data. Tokens without annotation are not counted.

    tokens (Tokens): The tokens of all docs.
    gold (Sequence[Gold]): The labels of each doc.
    attributes (Sequence[str]): The attributes.
    strings (StringStore): The strings of the labels' hashes.
    RETURNS (LabelMemory): The memory.
    """
    none = numpy.zeros(0, dtype="uint64")
    known = numpy.concatenate([none == 0, *(doc.is_annotated for doc in gold)])
    hashes = numpy.concatenate([none, *(doc.label for doc in gold)])[known]
    by_name = {strings[key]: key for key in numpy.unique(hashes).tolist() if key}
    names = sorted(by_name)
    label = _index(hashes, numpy.asarray([0, *(by_name[name] for name in names)], dtype="uint64"))
    units = numpy.asarray([doc.unit for doc in gold], dtype="uint64")
    units, unit = numpy.unique(units, return_inverse=True)
    by_token = numpy.repeat(unit, tokens.lengths)[known]
    sizes = len(names) + 1, len(units)
    counts = {
        name: _count(tokens.keys[name][known], label, by_token, *sizes) for name in attributes
    }
    text_ids = numpy.asarray([doc.text_id for doc in gold], dtype="uint64")
    order = numpy.argsort(text_ids, kind="stable")
    return LabelMemory([OUTSIDE, *names], counts, text_ids[order], unit[order].astype("int32"))


def _index(keys: Array1d, among: Array1d) -> Ints1d:
    """The index of each key in an array that has it."""
    order = numpy.argsort(among)
    return order[numpy.searchsorted(among[order], keys)]


def _count(keys: Array1d, label: Ints1d, unit: Ints1d, n_labels: int, n_units: int) -> Counts:
    """The counts of one attribute. Shapes of the arrays: (N,)"""
    there = keys != 0
    keys, value = numpy.unique(keys[there], return_inverse=True)
    label, unit = label[there], unit[there]
    total = numpy.bincount(value * n_labels + label, minlength=len(keys) * n_labels)
    place = (unit * len(keys) + value) * n_labels + label
    places, n_times = numpy.unique(place, return_counts=True)
    places, label = numpy.divmod(places, n_labels)
    unit, value = numpy.divmod(places, max(len(keys), 1))
    return Counts(
        keys=keys,
        total=total.reshape(-1, n_labels).astype("int32"),
        starts=numpy.searchsorted(unit, numpy.arange(n_units + 1)).astype("int32"),
        value=value.astype("int32"),
        label=label.astype("int32"),
        n_times=n_times.astype("int32"),
    )
