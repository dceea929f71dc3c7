"""Find texts that recur: in the training corpus and in evaluation data, or several times in one
corpus.

Scores on training docs are too high. But in many corpora some texts recur by chance, such as
datelines, and other docs from the same source have as many of them. The training corpus shows how
many: the share of its passages that recur in it (see `training.known_text`). There is a note if the
component knows a significantly larger share of the passages of docs.

Texts that recur in one corpus do no harm, as equal texts stay together where it is divided (see
`equal_texts`). But a corpus of copies is smaller than it looks. In natural corpora most different
texts occur once, so there is a note if many occur more than once.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.types import Ints1d

from ...annotation.equal_texts import NO_TEXT, number_texts, text_id
from ...pipeline.component import CostSensitiveNER
from ...training.known_text import Recurring, passage_ids
from ..corpora import corpus_path

MAX_KNOWN_SHARE = 0.02
"""A share of known passages up to this counts as chance. In GENIA and in CoNLL-2000 the share is
below 1 % by chance."""

MAX_KNOWN_SHARE_OF_NEW = 0.25
"""If a component knows a larger share of the passages of docs, and not by chance, the docs are not
new to it."""

STANDARD_ERRORS = 3
"""Shares that differ by fewer standard errors may differ by chance."""

MAX_RECURRING_SHARE = 0.25
"""There is a note if a larger share of the distinct texts of a corpus occurs more than once. In the
Spanish corpus of CoNLL-2002, where articles are printed twice, it is 7 %."""


class Recurrence(NamedTuple):
    """The number of texts that recur.

    n_recurring (int): The number of texts that recur.
    n_texts (int): The number of all texts.
    place (str): The corpus in which they recur.
    """

    n_recurring: int
    n_texts: int
    place: str

    @property
    def share(self) -> float:
        """The share of texts that recur."""
        return self.n_recurring / max(self.n_texts, 1)

    def as_text(self) -> str:
        """A sentence with the number of texts that recur, for notes and errors."""
        return (
            f"{self.n_recurring:,} of {self.n_texts:,} texts ({100 * self.share:.0f} %) recur in "
            f"{self.place}"
        )


class KnownText(NamedTuple):
    """The text that a component knows, or would know after training.

    ids (set[int]): The hashes of its passages: see `passage_ids`.
    recurring (Recurring): The number of passages that recur in the training corpus. It has no
        passages if that number is unknown.
    path (str | None): The path of the training corpus. None if it is unknown.
    place (str): The corpus of the text, for sentences.
    """

    ids: set[int]
    recurring: Recurring
    path: str | None = None
    place: str = "the training corpus"

    @classmethod
    def from_component(
        cls, nlp: Language, ner: CostSensitiveNER, *, with_raw_text: bool = True
    ) -> "KnownText":
        """The text that a component knows.

        nlp (Language): The pipeline, whose config has the path of the training corpus.
        ner (CostSensitiveNER): The component of `nlp`.
        with_raw_text (bool): Whether the raw text that the vectors were learned from counts as
            known, too.
        RETURNS (KnownText): The hashes of its passages, and its corpus.
        """
        path = corpus_path(nlp.config.interpolate(), "train_corpus")
        known = cls(set(ner.trained_on.tolist()), ner.recurring, path)
        if not with_raw_text or not len(ner.raw_text):
            return known
        return known._replace(
            ids={*known.ids, *ner.raw_text.tolist()},
            place="the training corpus or in the raw text that the vectors were learned from",
        )

    @classmethod
    def from_docs(cls, docs: Iterable[Doc], path: str | None = None) -> "KnownText":
        """The text that a component would know if it were trained on docs.

        docs (Iterable[Doc]): The training docs.
        path (str | None): The path that they were read from.
        RETURNS (KnownText): The hashes of its passages, and its corpus.
        """
        times_of_passage: Counter[int] = Counter()
        for doc in docs:
            times_of_passage.update(passage_ids(doc))
        return cls(set(times_of_passage), Recurring.from_counts(times_of_passage.values()), path)

    def find_in(self, docs: Iterable[Doc]) -> Recurrence:
        """Count the passages of docs that are known."""
        n_known = 0
        n_passages = 0
        for doc in docs:
            ids = passage_ids(doc)
            n_known += sum(passage in self.ids for passage in ids)
            n_passages += len(ids)
        return Recurrence(n_known, n_passages, self.place)

    def knows(self, doc: Doc) -> bool:
        """Whether at least half of the passages of a doc are known. A doc without passages is not
        known."""
        found = self.find_in([doc])
        return found.n_recurring > 0 and found.share >= 0.5

    def explains(self, found: Recurrence) -> bool:
        """Whether passages may be known by chance: their share is at most `MAX_KNOWN_SHARE`, or not
        significantly larger than the share of passages that recur in the training corpus.

        Two shares are compared: p_1 = (r + 1) / (N + 2), Laplace's estimate of the share of the N
        passages of the training corpus that recur, if r recur; and p_2, the share of the n passages
        of docs that are known. The limit of p_2 is

            p_1 + STANDARD_ERRORS sqrt(p_1 (1 - p_1) (1 / N + 1 / n))
        """
        if found.share <= MAX_KNOWN_SHARE:
            return True
        n_recurring, n_passages = self.recurring
        if not n_passages:
            return False
        share = (n_recurring + 1) / (n_passages + 2)
        error = sqrt(share * (1 - share) * (1 / n_passages + 1 / found.n_texts))
        return found.share <= max(share, MAX_KNOWN_SHARE) + STANDARD_ERRORS * error


def note_recurrence(known: KnownText, docs: Sequence[Doc], source: str) -> list[str]:
    """Note that texts of docs recur, so that scores on them are misleading: in the training corpus,
    or several times in the docs.

    known (KnownText): The text that the component knows.
    docs (Sequence[Doc]): The docs to evaluate on.
    source (str): The path or the name of the docs.
    RETURNS (list[str]): At most one sentence for the training corpus (see `note_known`), and one
        for copies (see `note_copies`).
    """
    return note_known(known, docs, source) + note_copies(docs, source)


def note_known(known: KnownText, docs: Iterable[Doc], source: str) -> list[str]:
    """Note that docs are the training corpus, or that too many of their texts are in it.

    known (KnownText): The text that the component knows.
    docs (Iterable[Doc]): The docs to evaluate on.
    source (str): The path or the name of the docs.
    RETURNS (list[str]): One sentence, or none.
    """
    found = known.find_in(docs)
    if is_training_corpus(known, found, source):
        in_itself = found._replace(place="it").as_text()
        return [f"{source} is the training corpus: {in_itself}: scores on them are too high"]
    if known.explains(found):
        return []
    return [f"{source}: {found.as_text()}: scores on them are too high"]


def is_training_corpus(known: KnownText, found: Recurrence, source: str) -> bool:
    """Whether docs are the training corpus: the paths are the same and, if the training text is
    known, some of it was found in the docs. (A pipeline may have been trained in another folder,
    where a relative path was another file.)"""
    if known.path is None or not is_same_path(known.path, source):
        return False
    return not known.ids or found.n_recurring > 0


def is_same_path(path: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to the same file or folder, also if one of them is relative or a link.

    path (str | Path), other (str | Path): The paths.
    RETURNS (bool): Whether they do.
    """
    return Path(path).resolve() == Path(other).resolve()


