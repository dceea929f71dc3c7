"""Guarantee a miss rate or a false alarm rate for sets of spans, without retraining.

The set of a doc contains the spans whose score is at least a threshold. The thresholds are chosen
on calibration docs with conformal methods (`metrics/conformal.py`), so the guarantee holds for
other docs from the same source. A guarantee states a limit: for example, the set misses at most 5 %
of the entities. The guarantee applies to all docs together or to each part separately: to each
label, each group of docs, or each label within each group.

Each step has its own module: `calibration_docs` selects the docs to use, `scored_spans` scores
their spans, and `set_thresholds` chooses the thresholds. `observed_rates` compares a guarantee with
the rates observed on other docs.
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
from ..evaluation.predictions import misaligned_note, turn_on_confidence
from ..evaluation.recurrence import KnownText, check_new, note_recurrence
from ..evaluation.valid_data import find_unknown_labels
from ..sampling.drawing import Drawing, conformal_weights
from .calibration_docs import (
    WITHOUT_ENTITIES,
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
    parts (list[PartThreshold]): The threshold of each part and the other limits that can be
        guaranteed for it, ordered by group and label.
    notes (list[str]): Reasons why the guarantee may not hold.
    kept (KeptPromise | None): The miss rate of the previous guarantee, estimated on drawn docs.
        None if the docs weren't drawn, or if the rate can't be measured: see `measure_promise`.
    replaced (Promise | None): The pipeline's previous guarantee, if any.
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
    """Choose the thresholds of a component's sets of spans on calibration docs, so that a guarantee
    holds for other docs from the same source. The set of each doc is stored in `doc.spans[spans_key
    + "_guaranteed"]`. The guarantee holds for the set together with the entities in `doc.ents` that
    earlier components have set, whose tokens the set doesn't contain.

    nlp (Language): The trained pipeline. Its config, component and meta are updated.
    examples (Iterable[Example]): Annotated calibration docs that were not used for training,
        calibration or tuning.
    name (str): Name of the component.
    miss (float | None): Maximum share of missed entities.
    false_alarm (float | None): Maximum share of wrong spans in the set, instead of `miss`.
    confidence (float | None): Probability that the guarantee holds, e.g. 0.95. If None, a `miss`
        guarantee holds on average over calibration docs, and a `false_alarm` guarantee uses 0.95.
    found (str): When an entity counts as found: "exact" (a span has the same tokens and label) or
        "covered" (spans cover all of its tokens; their label only matters with `per_label`). For
        false alarms, the same rule determines whether a span is correct.
    by (str): How misses are counted: "doc" (the share of missed entities in each doc) or "any" (the
        share of docs with a missed entity). Docs without entities don't count.
    per_label (bool): Guarantee the limit for each label, with a separate threshold.
    by_group (str | None): A key of `doc.user_data` that stores the group of a doc. The limit is
        guaranteed for each group. Docs in other groups get no set. With `confidence`, all
        guarantees hold simultaneously.
    drawn (bool): Calibrate on docs that `draw` drew from new texts; all of them are required. The
        guarantee then applies to these texts, on average over drawings. Use this to replace a
        guarantee that doesn't hold for them.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of the file.
        Saved with the pipeline, so that `watch` reads docs in the same way.
    source (str): The name of the docs, saved in the guarantee.
    RETURNS (Guarantee): The guarantee, its thresholds, and the other limits that can be guaranteed.
    RAISES (ValueError): If the component is missing, a term is out of range, the docs are training
        docs or don't match `drawn`, no docs with entities remain, none of their labels is known, or
        the limit can't be guaranteed for any part.
    """
    # Without a confidence, only the miss rate can be limited, because it rises with the threshold.
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
    # A guarantee with a confidence isn't valid for docs that were drawn with unequal probabilities.
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
    if not terms.limits_misses:
        del not_counted[WITHOUT_ENTITIES]  # spans in these docs are false alarms
    doc_weights = None
    kept_promise = None
    if drawn:
        drawings = [Drawing.from_dict(eg.reference.user_data) for eg in used_examples]
        # Docs with a high probability of being drawn get a low weight, because they represent fewer
        # texts.
        doc_weights = conformal_weights(drawings)
        # Measure the current guarantee before it is replaced.
        kept_promise = measure_promise(nlp, ner, used_examples, drawings)
    scored_spans = score_spans(nlp, ner, used_examples, terms)
    misaligned = misaligned_note(scored_spans.n_misaligned, len(scored_spans.gold))
    notes += misaligned
    if terms.limits_misses and scored_spans.n_presets > 0:
        notes.append(
            f"earlier components set {scored_spans.n_presets:,} entities in these docs, which are "
            "in doc.ents and not in the sets: only both together keep the guarantee"
        )
    parts = find_parts(ner, scored_spans, used_examples, terms, doc_weights)
    thresholds_of_groups = find_thresholds(parts, per_label=per_label)
    if not thresholds_of_groups:
        message = ". ".join([unreachable_message(parts, terms), *misaligned])
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

    notes += turn_on_confidence(nlp, ner)
    reading = find_reading(nlp, name, used_examples, scored_spans.docs, file_tokens=file_tokens)
    ner.set_reading(reading, nlp.tokenizer)
    ner.meta = nlp.meta  # `set_guarantee` also writes the guarantee to this dictionary.
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
    """Store the scores of the calibration docs in a component, to detect a shift in new docs.

    ner (CostSensitiveNER): The component.
    examples (Sequence[Example]): The D calibration docs.
    entropies (Floats1d): The score of each doc. Shape: (D,)
    source (str): The name of the docs.
    doc_weights (Floats1d | None): The weights of docs that were drawn by `draw`: see
        `conformal_weights`. Shape: (D,)
    """
    kept = numpy.arange(len(examples))  # the docs whose scores are stored
    if doc_weights is not None:
        kept = draw_uniformly(doc_weights)
    docs = [examples[i].reference for i in kept.tolist()]
    # The scores aren't approximate: unlike in `calibrate`, the temperature wasn't fitted on these
    # docs.
    ner.set_shift(docs, entropies[kept], source, approximate=False)


def find_thresholds(parts: Iterable[PartThreshold], *, per_label: bool) -> dict[str, Thresholds]:
    """Collect the thresholds of each group of docs, keyed by group name. A group is omitted if the
    limit can't be guaranteed for it or, with `per_label`, for any of its labels."""
    thresholds_of_groups: dict[str, Thresholds] = {}
    for part in parts:
        if part.threshold is None:
            continue
        if per_label:
            # `Thresholds.threshold` applies to labels whose limit can't be guaranteed. It is 1, so
            # that the set contains as few of their spans as possible.
            if part.group not in thresholds_of_groups:
                thresholds_of_groups[part.group] = Thresholds(threshold=1.0, labels={})
            thresholds_of_groups[part.group].labels[part.label] = part.threshold
        else:
            thresholds_of_groups[part.group] = Thresholds(
                threshold=part.threshold, labels={}, levels=part.levels
            )
    return thresholds_of_groups


def unreachable_message(parts: Sequence[PartThreshold], terms: Terms) -> str:
    """Create the error message for a limit that can't be guaranteed for any part. For each part,
    the message reports the lowest limit that can be guaranteed and the number of docs needed for
    the requested limit."""
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
