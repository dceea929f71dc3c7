"""Find recurring texts: texts of the training corpus in evaluation data, or duplicates within a
corpus.

Scores on training docs are too high. But in many corpora, some texts (such as datelines) recur by
chance, and they are just as common in other docs from the same source. The share expected by chance
is estimated from the training corpus: it is the share of the corpus's passages that recur within
the corpus (see `training.known_text`). A note is added if the share of evaluation passages that the
component knows from training is significantly higher.

Texts that recur within a corpus are harmless, because equal texts stay together when the corpus is
split (see `equal_texts`). But a corpus with many copies is smaller than it seems. Most distinct
texts of a natural corpus occur only once, so a note is added if many of them occur more than once.
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

from ...annotation.equal_texts import AUGMENTED, NO_TEXT, number_texts, text_id
from ...pipeline.component import CostSensitiveNER
from ...training.known_text import Recurring, passage_ids
from ..corpora import corpus_path

MAX_KNOWN_SHARE = 0.02
"""Shares of known passages up to this value are attributed to chance. In GENIA and CoNLL-2000, the
share expected by chance is below 1 %."""

MAX_KNOWN_SHARE_OF_NEW = 0.25
"""Docs aren't new to a component if a larger share of their passages is known from training, unless
this share is expected by chance."""

STANDARD_ERRORS = 3
"""The difference between two shares is attributed to chance if it is at most this number of
standard errors."""

MAX_RECURRING_SHARE = 0.25
"""A note is added if a larger share of the distinct texts of a corpus occurs more than once. The
share is 7 % in the Spanish corpus of CoNLL-2002, which contains some articles twice."""


class Recurrence(NamedTuple):
    """The number of texts that recur.

    n_recurring (int): The number of recurring texts.
    n_texts (int): The total number of texts.
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
        """Describe the number of recurring texts in a sentence, for notes and error messages."""
        return (
            f"{self.n_recurring:,} of {self.n_texts:,} texts ({100 * self.share:.0f} %) recur in "
            f"{self.place}"
        )


