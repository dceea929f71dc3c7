"""Check whether docs can measure a component: they are annotated with its labels, and it wasn't
trained on them.

A component keeps the hashes of the sentences that it was trained on, and of the raw text that its
static vectors were learned from. A sentence of a doc is known if its hash is one of these. Only
long sentences count, as short ones are often equal by chance: see `training.known_text`.
"""

from collections import Counter
from collections.abc import Container, Iterable
from typing import NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from .. import ent_iob
from ..pipeline.component import CostSensitiveNER
from ..training.known_text import LONG, sentence_ids

MAX_KNOWN_SHARE = 0.02
"""If a component knows a larger share of the sentences of docs, a note says so. In GENIA and in
CoNLL-2000 the share is 0.1 % by chance."""

MAX_KNOWN_SHARE_OF_NEW = 0.25
"""If a component knows a larger share of the sentences of docs, they are not new to it. In the
development docs of Spanish CoNLL-2002 the share is 0.14, as some of their articles are also
training docs."""

MAX_NAMED_LABELS = 10
"""A note names at most so many labels."""


class KnownSentences(NamedTuple):
    """How many long sentences of docs a component knows."""

    n_known: int
    n_sentences: int  # the number of all long sentences of the docs
    has_raw_text: bool = False  # whether the component also knows sentences of raw text

    def as_text(self) -> str:
        """Say in words how many sentences are known. There has to be at least one."""
        share = 100 * self.n_known / self.n_sentences
        text = (
            f"{self.n_known:,} of {self.n_sentences:,} sentences of {LONG} tokens and more "
            f"({share:.0f} %) are in the training corpus"
        )
        if self.has_raw_text:
            text += " or in the raw text that the vectors were learned from"
        return text


def find_faults(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    *,
    inner_nodes: Iterable[str] = (),
    must_share: bool = True,
) -> list[str]:
    """Find out why scores of a component on docs may be misleading: the docs have labels that the
    component doesn't know, or too many sentences that it knows (see `MAX_KNOWN_SHARE`).

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component.
    examples (Iterable[Example]): The docs.
    source (str): The name of the docs, for the sentences.
    inner_nodes (Iterable[str]): Labels that the component predicts by a label tree.
    must_share (bool): Whether it is an error if the component knows none of the labels.
    RETURNS (list[str]): A sentence for each fault; empty if there is none.
    RAISES (ValueError): If `must_share` is true, the docs have entities, and the component knows
        none of their labels.
    """
    examples = list(examples)
    faults = find_unknown_labels(
        nlp, ner, examples, source, inner_nodes=inner_nodes, must_share=must_share
    )
    known_sentences = count_known_sentences(ner, [eg.reference for eg in examples])
    if known_sentences.n_known > MAX_KNOWN_SHARE * known_sentences.n_sentences:
        faults.append(f"{source}: {known_sentences.as_text()}: scores on them are too high")
    return faults


def check_new_to(
    ner: CostSensitiveNER, docs: Iterable[Doc], source: str, *, with_raw_text: bool = True
) -> None:
    """Check that a component wasn't trained on docs.

    ner (CostSensitiveNER): The component.
    docs (Iterable[Doc]): The docs.
    source (str): The name of the docs, for the error.
    with_raw_text (bool): Whether the docs must not be in the raw text that the vectors were
        learned from, either.
    RAISES (ValueError): If it knows more than `MAX_KNOWN_SHARE_OF_NEW` of their sentences.
    """
    known_sentences = count_known_sentences(ner, docs, with_raw_text=with_raw_text)
    if known_sentences.n_known > MAX_KNOWN_SHARE_OF_NEW * known_sentences.n_sentences:
        raise ValueError(
            f"expected docs that the pipeline was not trained on, got {source}, where "
            f"{known_sentences.as_text()}"
        )


