"""Check whether docs are valid evaluation data for a component: annotated with its labels, and held
out from training (see `recurrence`).
"""

from collections import Counter
from collections.abc import Iterable

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ...annotation import iob as ent_iob
from ...pipeline.component import CostSensitiveNER
from ..components import find_preset_labels
from .recurrence import KnownText, note_recurrence

MAX_NAMED_LABELS = 10
"""The maximum number of labels listed in a note."""


def find_faults(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    *,
    inner_nodes: Iterable[str] = (),
    must_share: bool = True,
) -> list[str]:
    """Find reasons why the scores of a component on docs may be misleading: labels that are unknown
    to the component, and recurring texts (see `note_recurrence`).

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` to score.
    examples (Iterable[Example]): The annotated docs.
    source (str): The path or name of the docs, used in the sentences.
    inner_nodes (Iterable[str]): Inner nodes of a label tree that the component may predict.
    must_share (bool): Whether to raise an error if all labels of the docs are unknown.
    RETURNS (list[str]): A sentence for each reason, recurring texts first.
    RAISES (ValueError): If `must_share` is True, the docs have entities, and all of their labels
        are unknown to the component.
    """
    examples = list(examples)
    unknown_labels = find_unknown_labels(
        nlp, ner, examples, source, predicted_labels=inner_nodes, must_share=must_share
    )
    known = KnownText.from_component(nlp, ner)
    recurring = note_recurrence(known, [eg.reference for eg in examples], source)
    return recurring + unknown_labels


def is_fully_annotated(doc: Doc) -> bool:
    """Check whether all tokens of a doc are annotated as entities or as O."""
    return bool((doc.to_array("ENT_IOB") != ent_iob.MISSING).all())


def find_unknown_labels(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    source: str,
    *,
    predicted_labels: Iterable[str] = (),
    must_share: bool = True,
) -> list[str]:
    """Find annotated labels that are unknown to a component and that no earlier component sets. If
    several components write to the same `spans_key`, the labels of all of them are known.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` to score.
    examples (Iterable[Example]): The annotated docs.
    source (str): The path or name of the docs, used in the sentence.
    predicted_labels (Iterable[str]): Other labels that are known to be predicted, such as inner
        nodes of a label tree.
    must_share (bool): Whether to raise an error if all labels of the docs are unknown.
    RETURNS (list[str]): One sentence with the most frequent unknown labels, or an empty list if
        there are none to note.
    RAISES (ValueError): If `must_share` is True, the docs have entities, and all of their labels
        are unknown to the component.
    """
    key = ner.annotation.spans_key
    known_labels = {*ner.labels}
    predicted_labels = {*predicted_labels}
    if key is None:
        predicted_labels |= find_preset_labels(nlp, ner.name)
    else:
        # Several components with different labels may write to the same key.
        for _, pipe in nlp.pipeline:
            if isinstance(pipe, CostSensitiveNER) and pipe.annotation.spans_key == key:
                known_labels.update(pipe.labels)
    counts: Counter[str] = Counter()  # annotated entities per label
    for eg in examples:
        doc = eg.reference
        spans = doc.ents if key is None else doc.spans.get(key, ())
        counts.update(span.label_ for span in spans)
    unknown: list[str] = []  # most frequent first
    for label, _ in counts.most_common():
        if label not in known_labels:
            unknown.append(label)
    if unknown and len(unknown) == len(counts) and must_share:
        raise ValueError(
            f"{source}: expected docs with labels of {ner.name}, one of {sorted(known_labels)}, "
            f"got {sorted(unknown)}"
        )
    missed = [label for label in unknown if label not in predicted_labels]
    if not missed:
        return []
    named = ", ".join(f"{label} ({counts[label]:,})" for label in missed[:MAX_NAMED_LABELS])
    if len(missed) > MAX_NAMED_LABELS:
        named += f" and {len(missed) - MAX_NAMED_LABELS} others"
    return [f"{source}: {ner.name} doesn't know the labels {named}: these entities count as missed"]
