"""Measure docs during annotation to test for a distribution shift.

Components can measure each doc to test whether the docs still resemble the calibration docs (see
`metrics.shift`). The measures of a part are stored in its manifest entry, so that the test can
include parts from earlier runs.
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
    """Test whether the docs of all parts resemble the calibration docs. The test is run for each
    component that measured the docs.

    load (Callable[[], Language]): Loads the pipeline.
    entries (Sequence[ManifestEntry]): The manifest entries of all parts.
    RETURNS (dict[str, Shift]): The test results by component name.
    """
    components: dict[str, None] = {}  # a dict as an ordered set
    for entry in entries:
        components.update(dict.fromkeys(entry.shift))
    shift: dict[str, Shift] = {}
    for name in components:
        ner = dict(load().pipeline).get(name)
        if not isinstance(ner, CostSensitiveNER) or ner.calibration_scores is None:
            continue  # the manifest was edited: this component can't have measured docs
        total = PartMeasures(scores=[], counts={})
        for entry in entries:
            if name in entry.shift:
                add_part(total, entry.shift[name])
        calibration = ner.calibration_scores.pool()  # scores of all calibration docs
        # In the original order, changes from the first to the last doc could also raise an alarm.
        scores = in_random_order(total.scores)
        shift[name] = find_shift(calibration, scores, total.counts)
    return shift


def add_part(total: PartMeasures, measures: PartMeasures) -> None:
    """Add the measures of a part to the total in place. The scores are concatenated, and the
    `N_COUNTS` counts of each label are summed."""
    total.scores.extend(measures.scores)
    for label, counts in measures.counts.items():
        sums = total.counts.setdefault(label, [0.0] * N_COUNTS)
        for i, count in enumerate(counts):
            sums[i] += count


def components_that_measure(nlp: Language) -> dict[str, CostSensitiveNER]:
    """Return the components of a pipeline that measure docs for the shift test, keyed by name.
    These components predict probabilities and store the scores of calibration docs for
    comparison."""
    components: dict[str, CostSensitiveNER] = {}
    for name, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER) and pipe.confidence and pipe.calibration_scores:
            components[name] = pipe
    return components


def measure_doc(ner: CostSensitiveNER, doc: Doc, measures: PartMeasures) -> None:
    """Add a component's measures of a doc to the measures of a part: the doc's score for the shift
    test, unless all tokens are preset, and the expected numbers of entities. The doc is skipped if
    another component has removed the spans.

    ner (CostSensitiveNER): One of the `components_that_measure`.
    doc (Doc): The doc, annotated by the component.
    measures (PartMeasures): The measures of the part. They are updated in place.
    """
    assert ner.confidence is not None
    spans_key = ner.confidence.spans_key
    try:
        score = add_measures(doc, spans_key, ner.name, ner.own_labels, measures.counts)
    except ValueError:  # the component's spans are no longer on the doc
        return
    if score is not None:
        measures.scores.append(score)
