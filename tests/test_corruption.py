"""Damaged models are refused or answer as before: see `corruption`."""

from collections import Counter

import pytest

pytest.importorskip("resource", reason="needs fork and limits of resources")

from .corruption import KINDS, MODELS, corrupt, is_right
from .support.slow import slow_but


@pytest.mark.parametrize("kind", slow_but(MODELS, "sparse"))
def test_nothing_is_wrong_in_silence(kind: str) -> None:
    results = corrupt(kind, 130, seed=2)
    wrong = [
        (case.name, case.config, found) for case, found in results if not is_right(case, found)
    ]
    assert not wrong
    assert {case.name.split()[0] for case, _ in results} == set(KINDS)
    found = Counter(outcome for _, outcome in results)
    assert found["refused"] > 60 and found["same"] > 10


@pytest.mark.slow
def test_without_the_digest_answers_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_costner.pipeline.serialization.check_digest", lambda *_: None)
    wrong = [found for case, found in corrupt("sparse", 130, seed=1) if not is_right(case, found)]
    assert wrong.count("different") > 1
