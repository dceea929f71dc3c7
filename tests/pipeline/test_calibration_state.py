"""What calibration docs say of a component: when it lapses, and how it is saved."""

import json
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc

from spacy_costner.pipeline.calibration_state import (
    N_COMPARED,
    PROMISE_SETTINGS,
    SHIFT_SETTINGS,
    CalibrationState,
    ConfigSettings,
    current_settings,
)
from spacy_costner.pipeline.promises import CalibrationScores, Promise, Thresholds
from spacy_costner.pipeline.reading import Reading

FROM_TEXT = Reading(file_tokens=False, tokenizer_tokens=True, sentence_starts=False)
DEFAULT_CONFIG = ConfigSettings()
FROM_FILE = Reading(file_tokens=True, tokenizer_tokens=False, sentence_starts=True)


def component_cfg(**edits: Any) -> dict[str, Any]:
    """The keys of the `cfg` of a component that a guarantee depends on, with edits."""
    cfg = {
        "labels": ["LOC", "PER"],
        "scheme": "BILUO",
        "outside": "single",
        "temperature": {"overall": 1.5, "labels": {}},
        "decoding": {"bias": 0.0, "labels": {}},
        "confidence": {"spans_key": "confidence"},
    }
    return {**cfg, **edits}


def calibrated_state(config: ConfigSettings = DEFAULT_CONFIG) -> CalibrationState:
    """A state with a guarantee, scores and a reading, made with the settings of `component_cfg`."""
    promise = Promise(
        miss=0.1,
        groups={"": Thresholds(0.026, {}, levels=[[0.1, 0.026]])},
        source="dev.spacy",
        docs=263,
        entities=464,
        not_counted={},
        reading=FROM_TEXT,
        holds_for=current_settings(component_cfg(), config, PROMISE_SETTINGS),
    )
    scores = CalibrationScores(
        scores=[0.1, 0.2],
        digest="00ff",
        keys={},
        source="dev.spacy",
        approximate=False,
        reading=FROM_TEXT,
        holds_for=current_settings(component_cfg(), config, SHIFT_SETTINGS),
    )
    return CalibrationState(promise, scores, FROM_TEXT)


def test_a_state_is_read_as_it_was_saved() -> None:
    state = calibrated_state()
    saved = json.loads(json.dumps(state.to_dict()))
    loaded = CalibrationState.from_dict(saved)
    assert (loaded.promise, loaded.scores, loaded.reading) == (
        state.promise,
        state.scores,
        state.reading,
    )


def test_an_empty_state_is_saved_as_nulls() -> None:
    saved = CalibrationState().to_dict()
    assert saved == {"guarantee": None, "shift": None, "reading": None}
    assert CalibrationState.from_dict(saved).promise is None


@pytest.mark.parametrize(
    ("edits", "changed", "keeps_scores"),
    [
        ({}, None, True),
        ({"decoding": {"bias": 1.0, "labels": {}}}, "decoding", True),
        ({"temperature": {"overall": 2.0, "labels": {}}}, "temperature", False),
        ({"labels": ["LOC", "PER", "ORG"]}, "labels", False),
        ({"confidence": None}, "confidence", True),
    ],
)
def test_an_edit_ends_what_depends_on_it(
    edits: dict[str, Any], changed: str | None, keeps_scores: bool
) -> None:
    """The guarantee depends on all of these settings. The scores, with which a shift of the texts
    is found, depend on the posterior, and so not on the decoding or the confidence."""
    state = calibrated_state()
    assert state.check(component_cfg(**edits), DEFAULT_CONFIG) == changed
    assert (state.scores is not None) == keeps_scores


