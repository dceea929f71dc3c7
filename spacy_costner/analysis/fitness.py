"""Whether docs can measure a component: they have its labels, and it wasn't trained on them."""

from collections import Counter
from collections.abc import Container, Iterable
from typing import NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ..pipeline.component import CostSensitiveNER
from ..training.known_text import LONG, sentence_ids

TOLD = 0.02
"""The share of known sentences from which on it is said. By chance it is 0.1 % in GENIA and in
CoNLL-2000."""

MOST_KNOWN = 0.25
"""The highest share of sentences that the component was trained on, of docs that have to be new to
it. In the development docs of Spanish CoNLL-2002 it is 0.14: articles are there twice."""

N_SHOWN = 10
"""Labels that are named."""


class KnownSentences(NamedTuple):
    """How many long sentences of docs a component was trained on: see `training.known_text`."""

    n_known: int
    n_sentences: int  # all long ones of the docs

    def as_text(self) -> str:
        """How many sentences are known, in words."""
        share = 100 * self.n_known / self.n_sentences
        return (
            f"{self.n_known:,} of {self.n_sentences:,} sentences of {LONG} tokens and more "
            f"({share:.0f} %) are in the training corpus"
        )


def find_faults(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    *,
    inner_nodes: Iterable[str] = (),
    must_share: bool = True,
) -> list[str]:
    """What makes docs misleading as a measure of a component: labels that it doesn't know, and
    sentences that it was trained on.

    source (str): The name of the docs.
    inner_nodes (Iterable[str]): Labels that the component predicts by a label tree.
    must_share (bool): Whether it is an error if it knows none of the labels.
    RETURNS (list[str]): A sentence for each; empty if there is nothing to say.
    RAISES (ValueError): If the docs have entities, it knows none of their labels, and must.
    """
    examples = list(examples)
    faults = find_unknown_labels(
        nlp, ner, examples, source, inner_nodes=inner_nodes, must_share=must_share
    )
    known_sentences = count_known_sentences(ner, [eg.reference for eg in examples])
    if known_sentences.n_known > TOLD * known_sentences.n_sentences:
        faults.append(f"{source}: {known_sentences.as_text()}: scores on them are too high")
    return faults


def check_new_to(ner: CostSensitiveNER, docs: Iterable[Doc], source: str) -> None:
    """Check that a component wasn't trained on docs.

    ner (CostSensitiveNER): The component.
    docs (Iterable[Doc]): The docs.
    source (str): Their name.
    RAISES (ValueError): If it knows more than `MOST_KNOWN` of their sentences.
    """
    known_sentences = count_known_sentences(ner, docs)
    if known_sentences.n_known > MOST_KNOWN * known_sentences.n_sentences:
        raise ValueError(
            f"expected docs that the pipeline was not trained on, got {source}, where "
            f"{known_sentences.as_text()}"
        )


def count_known_sentences(ner: CostSensitiveNER, docs: Iterable[Doc]) -> KnownSentences:
    """Count the long sentences of docs that a component was trained on."""
    trained_on = set(ner.trained_on.tolist())
    n_known = 0
    n_sentences = 0
    for doc in docs:
        n_known_of_doc, n_sentences_of_doc = count_known_in_doc(trained_on, doc)
        n_known += n_known_of_doc
        n_sentences += n_sentences_of_doc
    return KnownSentences(n_known, n_sentences)


def count_known_in_doc(trained_on: Container[int], doc: Doc) -> KnownSentences:
    """Count the long sentences of a doc of which training has seen the hash."""
    ids = sentence_ids(doc)
    n_known = sum(sentence_id in trained_on for sentence_id in ids)
    return KnownSentences(n_known, len(ids))


def is_known_doc(trained_on: Container[int], doc: Doc) -> bool:
    """Whether at least half of the long sentences of a doc are among those with these hashes, which
    a component was trained on. A doc without long sentences isn't known."""
    n_known, n_sentences = count_known_in_doc(trained_on, doc)
    return n_known > 0 and 2 * n_known >= n_sentences


def find_unknown_labels(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    *,
    inner_nodes: Iterable[str] = (),
    must_share: bool = True,
) -> list[str]:
    """Name the labels of docs that a component doesn't know, in a sentence: a list of it, or an
    empty one. See `find_faults` for the arguments.

    RAISES (ValueError): If the docs have entities, it knows none of their labels, and must.
    """
    key = ner.annotation.spans_key
    labels_of_model = {*ner.labels, *inner_nodes}
    if key is not None:
        # Several components share a key, each with labels of its own.
        for _, pipe in nlp.pipeline:
            if isinstance(pipe, CostSensitiveNER) and pipe.annotation.spans_key == key:
                labels_of_model.update(pipe.labels)
    counts: Counter[str] = Counter()
    for eg in examples:
        doc = eg.reference
        spans = doc.ents if key is None else doc.spans.get(key, ())
        counts.update(span.label_ for span in spans)
    unknown: list[str] = []  # the most frequent first
    for label, _ in counts.most_common():
        if label not in labels_of_model:
            unknown.append(label)
    if not unknown:
        return []
    if len(unknown) == len(counts) and must_share:
        raise ValueError(
            f"{source}: expected docs with labels of {ner.name}, one of {sorted(labels_of_model)}, "
            f"got {sorted(unknown)}"
        )
    labels_and_counts = [f"{label} ({counts[label]:,})" for label in unknown[:N_SHOWN]]
    shown = ", ".join(labels_and_counts)
    if len(unknown) > N_SHOWN:
        shown += f" and {len(unknown) - N_SHOWN} others"
    return [f"{source}: {ner.name} doesn't know the labels {shown}: these entities count as missed"]