def count_known_sentences(
    ner: CostSensitiveNER, docs: Iterable[Doc], *, with_raw_text: bool = True
) -> KnownSentences:
    """Count the long sentences of docs, and those of them that a component knows.

    ner (CostSensitiveNER): The component.
    docs (Iterable[Doc]): The docs.
    with_raw_text (bool): Whether the component also knows the sentences of the raw text that its
        vectors were learned from, or only those of its training corpus.
    RETURNS (KnownSentences): The two numbers, and whether vectors were learned from raw text.
    """
    known_ids = set(ner.trained_on.tolist())
    if with_raw_text:
        known_ids = known_sentence_ids(ner)
    n_known = 0
    n_sentences = 0
    for doc in docs:
        n_known_of_doc, n_sentences_of_doc = count_known_in_doc(known_ids, doc)
        n_known += n_known_of_doc
        n_sentences += n_sentences_of_doc
    has_raw_text = with_raw_text and len(ner.raw_text) > 0
    return KnownSentences(n_known, n_sentences, has_raw_text)


def known_sentence_ids(ner: CostSensitiveNER) -> set[int]:
    """The hashes of the long sentences that a component knows: those of its training corpus and
    those of the raw text that its vectors were learned from."""
    return {*ner.trained_on.tolist(), *ner.raw_text.tolist()}


def count_known_in_doc(known_ids: Container[int], doc: Doc) -> tuple[int, int]:
    """Count the long sentences of a doc that are known, and all of its long sentences.

    known_ids (Container[int]): The hashes of the known sentences: see `known_sentence_ids`.
    RETURNS (tuple[int, int]): The two numbers.
    """
    ids = sentence_ids(doc)
    n_known = sum(sentence_id in known_ids for sentence_id in ids)
    return n_known, len(ids)


def is_known_doc(known_ids: Container[int], doc: Doc) -> bool:
    """Whether at least half of the long sentences of a doc are known. A doc without long sentences
    is not known.

    known_ids (Container[int]): The hashes of the known sentences: see `known_sentence_ids`.
    """
    n_known, n_sentences = count_known_in_doc(known_ids, doc)
    return n_known > 0 and n_known >= n_sentences / 2


def is_fully_annotated(doc: Doc) -> bool:
    """Whether no token of a doc lacks annotation. O is annotation, too."""
    return bool((doc.to_array("ENT_IOB") != ent_iob.MISSING).all())


def find_unknown_labels(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    *,
    inner_nodes: Iterable[str] = (),
    must_share: bool = True,
) -> list[str]:
    """Name the labels in the annotation of docs that a component doesn't know. It counts as knowing
    those of all components that write to the same `spans_key`. See `find_faults` for the arguments
    and the error.

    RETURNS (list[str]): One sentence with the most frequent of these labels. Empty if the component
        knows all labels.
    """
    key = ner.annotation.spans_key
    known_labels = {*ner.labels, *inner_nodes}
    if key is not None:
        # Several components may write to the same key, each of them spans of its own labels.
        for _, pipe in nlp.pipeline:
            if isinstance(pipe, CostSensitiveNER) and pipe.annotation.spans_key == key:
                known_labels.update(pipe.labels)
    counts: Counter[str] = Counter()  # the number of annotated entities by label
    for eg in examples:
        doc = eg.reference
        spans = doc.ents if key is None else doc.spans.get(key, ())
        counts.update(span.label_ for span in spans)
    unknown: list[str] = []  # the most frequent first
    for label, _ in counts.most_common():
        if label not in known_labels:
            unknown.append(label)
    if not unknown:
        return []
    knows_no_label = len(unknown) == len(counts)
    if knows_no_label and must_share:
        raise ValueError(
            f"{source}: expected docs with labels of {ner.name}, one of {sorted(known_labels)}, "
            f"got {sorted(unknown)}"
        )
    named = ", ".join(f"{label} ({counts[label]:,})" for label in unknown[:MAX_NAMED_LABELS])
    if len(unknown) > MAX_NAMED_LABELS:
        named += f" and {len(unknown) - MAX_NAMED_LABELS} others"
    return [f"{source}: {ner.name} doesn't know the labels {named}: these entities count as missed"]
