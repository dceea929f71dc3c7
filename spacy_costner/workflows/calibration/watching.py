"""Test whether new texts are still like the calibration docs of a pipeline. No annotation is
needed.

The test is in `metrics/shift.py`. It compares the scores of new docs with the scores of the
calibration docs. If docs have a key, such as "hospital", the docs with each value of the key are
tested separately, against the calibration docs with the same value.
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
    """The test of the docs with one value of a key, or of all docs.

    value (str | None): The value. None: all docs are tested.
    n_calibration (int): The number of calibration docs that the docs are compared with.
    shift (Shift): The result. Its `expected` scores are for all docs, not only for these.
    """

    value: str | None
    n_calibration: int
    shift: Shift

    def as_dict(self) -> dict[str, Any]:
        """A summary of the test, for JSON."""
        return {"value": self.value, "calibration": self.n_calibration, **self.shift.summary}


class WatchResult(NamedTuple):
    """The result of `watch`.

    n_docs (int): The number of docs.
    tests (Sequence[ValueTest]): The test of all docs or, with a key, a test for each value.
    untested (Mapping[str, int]): The number of docs by value, for values with too few calibration
        docs.
    shift (Shift): The test of all docs, with or without a key. It has the scores to expect.
    n_failed (int): The number of texts that couldn't be read or predicted, if the caller of `watch`
        counts them.
    """

    n_docs: int
    tests: Sequence[ValueTest]
    untested: Mapping[str, int]
    shift: Shift
    n_failed: int = 0

    @property
    def is_alarm(self) -> bool:
        """Whether any test alarms."""
        return any(test.shift.alarm is not None for test in self.tests)

    def as_dict(self) -> dict[str, Any]:
        """The result as a dictionary, for JSON."""
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
    """Test whether docs are like the calibration docs, and compute the scores to expect on them.

    ner (CostSensitiveNER): The component, with calibration docs.
    docs (Iterable[Doc]): Docs that the pipeline of the component has predicted.
    key (str | None): A key of `doc.user_data`. The docs with each of its values are tested against
        the calibration docs with this value. The probability that any of these tests gives a false
        alarm is at most the probability for a single test.
    seed (int): Seed of the random order and of ties.
    in_order (bool): Whether to test docs in their order, which also finds a change among them.
        Otherwise the order is random.
    RETURNS (WatchResult): The tests, whether there is an alarm, and the scores to expect.
    RAISES (ValueError): If the component has no scores of calibration docs, or none for the key, or
        writes no confidences; or if it hasn't predicted a doc.
    """
    refuse_doc(docs)  # A single doc is iterable, too, but its items are tokens.
    # The expected numbers of entities, without any docs yet. `shift` raises an error if the
    # component has no calibration docs or no confidences.
    counts = ner.shift([]).counts
    calibration = ner.calibration_scores
    confidence = ner.confidence
    assert calibration is not None and confidence is not None
    if key is not None and key not in calibration.keys:
        raise ValueError(
            f"key: expected a key with a value that {ENOUGH} calibration docs have, one of "
            f"{[*calibration.keys]}, got {key!r}"
        )

    # Collect the score of each doc, and add its entities to the counts.
    scores: list[float] = []
    scores_by_value: dict[str, list[float]] = {}  # keyed by the value that docs have for the key
    n_docs = 0
    for doc in docs:
        n_docs += 1
        score = add_measures(doc, confidence.spans_key, ner.name, ner.own_labels, counts)
        if score is None:  # all tokens of the doc are preset
            continue
        scores.append(score)
        if key is not None:
            # The values in `calibration.keys` are strings. A doc without the key has "None".
            value = str(doc.user_data.get(key))
            scores_by_value.setdefault(value, []).append(score)

    def test(pool: Mapping[str, Any], new_scores: list[float], level: float) -> Shift:
        """Test new scores against a pool of scores (see `CalibrationScores.pool`). There is an
        alarm if the martingale reaches the level: see `ALARM`."""
        ordered: Iterable[float] = new_scores
        if not in_order:
            ordered = in_random_order(new_scores, seed)
        return find_shift(pool, ordered, counts, seed=seed, level=level)

    test_of_all = test(calibration.pool(), scores, ALARM)
    if key is None:
        n_calibration = len(calibration.scores)
        tests = [ValueTest(value=None, n_calibration=n_calibration, shift=test_of_all)]
        return WatchResult(n_docs, tests, untested={}, shift=test_of_all)

    # Test the docs with each value. Too few calibration docs have the other values.
    untested: Counter[str] = Counter()
    for value, scores_of_value in scores_by_value.items():
        if value not in calibration.keys[key]:
            untested[value] += len(scores_of_value)
    tested = [value for value in calibration.keys[key] if value in scores_by_value]
    # The probability of any false alarm is at most the sum over the tests (Bonferroni). So each
    # test needs more evidence for an alarm.
    level = ALARM * len(tested)
    tests = []
    for value in tested:
        pool = calibration.pool(key, value)
        shift = test(pool, scores_by_value[value], level)
        tests.append(ValueTest(value, len(pool["scores"]), shift))
    return WatchResult(n_docs, tests, untested=untested, shift=test_of_all)


def has_file_tokens(ner: CostSensitiveNER) -> bool:
    """Whether the calibration docs were read with the tokens and sentence starts of their file.
    Other docs have to be read in the same way. A pipeline without this record was calibrated on
    text.

    ner (CostSensitiveNER): The component with the calibration docs.
    RETURNS (bool): Whether they were.
    """
    scores = ner.calibration_scores
    if scores is None or scores.reading is None:
        return False
    return scores.reading.file_tokens
