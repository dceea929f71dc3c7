"""Guarantee a miss rate, or a share of false alarms, of sets of spans. No retraining.

The set of a doc has the spans whose score is at least a threshold. The thresholds are chosen on
calibration docs by conformal methods (`metrics/conformal.py`), so that a guarantee holds on other
docs from the same source. A guarantee has a limit: for example, the set misses at most 5 % of the
entities. It is made for all docs together, or for each part of them: for each label, for each group
of docs, or both.

Each step has its own file: `calibration_docs` chooses the docs that count, `scored_spans` scores
their spans, and `set_thresholds` chooses the thresholds. `observed_rates` compares a guarantee with
other docs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from thinc.types import Floats1d

from ...pipeline.component import CostSensitiveNER
from ...pipeline.promises import Promise, Terms, Thresholds
from ...pipeline.reading import find_reading
from ..components import get_component
from ..evaluation.predictions import turn_on_confidence
from ..evaluation.recurrence import KnownText, check_new, note_recurrence
from ..evaluation.valid_data import find_unknown_labels
from ..sampling.drawing import Drawing, conformal_weights
from .calibration_docs import (
    check_drawn,
    check_have_entities,
    check_not_drawn,
    draw_uniformly,
    leave_out_unusable,
    note_earlier_uses,
)
from .observed_rates import KeptPromise, measure_promise
from .scored_spans import score_spans
from .set_thresholds import PartThreshold, find_parts


class Guarantee(NamedTuple):
    """The result of `guarantee`.

    promise (Promise): The guarantee, with its terms, thresholds and calibration docs.
    parts (list[PartThreshold]): The threshold of each part, and other limits that can be guaranteed
        of it, by group and label.
    notes (list[str]): Reasons why the guarantee may not hold.
    kept (KeptPromise | None): With drawn docs: the miss rate of the previous guarantee on them.
    replaced (Promise | None): The guarantee that the pipeline had before.
    """

    promise: Promise
    parts: list[PartThreshold]
    notes: list[str]
    kept: KeptPromise | None = None
    replaced: Promise | None = None


def guarantee(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    miss: float | None = None,
    false_alarm: float | None = None,
    confidence: float | None = None,
    found: str = "exact",
    by: str = "doc",
    per_label: bool = False,
    by_group: str | None = None,
    drawn: bool = False,
    file_tokens: bool = False,
    source: str = "calibration docs",
) -> Guarantee:
    """Choose the thresholds of a component's set of spans on calibration docs, so that a guarantee
    holds for docs from the same source. The set is in `doc.spans[spans_key + "_guaranteed"]`.

    nlp (Language): The trained pipeline. Its config, its component and its meta are updated.
    examples (Iterable[Example]): Annotated calibration docs: neither training docs, nor docs used
        to calibrate or tune.
    name (str): Name of the component.
    miss (float | None): Highest share of entities that are missed.
    false_alarm (float | None): Instead of `miss`: highest share of the set that is wrong.
    confidence (float | None): Probability that the guarantee holds, such as 0.95. Without it, the
        guarantee holds on average over calibration docs; with `false_alarm` it is 0.95.
    found (str): When an entity is found: exact (a span has its tokens and label) or covered (spans
        cover its tokens; their label counts only with `per_label`). For false alarms, a span of the
        set is right by the same rule.
    by (str): Which share of misses is limited: doc (the share of missed entities in a doc) or any
        (the share of docs with a missed entity). Docs without entities don't count.
    per_label (bool): Give a guarantee, with its own threshold, for each label.
    by_group (str | None): Give a guarantee for each group of docs: a key of `doc.user_data`, whose
        values are the groups. Docs of other groups get no set. With `confidence`, all guarantees
        hold together.
    drawn (bool): The docs are all docs that `draw` drew from new texts. The guarantee is for these
        texts, on average over drawings, and replaces a guarantee that does not hold there.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of their
        file. This is saved with the pipeline, so that `watch` reads docs in the same way.
    source (str): The name of the docs in the guarantee.
    RETURNS (Guarantee): The guarantee, its thresholds, and the other limits that can be guaranteed.
    RAISES (ValueError): If the component is missing, a term is out of its range, the docs are
        training docs or don't match `drawn`, no docs with entities are left, none of their labels
        is known, or the limit can't be guaranteed for any part.
    """
    # Only misses, whose share rises with the threshold, can be limited without a confidence.
    if miss is None and confidence is None:
        confidence = 0.95
    terms = Terms(
        miss=miss,
        false_alarm=false_alarm,
        confidence=confidence,
        found=found,
        by=by,
        per_label=per_label,
        by_group=by_group,
    )
    # A guarantee with a confidence doesn't hold for docs that were drawn with unequal
    # probabilities.
    if drawn and terms.confidence is not None:
        raise ValueError(
            "drawn: expected a miss rate without a confidence, got a confidence of "
            f"{terms.confidence:g}"
        )
    ner = get_component(nlp, name)
    examples = list(examples)
    references = [eg.reference for eg in examples]
    known = KnownText.from_component(nlp, ner)
    notes = note_recurrence(known, references, source)
    notes += note_earlier_uses(nlp, source)
    notes += find_unknown_labels(nlp, ner, examples, source)
    if drawn:
        n_drawings = check_drawn(nlp, ner, references)
    else:
        n_drawings = None
        check_not_drawn(references)
        check_new(known, references, source)

    used_examples, not_counted = leave_out_unusable(ner, known, examples, by_group, keep_all=drawn)
    check_have_entities(used_examples, not_counted)
    doc_weights = None
    kept_promise = None
    if drawn:
        drawings = [Drawing.from_dict(eg.reference.user_data) for eg in used_examples]
        # Docs that were likely to be drawn have lower weights, as they stand for fewer texts.
        doc_weights = conformal_weights(drawings)
        # The guarantee that the pipeline has now, before it is replaced
        kept_promise = measure_promise(nlp, ner, used_examples, drawings)
    scored_spans = score_spans(nlp, ner, used_examples, terms)
    parts = find_parts(ner, scored_spans, used_examples, terms, doc_weights)
    thresholds_of_groups = find_thresholds(parts, per_label=per_label)
    if not thresholds_of_groups:
        message = unreachable_message(parts, terms)
        if kept_promise is not None:
            message = f"{message}. {kept_promise.as_text()}"
        raise ValueError(message)
    promise = Promise(
        **asdict(terms),
        groups=thresholds_of_groups,
        source=source,
        docs=len(used_examples),
        entities=len(scored_spans.gold),
        not_counted=not_counted,
        drawings=n_drawings,
    )

    turn_on_confidence(nlp, ner)
    ner.set_reading(find_reading(nlp, name, used_examples, file_tokens=file_tokens))
    ner.meta = nlp.meta  # The component also writes its guarantee to this dictionary.
    earlier_promise = ner.guarantee
    ner.set_guarantee(promise)
    keep_calibration_scores(ner, used_examples, scored_spans.entropies, source, doc_weights)
    return Guarantee(promise, parts, notes, kept_promise, earlier_promise)


def keep_calibration_scores(
    ner: CostSensitiveNER,
    examples: Sequence[Example],
    entropies: Floats1d,
    source: str,
    doc_weights: Floats1d | None,
) -> None:
    """Keep the scores of calibration docs in a component, to detect a shift of new docs.

    ner (CostSensitiveNER): The component.
    examples (Sequence[Example]): The D calibration docs.
    entropies (Floats1d): Their scores. Shape: (D,)
    source (str): The name of the docs.
    doc_weights (Floats1d | None): The weights of docs that `draw` drew: see `conformal_weights`.
        Shape: (D,)
    """
    kept = numpy.arange(len(examples))  # the indices of the docs whose scores are kept
    if doc_weights is not None:
        kept = draw_uniformly(doc_weights)
    docs = [examples[i].reference for i in kept.tolist()]
    # Not approximate: unlike in `calibrate`, the temperature wasn't fitted on these docs.
    ner.set_shift(docs, entropies[kept], source, approximate=False)


def find_thresholds(parts: Iterable[PartThreshold], *, per_label: bool) -> dict[str, Thresholds]:
    """Collect the thresholds of each group of docs, keyed by its name. A group is left out if the
    limit can't be guaranteed for it or, if each label has its own threshold, for any of its
    labels."""
    thresholds_of_groups: dict[str, Thresholds] = {}
    for part in parts:
        if part.threshold is None:
            continue
        if per_label:
            # `Thresholds.threshold` is for labels for which the limit can't be guaranteed. It is 1,
            # so that as few of their spans as possible are in the set.
            if part.group not in thresholds_of_groups:
                thresholds_of_groups[part.group] = Thresholds(threshold=1.0, labels={})
            thresholds_of_groups[part.group].labels[part.label] = part.threshold
        else:
            thresholds_of_groups[part.group] = Thresholds(
                threshold=part.threshold, labels={}, levels=part.levels
            )
    return thresholds_of_groups


def unreachable_message(parts: Sequence[PartThreshold], terms: Terms) -> str:
    """The error message if the limit can't be guaranteed for any part: for each part the limit that
    can be guaranteed, and the number of docs that the limit of the terms takes."""
    name = "miss" if terms.limits_misses else "false_alarm"
    limit = f"{terms.limit:g}"
    sentences = [f"{name}: expected a limit that can be guaranteed, got {limit}"]
    for part in parts:
        sentence = ""
        if part.group:
            sentence += f"{part.group}: "
        if part.label:
            sentence += f"{part.label}: "
        if part.reachable is None:
            sentence += "nothing"
        else:
            sentence += f"{part.reachable:.4f} or more"
        sentence += f" with these {part.docs:,} docs; "
        if part.docs_needed:
            sentence += f"{limit} takes about {part.docs_needed:,} docs, if they are like these"
        else:
            sentence += f"with this model, {limit} can't be reached with any number of docs"
        sentences.append(sentence)
    return ". ".join(sentences)
