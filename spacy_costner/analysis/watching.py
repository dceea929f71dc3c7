"""Watch whether texts are still like the calibration docs of a pipeline, without labels."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from spacy.tokens import Doc

from ..metrics.shift import ALARM, ENOUGH, Shift, find_shift, in_random_order
from ..pipeline.annotations import add_measures
from ..pipeline.component import CostSensitiveNER, refuse_doc


def watch(
    ner: CostSensitiveNER,
    docs: Iterable[Doc],
    *,
    key: str | None = None,
    seed: int = 0,
    in_order: bool = False,
) -> tuple[dict[str, Any], Shift]:
    """Test docs without labels, and compute the scores that are expected of them.

    ner (CostSensitiveNER): The component.
    docs (Iterable[Doc]): Docs that the pipeline of the component has predicted.
    key (str | None): A key of `doc.user_data`: the docs with each of its values are tested
        against the calibration docs with this value, and the tests share what may fail.
    seed (int): Seed of the random order and of ties.
    in_order (bool): Whether to test docs in their order, which sees changes within it, too.
    RETURNS (tuple[dict[str, Any], Shift]): The number of "docs"; whether there is an "alarm", of
        any test; the "tests" of all docs, or of those with a "value": see `Shift.summary`;
        "untested", the docs by value with too few calibration docs; and the scores "expected": see
        `Shift.expected`. The test of all docs.
    RAISES (ValueError): If the component has no scores of calibration docs, or none for the key.
    """
    refuse_doc(docs)
    counts = ner.shift([]).counts  # which checks that there are scores
    calibration = ner.calibration_scores
    confidence = ner.confidence
    assert calibration is not None and confidence is not None
    if key is not None and key not in calibration.keys:
        raise ValueError(
            f"key: expected one with a value that {ENOUGH} calibration docs have, of "
            f"{[*calibration.keys]}, got {key!r}"
        )
    scores: list[float] = []
    scores_by_value: dict[str, list[float]] = {}
    n_docs = 0
    for doc in docs:
        # One score, or none if all tokens are preset.
        scores_of_doc = add_measures(doc, confidence.spans_key, ner.name, ner.own_labels, counts)
        scores += scores_of_doc
        if key is not None and scores_of_doc:
            value = str(doc.user_data.get(key))
            scores_by_value.setdefault(value, []).extend(scores_of_doc)
        n_docs += 1

    def test(pool: Mapping[str, Any], new_scores: list[float], level: float) -> Shift:
        ordered: Iterable[float] = new_scores
        if not in_order:
            ordered = in_random_order(new_scores, seed)
        return find_shift(pool, ordered, counts, seed=seed, level=level)

    test_of_all = test(calibration.pool(), scores, ALARM)
    tests = []
    untested: Counter[str] = Counter()
    if key is None:
        tests.append(summarise_test(None, len(calibration.scores), test_of_all))
    else:
        for value, scores_of_value in scores_by_value.items():
            if value not in calibration.keys[key]:
                untested[value] += len(scores_of_value)
        # The tests share what may fail, so each has a higher level.
        tested = [value for value in calibration.keys[key] if value in scores_by_value]
        for value in tested:
            pool = calibration.pool(key, value)
            test_of_value = test(pool, scores_by_value[value], ALARM * len(tested))
            tests.append(summarise_test(value, len(pool["scores"]), test_of_value))
    result = {
        "docs": n_docs,
        "failed": 0,
        "alarm": any(row["alarm"] is not None for row in tests),
        "tests": tests,
        "untested": untested,
        "expected": test_of_all.expected,
    }
    return result, test_of_all


def summarise_test(value: str | None, n_calibration: int, shift: Shift) -> dict[str, Any]:
    """A test in short, with the value of the key and the number of its calibration docs."""
    return {"value": value, "calibration": n_calibration, **shift.summary}


def has_file_tokens(ner: CostSensitiveNER) -> bool:
    """Whether the calibration docs were read with the tokens and sentence starts of their file, so
    that other docs have to be read in the same way. Pipelines that were calibrated before this was
    kept were calibrated on text."""
    scores = ner.calibration_scores
    if scores is None or scores.reading is None:
        return False
    return scores.reading.file_tokens
