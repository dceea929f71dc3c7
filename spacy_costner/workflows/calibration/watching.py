"""Test whether new texts still resemble the calibration docs of a pipeline. No annotation is
needed.

The test, which is implemented in `metrics/shift.py`, compares the scores of new docs with the
scores of the calibration docs. If docs have a key, such as "hospital", the docs with each value of
the key are tested separately against the calibration docs with the same value.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spacy.tokens import Doc

from ...annotation.doc_arguments import refuse_doc
from ...metrics.shift import ALARM, ENOUGH, Shift, find_shift, in_random_order
from ...pipeline.component import CostSensitiveNER
from ...pipeline.doc_entropy import add_measures


class ValueTest(NamedTuple):
    """The test of the docs with a given value of a key, or of all docs.

    value (str | None): The value of the key. None if all docs are tested.
    n_calibration (int): The number of calibration docs used for comparison.
    shift (Shift): The result. Its `expected` scores are for all docs, not just the docs with this
        value.
    """

    value: str | None
    n_calibration: int
    shift: Shift

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable summary of the test."""
        return {"value": self.value, "calibration": self.n_calibration, **self.shift.summary}


class WatchResult(NamedTuple):
    """The result of `watch`.

    n_docs (int): The number of docs.
    tests (Sequence[ValueTest]): The test of all docs or, with a key, the test for each value.
    untested (Mapping[str, int]): The number of docs for each value with too few calibration docs.
    shift (Shift): The test of all docs, with or without a key. It provides the expected scores.
    n_failed (int): The number of texts that couldn't be read or predicted, if counted by the caller
        of `watch`.
    """

    n_docs: int
    tests: Sequence[ValueTest]
    untested: Mapping[str, int]
    shift: Shift
    n_failed: int = 0

    @property
    def is_alarm(self) -> bool:
        """Whether any test raises an alarm."""
        return any(test.shift.alarm is not None for test in self.tests)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-serializable dictionary."""
        return {
            "docs": self.n_docs,
            "failed": self.n_failed,
            "alarm": self.is_alarm,
            "tests": [test.as_dict() for test in self.tests],
            "untested": self.untested,
            "expected": self.shift.expected,
        }


def watch(
    ner: CostSensitiveNER,
    docs: Iterable[Doc],
    *,
    key: str | None = None,
    seed: int = 0,
    in_order: bool = False,
) -> WatchResult:
    """Test whether docs resemble the calibration docs, and estimate the scores to expect on them.

    ner (CostSensitiveNER): The component, with scores of its calibration docs.
    docs (Iterable[Doc]): Docs predicted by the pipeline of the component.
    key (str | None): A key of `doc.user_data`. The docs with each value of the key are tested
        against the calibration docs with the same value. The probability of a false alarm in any of
        these tests is at most the probability for a single test.
    seed (int): Random seed for the order of the docs and for breaking ties.
    in_order (bool): Whether to test the docs in the given order, so that a change within them is
        also detected. Otherwise, the order is random.
    RETURNS (WatchResult): The tests, whether there is an alarm, and the expected scores.
    RAISES (ValueError): If the component has no scores of calibration docs, or none for the key; if
        it doesn't write confidences; or if one of the docs wasn't predicted by it.
    """
    refuse_doc(docs)  # a single Doc is also iterable, but yields tokens
    # Initialize the expected numbers of entities. `shift` raises an error if the component has no
    # scores of calibration docs or no confidences.
    counts = ner.shift([]).counts
    calibration = ner.calibration_scores
    confidence = ner.confidence
    assert calibration is not None and confidence is not None
    if key is not None and key not in calibration.keys:
        raise ValueError(
            f"key: expected a key with a value that {ENOUGH} calibration docs have, one of "
            f"{[*calibration.keys]}, got {key!r}"
        )

    # Collect the score of each doc and add its entities to the counts.
    scores: list[float] = []
    scores_by_value: dict[str, list[float]] = {}  # keyed by the value of `key`
    n_docs = 0
    for doc in docs:
        n_docs += 1
        score = add_measures(doc, confidence.spans_key, ner.name, ner.own_labels, counts)
        if score is None:  # all tokens are preset
            continue
        scores.append(score)
        if key is not None:
            # The values in `calibration.keys` are strings. Docs without the key get "None".
            value = str(doc.user_data.get(key))
            scores_by_value.setdefault(value, []).append(score)

    def test(pool: Mapping[str, Any], new_scores: list[float], level: float) -> Shift:
        """Test new scores against a pool of calibration scores (see `CalibrationScores.pool`). An
        alarm is raised if the martingale reaches the level: see `ALARM`."""
        ordered: Iterable[float] = new_scores
        if not in_order:
            ordered = in_random_order(new_scores, seed)
        return find_shift(pool, ordered, counts, seed=seed, level=level)

    test_of_all = test(calibration.pool(), scores, ALARM)
    if key is None:
        n_calibration = len(calibration.scores)
        tests = [ValueTest(value=None, n_calibration=n_calibration, shift=test_of_all)]
        return WatchResult(n_docs, tests, untested={}, shift=test_of_all)

    # Test the docs with each value, except values with too few calibration docs.
    untested: Counter[str] = Counter()
    for value, scores_of_value in scores_by_value.items():
        if value not in calibration.keys[key]:
            untested[value] += len(scores_of_value)
    tested = [value for value in calibration.keys[key] if value in scores_by_value]
    # The probability of any false alarm is at most the sum over the tests (Bonferroni correction),
    # so raise the level of each test.
    level = ALARM * len(tested)
    tests = []
    for value in tested:
        pool = calibration.pool(key, value)
        shift = test(pool, scores_by_value[value], level)
        tests.append(ValueTest(value, len(pool["scores"]), shift))
    return WatchResult(n_docs, tests, untested=untested, shift=test_of_all)


def has_file_tokens(ner: CostSensitiveNER) -> bool:
    """Check whether the calibration docs were read with the tokens and sentence starts of the file.
    Other docs must be read in the same way. If the pipeline doesn't record this, it was calibrated
    on plain text.

    ner (CostSensitiveNER): The component with the calibration docs.
    RETURNS (bool): Whether the tokens and sentence starts of the file were used.
    """
    scores = ner.calibration_scores
    if scores is None or scores.reading is None:
        return False
    return scores.reading.file_tokens
