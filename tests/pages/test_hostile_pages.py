"""Tests of pages whose labels, texts and file names are markup: none of it is run."""

from pathlib import Path

import pytest
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_costner.cli.audit import audit_page
from spacy_costner.cli.distill import noise_page
from spacy_costner.cli.report import report_page
from spacy_costner.workflows.noisy_labels.annotator_errors import AnnotatorErrors
from spacy_costner.workflows.noisy_labels.channel_distillation import LearnedNoise
from spacy_costner.workflows.noisy_labels.distillation import Distilled
from spacy_costner.workflows.noisy_labels.noise_channel import CHANNEL, Corrections, MethodScores
from spacy_costner.workflows.noisy_labels.suspects import Suspect
from spacy_costner.workflows.reports.reporting import report

from ..support.browser import Browser, needs_chromium
from ..support.markup import HOSTILE, RUN
from ..support.pipelines import pipeline
from ..support.vocabs import blank_vocab


def make_docs(labels: list[str]) -> list[Doc]:
    """A doc for each label. Its text is hostile, too."""
    vocab = blank_vocab()
    docs = []
    for i, label in enumerate(labels):
        doc = Doc(vocab, words=["So", f"word{i}", HOSTILE[i % len(HOSTILE)], "fell"])
        doc.set_ents([Span(doc, 1, 2, label=label)])
        docs.append(doc)
    return docs


def check_nothing_runs(tab: Browser, path: Path, title: str) -> None:
    """Open a page in the browser, and focus everything on it. The title of the page must stay, and
    there must be no event handlers and no elements except ours: two scripts and a style sheet."""
    tab.open(path)
    assert tab.run("document.title") == title
    tab.press("Tab", 5)
    tab.run("document.querySelectorAll('*').forEach(e => e.focus())")
    assert tab.run("document.title") == title
    in_place = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
    assert not tab.run(f"{in_place}.some(a => a.name.startsWith('on'))")
    assert tab.run("document.querySelectorAll('script').length") == 2
    assert tab.run("document.querySelectorAll('style').length") == 1
    assert not tab.run("document.querySelector('img, iframe, object, base, a[href^=javascript]')")


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize(
    ("half", "scheme"),
    [(HOSTILE[:14], "IOB2"), (HOSTILE[14:], "BILUO")],
    ids=["first", "second"],
)
def test_nothing_of_a_report_runs(
    half: list[str], scheme: str, tab: Browser, tmp_path: Path
) -> None:
    """There are few labels, so the matrix of the report has a row for each. With IOB2 there are few
    tags, so that their transitions are drawn, too."""
    nlp = pipeline(scheme=scheme)
    ner = nlp.get_pipe("ner")
    examples = [Example(doc.copy(), doc) for doc in make_docs(half)]
    for eg in examples:
        eg.predicted.set_ents([], default="missing")
    for label in half:
        ner.add_label(label)
    nlp.initialize(lambda: examples)
    result = report(nlp, examples, source=half[0], corpus=half[1])
    path = tmp_path / "<img src=x onerror=1>.html"
    path.write_text(report_page(result), encoding="utf8")

    check_nothing_runs(tab, path, "xx_pipeline 0.0.0: report")

    titles = tab.run("[...document.querySelectorAll('svg title')].map(e => e.textContent)")
    assert any(half[0] in title for title in titles)

    before = tab.run("byId('threshold-text').textContent")
    tab.run("byId('threshold').focus()")
    tab.press("Home")
    assert tab.run("byId('threshold-text').textContent") != before

    # Figures have a size and our colours, although style sheets need a hash.
    assert tab.run("document.querySelector('#confusion-plot svg').getBBox().width") > 100
    colour = "getComputedStyle(document.querySelector('#confusion-plot text')).fill"
    assert tab.run(colour) == "rgb(28, 39, 51)"


@needs_chromium
def test_nothing_of_an_audit_runs(tab: Browser, tmp_path: Path) -> None:
    """The page works nevertheless: its first input accepts the first suggestion."""
    docs = make_docs(HOSTILE)
    places = [
        Suspect(
            doc=i,
            kind="spurious entity",
            score=0.1,
            annotated=[(1, 2, label)],
            suggested=[],
            prob_annotated=0.2,
            prob_suggested=0.8,
        )
        for i, label in enumerate(HOSTILE)
    ]
    title = f"</title><script>{RUN}</script>"
    path = tmp_path / "audit.html"
    path.write_text(audit_page(places, docs, title), encoding="utf8")
    check_nothing_runs(tab, path, f"{title}: audit")
    labels = tab.run("[...document.querySelectorAll('li .label')].map(e => e.textContent)")
    assert len(labels) >= len(HOSTILE) and labels[0].startswith(HOSTILE[0])
    tab.run("document.querySelector('input').focus()")
    tab.press(" ")
    answered = f"1 accepted, 0 rejected, {len(HOSTILE) - 1} to do"
    assert tab.run("byId('answered').textContent") == answered


@needs_chromium
def test_nothing_of_a_page_of_annotators_runs(tab: Browser, tmp_path: Path) -> None:
    """Labels and the name of the annotator are markup."""
    share = 1 / len(HOSTILE)
    errors = AnnotatorErrors(
        name=HOSTILE[0],
        n_texts=2,
        n_checked=1,
        n_repeated=0,
        precision=None,
        recall=None,
        f_score=None,
        found={label: dict.fromkeys(HOSTILE, share) for label in HOSTILE},
        missed=dict.fromkeys(HOSTILE, 0.0),
        false_alarms=0.0,
    )
    method = MethodScores(CHANNEL, 0.5, 0.5, 0.5, -0.5, 0.0, 0.0)
    noise = LearnedNoise([errors], 1, [method], CHANNEL, Corrections())
    distilled = Distilled(
        tmp_path, n_docs=1, n_entities=1, n_missing=0, n_unknown=0, rows=[], noise=noise
    )
    path = tmp_path / "noise.html"
    path.write_text(noise_page(distilled), encoding="utf8")

    check_nothing_runs(tab, path, "Noise channel")

    assert tab.run("document.querySelector('h3').textContent") == HOSTILE[0]
    assert tab.run("document.querySelectorAll('table').length") == 3
