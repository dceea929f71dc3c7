"""Suspects as an HTML page to go through, in the look of the report."""

from datetime import date
from html import escape
from typing import Dict, List, Sequence

import numpy
from spacy.tokens import Doc

from ..report.mistakes import Entity, Mark, Stretch, Texts
from ..report.page import fill, render, table
from ..report.words import number, probability
from .suspects import KINDS, Suspect


def page(suspects: Sequence[Suspect], docs: Sequence[Doc], corpus: str = "") -> str:
    """Render the suspects.

    suspects (Sequence[Suspect]): The places to show.
    docs (Sequence[Doc]): The docs.
    corpus (str): The path of the docs, shown on the page.
    RETURNS (str): The HTML, without scripts.
    """
    starts = numpy.cumsum([0, *map(len, docs)]).tolist()
    gold = [
        (starts[i] + ent.start, starts[i] + ent.end, ent.label_)
        for i, doc in enumerate(docs)
        for ent in doc.ents
    ]
    stretches = [_stretch(suspect, starts[suspect.doc]) for suspect in suspects]
    changed = {entity for stretch in stretches for entity in stretch.gold}
    corrected = {entity for stretch in stretches for entity in stretch.predicted}
    corrected |= {entity for entity in gold if entity not in changed}
    in_text = Texts(docs, gold, sorted(corrected), _probs(suspects, stretches))
    items = []
    for rank, (suspect, stretch) in enumerate(zip(suspects, stretches), 1):
        shown = in_text.show(stretch, suspect.score)
        items.append(_item(rank, suspect, shown.text, shown.gold, shown.predicted))
    kinds = [suspect.kind for suspect in suspects]
    rows = [[kind, number(kinds.count(kind))] for kind in KINDS]
    body = (
        f"<header>\n<p>Audit of annotation &middot; {date.today().isoformat()}</p>\n"
        f"<h1>{escape(corpus)}</h1></header>\n<main><section>\n"
        f"{table(['kind', 'number'], rows, ['all', number(len(kinds))])}\n"
        "<p>Most probable mistakes first: annotation above, suggestion below, each with its "
        'probability. <mark class="wrong">this place</mark> <mark class="right">'
        'as annotated</mark> <mark class="other">another place of this page</mark></p>\n'
        '<ol class="mistakes">\n' + "\n".join(items) + "\n</ol>\n</section></main>\n"
        "<footer>Written by <code>python -m spacy costner audit</code>.</footer>"
    )
    return fill(f"{corpus}: audit", body)


def _stretch(suspect: Suspect, start: int) -> Stretch:
    annotated, suggested = (
        [(start + begin, start + end, label) for begin, end, label in entities]
        for entities in (suspect.annotated, suspect.suggested)
    )
    begin, end = suspect.extent
    return Stretch(start + begin, start + end, annotated, suggested)


def _probs(suspects: Sequence[Suspect], stretches: Sequence[Stretch]) -> Dict[Entity, float]:
    """The probabilities where annotation or suggestion is a single entity."""
    probs: Dict[Entity, float] = {}
    for suspect, stretch in zip(suspects, stretches):
        if len(stretch.gold) == 1:
            probs[stretch.gold[0]] = suspect.prob_annotated
        if len(stretch.predicted) == 1:
            probs[stretch.predicted[0]] = suspect.prob_suggested
    return probs


def _item(
    rank: int, suspect: Suspect, text: str, annotated: List[Mark], suggested: List[Mark]
) -> str:
    elsewhere = ""
    if suspect.as_annotated or suspect.as_suggested:
        elsewhere = (
            f" &middot; same words elsewhere: {suspect.as_suggested} as suggested, "
            f"{suspect.as_annotated} as annotated"
        )
    of_nothing = suspect.prob_annotated if not suspect.annotated else suspect.prob_suggested
    nothing = ""
    if not suspect.annotated or not suspect.suggested:
        nothing = f" &middot; no entity: {escape(probability(of_nothing))}"
    lines = "".join(
        f"<dt>{name}</dt><dd>{render(text, marks)}</dd>"
        for name, marks in (("annotated", annotated), ("suggested", suggested))
    )
    return (
        f"<li><p><b>{suspect.kind}</b> &middot; line {rank} &middot; doc {suspect.doc}{nothing}"
        f"{elsewhere}</p><dl>{lines}</dl></li>"
    )
