"""Whether docs can measure a component: they have its labels, and it wasn't trained on them."""

from collections import Counter
from collections.abc import Container, Iterable
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ..pipeline.component import CostSensitiveNER
from ..training.known_text import LONG, sentence_ids

TOLD = 0.02
"""The share of known sentences from which on it is said. By chance it is 0.1 % in GENIA and in
CoNLL-2000."""

N_SHOWN = 10
"""Labels that are named."""


def find_faults(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    **labels: Any,
) -> list[str]:
    """What makes docs misleading as a measure of a component: labels that it doesn't know, and
    sentences that it was trained on.

    source (str): The name of the docs.
    **labels (Any): Arguments of `find_unknown_labels`.
    RETURNS (list[str]): A sentence for each; empty if there is nothing to say.
    RAISES (ValueError): If the docs have entities, and none with a label that it knows.
    """
    examples = list(examples)
    faults = find_unknown_labels(nlp, ner, examples, source, **labels)
    n_known, n_sentences = count_known(ner, [eg.reference for eg in examples])
    if n_known > TOLD * n_sentences:
        faults.append(f"{source}: {tell_known(n_known, n_sentences)}: scores on them are too high")
    return faults


def count_known(ner: CostSensitiveNER, docs: Iterable[Doc]) -> tuple[int, int]:
    """The number of long sentences that a component was trained on, and that of all long ones."""
    trained_on = set(ner.trained_on.tolist())
    ids: list[int] = []
    for doc in docs:
        ids += sentence_ids(doc)
    n_known = sum(sentence_id in trained_on for sentence_id in ids)
    return n_known, len(ids)


def tell_known(n_known: int, n_sentences: int) -> str:
    """How many sentences are known, in words."""
    share = 100 * n_known / n_sentences
    return (
        f"{n_known:,} of {n_sentences:,} sentences of {LONG} tokens and more ({share:.0f} %) are "
        "in the training corpus"
    )


def is_known_doc(trained_on: Container[int], doc: Doc) -> bool:
    """Whether at least half of the long sentences of a doc are known."""
    ids = sentence_ids(doc)
    n_known = sum(sentence_id in trained_on for sentence_id in ids)
    return n_known > 0 and 2 * n_known >= len(ids)


def find_unknown_labels(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    *,
    inner_nodes: Iterable[str] = (),
    must_share: bool = True,
) -> list[str]:
    """Name the labels of docs that a component doesn't know: a sentence, or none.

    inner_nodes (Iterable[str]): Labels that it predicts by a label tree.
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
    unknown = [label for label, _ in counts.most_common() if label not in labels_of_model]
    if not unknown:
        return []
    if len(unknown) == len(counts) and must_share:
        raise ValueError(
            f"{source}: expected docs with labels of {ner.name}, one of {sorted(labels_of_model)}, "
            f"got {sorted(unknown)}"
        )
    shown = ", ".join(f"{label} ({counts[label]:,})" for label in unknown[:N_SHOWN])
    if len(unknown) > N_SHOWN:
        shown += f" and {len(unknown) - N_SHOWN} others"
    return [f"{source}: {ner.name} doesn't know the labels {shown}: these entities count as missed"]