@pytest.mark.parametrize(
    ("config", "changed", "keeps_scores"),
    [
        (ConfigSettings(sentence_boundaries=True), None, True),
        (ConfigSettings(), "sentence_boundaries", False),
        (ConfigSettings(sentence_boundaries="sentences"), "sentence_boundaries", False),
        (ConfigSettings(sentence_boundaries=True, decoding_tables="00"), "decoding", True),
    ],
)
def test_another_config_ends_what_depends_on_it(
    config: ConfigSettings, changed: str | None, keeps_scores: bool
) -> None:
    """Before the state is saved, and after."""
    state = calibrated_state(ConfigSettings(sentence_boundaries=True))
    for each in (CalibrationState.from_dict(json.loads(json.dumps(state.to_dict()))), state):
        assert each.check(component_cfg(), config) == changed
        assert (each.scores is not None) == keeps_scores


def test_earlier_versions_read_no_settings_that_they_do_not_compare() -> None:
    """They compare all settings in the guarantee, and would miss these in the component."""
    config = ConfigSettings(sentence_boundaries=True, decoding_tables="00")
    saved = calibrated_state(config).to_dict()
    assert saved["holds_for"] == {
        "guarantee": {"sentence_boundaries": True, "decoding_tables": "00"},
        "shift": {"sentence_boundaries": True},
    }
    assert {*saved["guarantee"]["holds_for"]} == {*component_cfg()} - {"confidence"}
    assert {*saved["shift"]["holds_for"]} == {*component_cfg()} - {"confidence", "decoding"}


def test_a_state_of_an_earlier_version_is_valid_for_the_assumed_config() -> None:
    config = ConfigSettings(sentence_boundaries=True, decoding_tables="00")
    saved = calibrated_state(config).to_dict()
    del saved["holds_for"]

    state = CalibrationState.from_dict(saved, assumed=config)
    assert state.check(component_cfg(), config) is None and state.scores is not None
    state = CalibrationState.from_dict(saved, assumed=config)
    assert state.check(component_cfg(), DEFAULT_CONFIG) == "sentence_boundaries"


def test_other_own_labels_end_a_promise() -> None:
    state = calibrated_state(ConfigSettings(own_labels=("LOC",)))
    assert state.check(component_cfg(), ConfigSettings(own_labels=("PER",))) == "own_labels"


def test_own_labels_that_change_after_a_check_end_a_promise_and_the_scores() -> None:
    state = calibrated_state(ConfigSettings(own_labels=("LOC",)))
    assert state.check(component_cfg(), ConfigSettings(own_labels=("LOC",))) is None

    assert state.check(component_cfg(), ConfigSettings(own_labels=("PER",))) == "own_labels"

    assert state.scores is None


def test_an_edit_is_reported_once() -> None:
    """The component drops the guarantee then, and is asked before each prediction."""
    state = calibrated_state()
    edited = component_cfg(scheme="IOB2")
    assert state.check(edited, DEFAULT_CONFIG) == "scheme"
    assert state.check(edited, DEFAULT_CONFIG) is None


def compare_with_starts(state: CalibrationState, *, is_start: bool | None) -> str | None:
    """Compare a doc of two words. The second one begins a sentence, doesn't, or it isn't known."""
    nlp = spacy.blank("xx")
    doc = Doc(nlp.vocab, words=["a", "b"], sent_starts=[True, is_start])
    return state.compare_reading([doc], nlp.tokenizer, uses_starts=True)


@pytest.mark.slow
def test_docs_of_the_first_calls_are_compared() -> None:
    """The docs of later calls aren't read any more, though they have sentence starts."""
    state = CalibrationState(reading=FROM_TEXT)
    for _ in range(N_COMPARED):
        assert compare_with_starts(state, is_start=False) is None
    assert compare_with_starts(state, is_start=True) is None


def test_no_docs_are_compared_after_a_difference_until_there_is_another_reading() -> None:
    state = CalibrationState(reading=FROM_TEXT)
    assert "docs have sentence starts" in (compare_with_starts(state, is_start=True) or "")
    assert compare_with_starts(state, is_start=True) is None
    assert state.set_reading(FROM_FILE) is not None  # they were read in another way
    assert "docs have no sentence starts" in (compare_with_starts(state, is_start=None) or "")
    assert state.set_reading(FROM_FILE) is None
