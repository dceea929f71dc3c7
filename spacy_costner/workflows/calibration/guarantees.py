"""Guarantee a miss rate, or a share of false alarms, of sets of spans. No retraining.

The set of a doc has the spans whose score is at least a threshold. The thresholds are chosen on
calibration docs by conformal methods (`metrics/conformal.py`), so that a promise holds on other
docs from the same source. A promise has a limit: for example, that the set misses at most 5 % of
the entities. It may be made for all docs together, or for each part of them: for each label, for
each group of docs, or both.

`DevPredictions`, called `dev`, are docs with their annotated entities, and with the posterior of
the model for them, from which the probabilities of spans come. In structured arrays of this file, a
row is a span or an entity, and "doc" is the index of its doc among the calibration docs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example

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
    find_notes,
    leave_out,
)
from .observed_rates import KeptPromise, measure_promise
from .scored_spans import score_spans
from .set_thresholds import Part, find_parts


class Guarantee(NamedTuple):
    """A promise, and what else can be promised."""

    promise: Promise  # its terms, thresholds and calibration docs
    parts: list[Part]  # by group and label
    notes: list[str]  # what may weaken the promise
    kept: "KeptPromise | None" = None  # with drawn docs: how the earlier promise is kept there
    replaced: Promise | None = None  # the promise that the pipeline had before


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
    """Choose the thresholds of a component's set of spans on calibration docs, so that it keeps a
    promise on docs from the same source. The set is in `doc.spans[spans_key + "_guaranteed"]`.

    nlp (Language): The trained pipeline. Its config, its component and its meta are updated.
    examples (Iterable[Example]): The docs. Not training docs, nor docs used to calibrate or tune.
    name (str): Name of the component.
    miss (float | None): Highest share of entities that are missed.
    false_alarm (float | None): In place of --miss: highest share of the set that is wrong.
    confidence (float | None): Probability that the promise holds, such as 0.95. Without it, the
        promise holds on average over calibration docs; with --false-alarm it is 0.95.
    found (str): When an entity is found: exact (a span has its tokens and label) or covered (spans
        cover its tokens; their label counts only with --per-label). For false alarms, a span of the
        set is right by the same rule.
    by (str): Which share of misses is limited: doc (of the entities of a doc) or any (of docs:
        those with any missed entity). Docs without entities don't count.
    per_label (bool): A promise and a threshold for each label.
    by_group (str | None): A key of `doc.user_data`. Docs without one of its values have no set.
        With --confidence, labels and groups share what may fail.
    drawn (bool): The docs are all those that `estimate --draw` drew from new texts: the promise is
        for these texts, on average over drawings, and replaces one that is broken there.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of their
        file. That is kept with the pipeline: `watch` reads in the same way.
    source (str): The name of the docs in the promise.
    RETURNS (Guarantee): The promise, and what else can be promised.
    RAISES (ValueError): If there is no such component, a term is out of its range, the docs were
        trained on or aren't drawn as `drawn` says, no docs with entities are left, none of their
        labels is known, or the limit can't be promised of any part.
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
    # A promise with a confidence doesn't hold for docs that were drawn with unequal probabilities.
    if drawn and terms.confidence is not None:
        raise ValueError("drawn: expected a miss rate without a confidence, got one")
    ner = get_component(nlp, name)
    examples = list(examples)
    references = [eg.reference for eg in examples]
    known = KnownText.of_component(nlp, ner)
    notes = note_recurrence(known, references, source)
    notes += find_notes(nlp, source)
    notes += find_unknown_labels(nlp, ner, examples, source)
    if drawn:
        n_drawings = check_drawn(nlp, ner, references)
    else:
        n_drawings = None
        check_not_drawn(references)
        check_new(known, references, source)

    used_examples, not_counted = leave_out(ner, known, examples, by_group, keep_all=drawn)
    check_have_entities(used_examples, not_counted)
    doc_weights = None
    kept_promise = None
    if drawn:
        drawings = [Drawing.from_dict(eg.reference.user_data) for eg in used_examples]
        # Docs that were likely to be drawn have lower weights, as they stand for fewer texts.
        doc_weights = conformal_weights(drawings)
        # The promise that the pipeline has now, before it gets another
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
    ner.meta = nlp.meta  # The component writes its promise to this dictionary, too.
    earlier_promise = ner.guarantee
    ner.set_guarantee(promise)
    # The docs that new docs are compared with to notice a shift, as indices of `used_examples`
    shift_indices = numpy.arange(len(used_examples))
    if doc_weights is not None:
        shift_indices = draw_uniformly(doc_weights)
    shift_docs = [used_examples[i].reference for i in shift_indices]
    # The scores of `calibrate` are approximate, as the temperature was fitted on the same docs.
    # Here the docs are others.
    ner.set_shift(shift_docs, scored_spans.entropies[shift_indices], source, approximate=False)
    return Guarantee(promise, parts, notes, kept_promise, earlier_promise)


def find_thresholds(parts: Iterable[Part], *, per_label: bool) -> dict[str, Thresholds]:
    """Collect the thresholds of each group of docs.

    parts (Iterable[Part]): What can be promised of each part: a group, or a label in a group.
    per_label (bool): Whether each label has a threshold of its own.
    RETURNS (dict[str, Thresholds]): The thresholds by the name of the group. A group is left out if
        the limit can't be promised of it, or of none of its labels.
    """
    thresholds_of_groups: dict[str, Thresholds] = {}
    for part in parts:
        if part.threshold is None:
            continue
        if per_label:
            # `Thresholds.threshold` is for labels of which the limit can't be promised, and which
            # have no threshold of their own. It is 1, so that as few of their spans as possible are
            # in the set.
            if part.group not in thresholds_of_groups:
                thresholds_of_groups[part.group] = Thresholds(threshold=1.0, labels={})
            thresholds_of_groups[part.group].labels[part.label] = part.threshold
        else:
            thresholds_of_groups[part.group] = Thresholds(
                threshold=part.threshold, labels={}, levels=part.levels
            )
    return thresholds_of_groups


def unreachable_message(parts: Sequence[Part], terms: Terms) -> str:
    """The message of the error that the wanted limit can't be promised of any part. It says for
    each part which limit can be promised, and how many docs the wanted limit takes."""
    name = "miss" if terms.limits_misses else "false_alarm"
    limit = f"{terms.limit:g}"
    sentences = [f"{name}: expected a limit that can be promised, got {limit}"]
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
            sentence += f"no number of docs is enough for {limit} with this model"
        sentences.append(sentence)
    return ". ".join(sentences)