class KnownText(NamedTuple):
    """The text that a component has seen during training, or would see.

    ids (set[int]): The hashes of its passages: see `passage_ids`.
    recurring (Recurring): The number of passages that recur in the training corpus. Both counts are
        0 if unknown.
    path (str | None): The path of the training corpus, if known.
    place (str): The source of the text, for use in sentences.
    """

    ids: set[int]
    recurring: Recurring
    path: str | None = None
    place: str = "the training corpus"

    @classmethod
    def from_component(
        cls, nlp: Language, ner: CostSensitiveNER, *, with_raw_text: bool = True
    ) -> "KnownText":
        """Collect the text that a component has seen during training.

        nlp (Language): The pipeline. Its config contains the path of the training corpus.
        ner (CostSensitiveNER): The component of `nlp`.
        with_raw_text (bool): Whether to include the raw text that the vectors were learned from.
        RETURNS (KnownText): The known text.
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
        """Collect the text that a component would see if it were trained on docs.

        docs (Iterable[Doc]): The training docs.
        path (str | None): The path of the docs.
        RETURNS (KnownText): The known text.
        """
        times_of_passage: Counter[int] = Counter()
        for doc in docs:
            times_of_passage.update(passage_ids(doc))
        return cls(set(times_of_passage), Recurring.from_counts(times_of_passage.values()), path)

    def find_in(self, docs: Iterable[Doc]) -> Recurrence:
        """Count the known passages in docs."""
        n_known = 0
        n_passages = 0
        for doc in docs:
            ids = passage_ids(doc)
            n_known += sum(passage in self.ids for passage in ids)
            n_passages += len(ids)
        return Recurrence(n_known, n_passages, self.place)

    def knows(self, doc: Doc) -> bool:
        """Check whether at least half of the passages in a doc are known. A doc without passages
        isn't known."""
        found = self.find_in([doc])
        return found.n_recurring > 0 and found.share >= 0.5

    def explains(self, found: Recurrence) -> bool:
        """Check whether passages may be known by chance: their share is at most `MAX_KNOWN_SHARE`,
        or not significantly larger than the share of passages that recur in the training corpus.

        The two shares are p_1 = (r + 1) / (N + 2), Laplace's estimate of the share of recurring
        passages, if r of the N passages of the training corpus recur; and p_2, the share of the n
        passages in the docs that are known. The upper limit of p_2 is

            max(p_1, MAX_KNOWN_SHARE) + STANDARD_ERRORS sqrt(p_1 (1 - p_1) (1 / N + 1 / n))
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
    """Create notes about recurring texts that make scores on docs misleading: texts that occur in
    the training corpus, or several times in the docs.

    known (KnownText): The text that the component has seen during training.
    docs (Sequence[Doc]): The docs to evaluate on.
    source (str): The path or name of the docs.
    RETURNS (list[str]): At most one sentence about the training corpus (see `note_known`) and one
        about copies (see `note_copies`).
    """
    return note_known(known, docs, source) + note_copies(docs, source)


def note_known(known: KnownText, docs: Iterable[Doc], source: str) -> list[str]:
    """Create a note if docs are the training corpus, or if too many of their passages occur in it.

    known (KnownText): The text that the component has seen during training.
    docs (Iterable[Doc]): The docs to evaluate on.
    source (str): The path or name of the docs.
    RETURNS (list[str]): The note, or an empty list.
    """
    found = known.find_in(docs)
    if is_training_corpus(known, found, source):
        in_itself = found._replace(place="it").as_text()
        return [f"{source} is the training corpus: {in_itself}: scores on them are too high"]
    if known.explains(found):
        return []
    return [f"{source}: {found.as_text()}: scores on them are too high"]


def is_training_corpus(known: KnownText, found: Recurrence, source: str) -> bool:
    """Check whether docs are the training corpus: their path is the same and, if the training text
    is known, the docs contain some of it. (If the pipeline was trained in another folder, the same
    relative path may refer to a different file.)"""
    if known.path is None or not is_same_path(known.path, source):
        return False
    return not known.ids or found.n_recurring > 0


def is_same_path(path: str | Path, other: str | Path) -> bool:
    """Check whether two paths refer to the same file or folder, even if one of them is relative or
    a symbolic link.

    path (str | Path), other (str | Path): The paths.
    RETURNS (bool): Whether they refer to the same file or folder.
    """
    return Path(path).resolve() == Path(other).resolve()


def check_new(known: KnownText, docs: Iterable[Doc], source: str) -> None:
    """Check that docs are new to a component.

    known (KnownText): The text that the component has seen during training.
    docs (Iterable[Doc]): The docs to evaluate on.
    source (str): The path or name of the docs, for the error message.
    RAISES (ValueError): If the docs are the training corpus, or if the share of known passages
        exceeds both `MAX_KNOWN_SHARE_OF_NEW` and the share expected by chance.
    """
    found = known.find_in(docs)
    is_known = found.share > MAX_KNOWN_SHARE_OF_NEW and not known.explains(found)
    if is_known or is_training_corpus(known, found, source):
        raise ValueError(
            f"expected docs that the pipeline was not trained on, got {source}, where "
            f"{found.as_text()}"
        )


def find_copies(docs: Iterable[Doc]) -> Recurrence | None:
    """Count the distinct texts that occur more than once in docs. Texts without letters or digits
    are ignored. Returns None if their share is at most `MAX_RECURRING_SHARE`."""
    ids = numpy.asarray([text_id(doc) for doc in docs], dtype="uint64")
    _, times_of_text = numpy.unique(ids[ids != NO_TEXT], return_counts=True)
    n_recurring = int((times_of_text > 1).sum())
    copies = Recurrence(n_recurring, len(times_of_text), "it")
    return copies if copies.share > MAX_RECURRING_SHARE else None


def note_copies(docs: Iterable[Doc], source: str) -> list[str]:
    """Create a note if many texts occur more than once in docs.

    docs (Iterable[Doc]): The docs to check. Docs that an augmenter added aren't counted.
    source (str): The path or name of the docs.
    RETURNS (list[str]): The note, or an empty list if there are few copies: see `find_copies`.
    """
    copies = find_copies(doc for doc in docs if not doc.user_data.get(AUGMENTED))
    if copies is None:
        return []
    return [f"{source}: {copies.as_text()}: where docs are divided, equal texts stay together"]


def units_of_docs(docs: Sequence[Doc]) -> Ints1d:
    """Assign docs to independent units, e.g. for the bootstrap. If docs contain many copies (see
    `find_copies`), a unit consists of all docs with the same text. Otherwise, each doc is a unit.

    docs (Sequence[Doc]): The docs to assign.
    RETURNS (Ints1d): The index of the unit of each doc. Shape: (docs,)
    """
    if find_copies(docs) is None:
        return numpy.arange(len(docs))
    return number_texts(docs)
