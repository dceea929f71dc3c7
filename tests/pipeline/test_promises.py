"""Tests of guarantees and of the scores of calibration docs: how they are saved and read."""

import json
from dataclasses import replace
from typing import Any

import numpy
import pytest
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_costner.metrics.shift import ENOUGH, digest_of_scores
from spacy_costner.pipeline.promises import (
    CalibrationScores,
    Promise,
    Terms,
    Thresholds,
    find_changed_setting,
)
from spacy_costner.pipeline.reading import Reading

SAVED_PROMISE: dict[str, Any] = {
    "miss": 0.1,
    "false_alarm": None,
    "confidence": None,
    "found": "exact",
    "by": "doc",
    "per_label": False,
    "by_group": None,
    "groups": {"": {"threshold": 0.026, "labels": {}, "levels": [[0.05, 0.005], [0.1, 0.026]]}},
    "source": "dev.spacy",
    "docs": 263,
    "entities": 464,
    "not_counted": {"training docs": 3},
    "reading": {"file_tokens": False, "tokenizer_tokens": True, "sentence_starts": None},
    "holds_for": {"labels": ["LOC"], "temperature": {"overall": 1.5, "labels": {}}},
}
SAVED_SCORES: dict[str, Any] = {
    "scores": [0.1, 0.2],
    "digest": "00ff",
    "keys": {"source": {"web": [0.1]}},
    "source": "dev.spacy",
    "approximate": False,
    "reading": None,
    "holds_for": {"labels": ["LOC"]},
}


def as_saved(value: dict[str, Any]) -> dict[str, Any]:
    """What is read again if a dictionary is saved as JSON."""
    return json.loads(json.dumps(value))


def without(saved: dict[str, Any], *names: str) -> dict[str, Any]:
    """A dictionary without some of its keys."""
    return {name: value for name, value in saved.items() if name not in names}


def test_a_promise_is_read_as_it_was_saved() -> None:
    promise = Promise.from_dict(SAVED_PROMISE)
    assert as_saved(promise.to_dict()) == SAVED_PROMISE
    assert promise.groups[""].threshold == 0.026 and promise.limit == 0.1
    expected = Reading(file_tokens=False, tokenizer_tokens=True, sentence_starts=None)
    assert promise.reading == expected


def test_a_promise_without_reading_and_settings_is_saved_without_them() -> None:
    """The result of `guarantee` has neither a reading nor settings. Old guarantees have no
    reading."""
    saved = without(SAVED_PROMISE, "reading", "holds_for")
    assert as_saved(Promise.from_dict(saved).to_dict()) == saved


@pytest.mark.parametrize("name", without(SAVED_PROMISE, "reading", "holds_for"))
def test_a_promise_without_a_term_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="guarantee: expected a mapping with"):
        Promise.from_dict(without(SAVED_PROMISE, name))


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"most": 1}, "guarantee: expected a mapping with"),
        ({"groups": {"": {"threshold": 0.1}}}, "guarantee.groups.: expected a mapping with"),
        ({"reading": {"file_tokens": True}}, "reading: expected a mapping with"),
        ({"miss": None}, "expected miss or false_alarm, got none"),
        ({"false_alarm": 0.1}, "expected miss or false_alarm, got miss and false_alarm"),
        ({"miss": 1}, "miss: expected a number between 0 and 1, got 1"),
        ({"miss": "much"}, "miss: expected a number between 0 and 1, got 'much'"),
        ({"confidence": 0.0}, "confidence: expected a number between 0 and 1, got 0.0"),
        ({"found": "span"}, "found: expected exact or covered, got 'span'"),
        ({"by": "entity"}, "by: expected doc or any, got 'entity'"),
    ],
)
def test_a_promise_with_wrong_terms_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Promise.from_dict({**SAVED_PROMISE, **changed})


def test_a_promise_of_false_alarms_is_by_doc() -> None:
    terms = Terms(false_alarm=0.2)
    assert not terms.limits_misses and terms.limit == 0.2
    with pytest.raises(ValueError, match="by: expected doc, got 'any'"):
        replace(terms, by="any")


def test_calibration_scores_are_read_as_they_were_saved() -> None:
    """A reading that is not known is not saved."""
    scores = CalibrationScores.from_dict(SAVED_SCORES)
    assert as_saved(scores.to_dict()) == without(SAVED_SCORES, "reading")


def test_scores_are_pooled_over_all_docs_or_over_those_with_a_value() -> None:
    scores = CalibrationScores.from_dict(SAVED_SCORES)
    assert scores.pool() == without(SAVED_SCORES, "keys", "source", "reading", "holds_for")
    assert scores.pool("source", "web")["scores"] == [0.1]


@pytest.mark.parametrize("name", ["scores", "digest"])
def test_calibration_scores_without_a_necessary_key_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="shift: expected a mapping with"):
        CalibrationScores.from_dict(without(SAVED_SCORES, name))


def test_scores_are_collected_by_values_of_user_data() -> None:
    """Docs without a score are left out, and so are values that too few docs have: "web" has just
    enough docs, "mail" has one less, and each row number has one. Scores are rounded to four digits
    and sorted, but for the digest."""
    vocab = Vocab()
    docs: list[Doc] = []
    for i in range(2 * ENOUGH):
        doc = Doc(vocab, words=["a"])
        doc.user_data["source"] = "web" if i % 2 else "mail"
        doc.user_data["row"] = i
        docs.append(doc)
    scores = numpy.random.default_rng(0).uniform(0.1, 1, size=len(docs))
    scores[0] = numpy.nan  # the first of the mails
    collected = CalibrationScores.from_docs(
        docs, scores, "dev", approximate=True, reading=None, holds_for={}
    )
    kept = scores.round(4)
    assert collected.scores == sorted(kept[1:].tolist())
    assert collected.keys == {"source": {"web": sorted(kept[1::2].tolist())}}
    assert collected.digest == digest_of_scores(scores)
    assert collected.approximate


def test_the_changed_setting_is_the_first_whose_value_differs() -> None:
    """In the order of the present settings. A setting that one of the two dictionaries doesn't have
    is None there."""
    assert find_changed_setting({"a": 1, "b": 2}, {"b": 2, "a": 1}) is None
    assert find_changed_setting({"a": 1, "b": 2}, {"a": 1, "b": 3}) == "b"
    assert find_changed_setting({"a": 1, "b": 2}, {"b": 3, "a": 4}) == "b"
    assert find_changed_setting({"a": 1, "c": None}, {"a": 1}) is None
    assert find_changed_setting({"a": 1}, {"a": 1, "b": 2}) == "b"
    assert find_changed_setting({"a": 1, "c": 0}, {"a": 1}) == "c"


def test_groups_of_a_promise_may_have_no_levels() -> None:
    groups = {"": {"threshold": 0.5, "labels": {"LOC": 0.5}}}
    promise = Promise.from_dict({**SAVED_PROMISE, "groups": groups})
    assert promise.groups == {"": Thresholds(0.5, {"LOC": 0.5})}
