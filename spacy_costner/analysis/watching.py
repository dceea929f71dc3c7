"""Watch whether texts are still like the calibration docs of a pipeline, without labels."""

from collections import Counter
from collections.abc import Iterable
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

    docs (Iterable[Doc]): Docs that the pipeline of the component has predicted.
    key (str | None): A key of `doc.user_data`: the docs with each of its values are tested
        against the calibration docs with this value, and the tests share what may fail.
    in_order (bool): Whether to test docs in their order, which sees changes within it, too.
    seed (int): Seed of the random order and of ties.
    RETURNS (tuple[dict[str, Any], Shift]): The number of "docs"; whether there is an "alarm", of
        any test; the "tests" of all docs, or of those with a "value": see `Shift.summary`;
        "untested", the docs by value with too few calibration docs; and the scores "expected": see
        `Shift.expected`. The test of all docs.
    RAISES (ValueError): If the component has no scores of calibration docs, or none for the key.
    """
    refuse_doc(docs)
    counts = ner.shift([]).counts  # which checks that there are scores
    kept = ner.calibration_scores
    confidence = ner.confidence
    assert kept is not None and confidence is not None
    if key is not None and key not in kept.keys:
        raise ValueError(
            f"key: expected one with a value that {ENOUGH} calibration docs have, of "
            f"{[*kept.keys]}, got {key!r}"
        )
    scores: list[float] = []
    values: list[str | None] = []
    n_docs = 0
    for doc in docs:
        own = add_measures(doc, confidence.spans_key, ner.name, ner.own_labels, counts)
        values += [key and str(doc.user_data.get(key))] * len(own)
        scores += own
        n_docs += 1

    def test(pool: list[float], own: list[float], level: float) -> Shift:
        ordered: Any = own if in_order else in_random_order(own, seed)
        return find_shift({**kept.pool(), "scores": pool}, ordered, counts, seed=seed, level=level)

    whole = test(kept.scores, scores, ALARM)
    pools: dict[str | None, list[float]] = {None: kept.scores}
    if key is not None:
        pools = dict(kept.keys[key].items())
    tested = [value for value in pools if key is None or value in values]
    tests = []
    for value in tested:
        own = [score for score, other in zip(scores, values) if other == value]
        found = test(pools[value], own, ALARM * len(tested))
        tests.append({"value": value, "calibration": len(pools[value]), **found.summary})
    result = {
        "docs": n_docs,
        "failed": 0,
        "alarm": any(one["alarm"] is not None for one in tests),
        "tests": tests,
        "untested": Counter(value for value in values if value not in pools),
        "expected": whole.expected,
    }
    return result, whole


def has_file_tokens(ner: CostSensitiveNER) -> bool:
    """Whether the calibration docs were read with the tokens and sentence starts of their file, so
    that other docs have to be read in the same way. Pipelines that were calibrated before this was
    kept were calibrated on text."""
    scores = ner.calibration_scores
    if scores is None or scores.reading is None:
        return False
    return scores.reading.file_tokens
