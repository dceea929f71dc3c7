"""Texts with entities that a small model learns, and sessions of annotation on them."""

from pathlib import Path

from spacy_costner.serve.proposals import Proposal, ProposedSpan
from spacy_costner.serve.session import AnnotationSession
from spacy_costner.serve.store import AnnotationStore

NAMES = ["Ana", "Bo", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana"]
TOWNS = ["Oslo", "Rome", "Bern", "Lima", "Cairo", "Quito", "Riga", "Baku"]
LABELS = ["PER", "LOC"]
LANG = "xx"
"""Sessions make many pipelines. A tokenizer for many languages is made in less time than an English
one, which has a thousand special cases."""


def make_texts(n: int) -> list[str]:
    """Different texts, each with a person and a town at its second and its fourth word."""
    texts: list[str] = []
    for i in range(n):
        name = NAMES[i % 8]
        town = TOWNS[i // 8 % 8]
        texts.append(f"Yesterday {name} left {town} with bag {i} .")
    return texts


def gold_spans(proposal: Proposal) -> list[ProposedSpan]:
    """The entities of a text of `make_texts`."""
    words = [word for word, _ in proposal.tokens]
    spans: list[ProposedSpan] = []
    for i, word in enumerate(words):
        if word in NAMES:
            spans.append(ProposedSpan(i, i + 1, "PER"))
        if word in TOWNS:
            spans.append(ProposedSpan(i, i + 1, "LOC"))
    return spans


def make_session(folder: Path, n_texts: int = 80) -> AnnotationSession:
    """A session with texts of `make_texts`, or the one that is in the folder."""
    store = AnnotationStore(folder)
    store.add_texts(make_texts(n_texts))
    return AnnotationSession(store, labels=LABELS, lang=LANG)


def answer_next(session: AnnotationSession, n: int) -> list[Proposal]:
    """Answer the next texts as they should be. Returns what was shown."""
    shown: list[Proposal] = []
    for _ in range(n):
        proposal = session.next_text()
        assert proposal is not None
        session.answer(
            proposal.key, gold_spans(proposal), is_left_out=False, seen_version=proposal.version
        )
        shown.append(proposal)
    return shown
