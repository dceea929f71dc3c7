"""Measure docs while they are annotated, for the test for a shift.

A component may measure each doc, to test whether docs are still like its calibration docs: see
`metrics.shift`. The measures of a part are in its entry of the manifest, so that parts that are
kept can be tested, too.
"""

from collections.abc import Callable, Sequence

from spacy.language import Language
from spacy.tokens import Doc

from ...metrics.shift import Shift, find_shift, in_random_order
from ...pipeline.component import CostSensitiveNER
from ...pipeline.doc_entropy import add_measures
from .manifest import N_COUNTS, ManifestEntry, PartMeasures


def find_shift_of_parts(
    load: Callable[[], Language], entries: Sequence[ManifestEntry]
) -> dict[str, Shift]:
    """Test whether the docs of all parts are like the calibration docs, for each component that
    measured them.

    load (Callable[[], Language]): Loads the pipeline.
    entries (Sequence[ManifestEntry]): The entries of all parts.
    RETURNS (dict[str, Shift]): The results, by component.
    """
    components: dict[str, None] = {}  # The keys are an ordered set.
    for entry in entries:
        components.update(dict.fromkeys(entry.shift))
    shift: dict[str, Shift] = {}
    for name in components:
        ner = dict(load().pipeline).get(name)
        if not isinstance(ner, CostSensitiveNER) or ner.calibration_scores is None:
            continue  # The manifest was changed: this component has measured nothing.
        total = PartMeasures(scores=[], counts={})
        for entry in entries:
            if name in entry.shift:
                add_part(total, entry.shift[name])
        calibration = ner.calibration_scores.pool()  # scores of all calibration docs
        # A test in the order of the docs would find changes from the first to the last.
        scores = in_random_order(total.scores)
        shift[name] = find_shift(calibration, scores, total.counts)
    return shift


def add_part(total: PartMeasures, measures: PartMeasures) -> None:
    """Add what was measured of a part to what was measured of the previous parts. The total is
    changed. Sums of each label: the `N_COUNTS` sums of `EntityCounts`. Shape: (N_COUNTS,)"""
    total.scores.extend(measures.scores)
    for label, counts in measures.counts.items():
        sums = total.counts.setdefault(label, [0.0] * N_COUNTS)
        for i, count in enumerate(counts):
            sums[i] += count


def components_that_measure(nlp: Language) -> dict[str, CostSensitiveNER]:
    """The components of a pipeline that measure docs for the test for a shift, by name. They write
    probabilities, and have scores of calibration docs to compare the scores of other docs with."""
    components: dict[str, CostSensitiveNER] = {}
    for name, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER) and pipe.confidence and pipe.calibration_scores:
            components[name] = pipe
    return components


def measure_doc(ner: CostSensitiveNER, doc: Doc, measures: PartMeasures) -> None:
    """Add what a component has measured of a doc to the measures of its part: the score of the doc
    for the test for a shift, unless all of its tokens are preset, and expected numbers of entities.
    The doc doesn't count if another component has since removed its spans.

    ner (CostSensitiveNER): The component, which has predicted the doc: one of
        `components_that_measure`.
    measures (PartMeasures): The measures of the part. They are changed.
    """
    assert ner.confidence is not None
    spans_key = ner.confidence.spans_key
    try:
        score = add_measures(doc, spans_key, ner.name, ner.own_labels, measures.counts)
    except ValueError:  # the spans of the component are no longer in the doc
        return
    if score is not None:
        measures.scores.append(score)