def check_new(known: KnownText, docs: Iterable[Doc], source: str) -> None:
    """Check that docs are new to a component.

    known (KnownText): The text that the component knows.
    docs (Iterable[Doc]): The docs to evaluate on.
    source (str): The path or the name of the docs, for the error.
    RAISES (ValueError): If they are the training corpus, or if more than `MAX_KNOWN_SHARE_OF_NEW`
        of their passages are known, and not by chance.
    """
    found = known.find_in(docs)
    is_known = found.share > MAX_KNOWN_SHARE_OF_NEW and not known.explains(found)
    if is_known or is_training_corpus(known, found, source):
        raise ValueError(
            f"expected docs that the pipeline was not trained on, got {source}, where "
            f"{found.as_text()}"
        )


def find_copies(docs: Iterable[Doc]) -> Recurrence | None:
    """Count the distinct texts that occur more than once in docs. Texts without letters and digits
    don't count. Returns None if their share is at most `MAX_RECURRING_SHARE`."""
    ids = numpy.asarray([text_id(doc) for doc in docs], dtype="uint64")
    _, times_of_text = numpy.unique(ids[ids != NO_TEXT], return_counts=True)
    n_recurring = int((times_of_text > 1).sum())
    copies = Recurrence(n_recurring, len(times_of_text), "it")
    return copies if copies.share > MAX_RECURRING_SHARE else None


def note_copies(docs: Iterable[Doc], source: str) -> list[str]:
    """Note that many texts occur more than once in docs.

    docs (Iterable[Doc]): The docs.
    source (str): The path or the name of the docs.
    RETURNS (list[str]): One sentence, or none if copies are few: see `find_copies`.
    """
    copies = find_copies(docs)
    if copies is None:
        return []
    return [f"{source}: {copies.as_text()}: where docs are divided, equal texts stay together"]


def units_of_docs(docs: Sequence[Doc]) -> Ints1d:
    """Number the units in which docs are counted where their number matters, as in the bootstrap:
    if many docs are copies (see `find_copies`), a unit has all docs with equal texts. Otherwise
    each doc is a unit.

    docs (Sequence[Doc]): The docs.
    RETURNS (Ints1d): The index of the unit of each doc. Shape: (docs,)
    """
    if find_copies(docs) is None:
        return numpy.arange(len(docs))
    return number_texts(docs)
