"""Render a self-contained HTML page: no scripts, no network, light and dark mode."""

from html import escape
from importlib.resources import files
from typing import List, Optional, Sequence, Tuple

from spacy import displacy
from spacy.scorer import PRFScore

from .findings import Findings
from .mistakes import Mark, Mistake
from .plots import (
    Plot,
    confusion_plot,
    curve,
    guarantee_plot,
    reliability_plot,
    transitions_plot,
)
from .words import cost, number, percent, probability

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

ENTITY = '<mark class="{state}">{text}<span class="label">{label}</span></mark>'


def page(findings: Findings) -> str:
    """Render a report.

    findings (Findings): The results.
    RETURNS (str): The HTML.
    RAISES (ImportError): If matplotlib is not installed.
    """
    sections = [
        ("scores", "Scores", _scores(findings)),
        ("curve", "Precision and recall", _curve(findings)),
        ("confidence", "Confidence", _confidence(findings)),
        ("confusion", "Confusion matrix", _confusion(findings)),
        ("mistakes", "Costliest mistakes", _mistakes(findings)),
        ("model", "Transition weights", _model(findings)),
    ]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    parts = [
        _header(findings),
        f"<nav>{links}</nav>",
        "<main>",
        *(
            f'<section id="{name}">\n<h2>{title}</h2>\n{content}\n</section>'
            for name, title, content in sections
        ),
        "</main>",
        "<footer>Written by <code>python -m spacy costner report</code>.</footer>",
    ]
    title = f"{findings.about.pipeline} {findings.about.version}: report"
    style = files(__package__).joinpath("page.css").read_text(encoding="utf8")
    return PAGE.format(title=escape(title), style=style, body="\n".join(parts))


def _header(findings: Findings) -> str:
    about, total, scores = findings.about, findings.total, findings.scores
    tiles = [
        ("F", percent(total.fscore), "%", "of entities"),
        ("Precision", percent(total.precision), "%", f"of {number(total.tp + total.fp)} predicted"),
        ("Recall", percent(total.recall), "%", f"of {number(total.tp + total.fn)} annotated"),
        ("Cost", number(scores["ents_cost"], 4), "", "per token"),
        ("Calibration error", number(scores["ents_ece"], 4), "", "0 is best"),
        (
            "Docs without mistakes",
            percent(scores["ents_sent_acc"]),
            "%",
            f"of {number(about.docs)}",
        ),
    ]
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{unit and f' {unit}'}</small></dd>"
        f"<dd>{note}</dd></div>"
        for name, value, unit, note in tiles
    )
    facts = {
        "pipeline": about.source,
        "corpus": f"{about.corpus}: {number(about.docs)} docs, {number(about.tokens)} tokens, "
        f"{number(total.tp + total.fn)} entities",
        "component": about.component,
        **about.settings,
    }
    rows = "".join(f"<dt>{name}</dt><dd>{escape(fact)}</dd>" for name, fact in facts.items())
    day = f'<time datetime="{about.day.isoformat()}">{about.day.isoformat()}</time>'
    return (
        f"<header>\n<p>Named entity recognition: evaluation &middot; {day}</p>\n"
        f"<h1>{escape(about.pipeline)} <small>{escape(about.version)}</small></h1>\n"
        f'<dl class="tiles">{cells}</dl>\n<dl class="facts">{rows}</dl>\n</header>'
    )


def _scores(findings: Findings) -> str:
    parts = [
        "<p>An entity is correct if its boundaries and its label are those of the annotation.</p>",
        _counts("label", list(findings.labels.items()), findings.total),
    ]
    if findings.levels:
        levels = [(f"level {i}", counts) for i, counts in enumerate(findings.levels, 1)]
        parts += [
            "<p>Scores with each label replaced by its ancestor at a level of the label tree, 1 "
            "at the top. Confusing two labels with the same ancestor is not a mistake.</p>",
            _counts("tree", levels),
        ]
    return "\n".join(parts)


def _counts(
    what: str, rows: Sequence[Tuple[str, PRFScore]], total: Optional[PRFScore] = None
) -> str:
    head = [what, "F %", "precision %", "recall %", "annotated", "predicted", "correct"]
    lines = [_count_cells(name, counts) for name, counts in rows]
    foot = None if total is None else _count_cells("all", total)
    return _table(head, lines, foot, bar=1)


def _count_cells(name: str, counts: PRFScore) -> List[str]:
    n_gold, n_predicted = counts.tp + counts.fn, counts.tp + counts.fp
    return [
        escape(name),
        percent(counts.fscore),
        percent(counts.precision if n_predicted else None),
        percent(counts.recall if n_gold else None),
        *map(number, (n_gold, n_predicted, counts.tp)),
    ]


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    foot: Optional[Sequence[str]] = None,
    *,
    bar: Optional[int] = None,
) -> str:
    """Render a table of numbers with names in the first column.

    head (Sequence[str]): The header.
    rows (Sequence[Sequence[str]]): The cells, in HTML.
    foot (Optional[Sequence[str]]): The footer.
    bar (Optional[int]): A column of percentages to draw bars behind.
    """

    def line(cells: Sequence[str]) -> str:
        others = "".join(
            f'<td class="bar" style="--share: {cell}%">{cell}</td>'
            if i == bar
            else f"<td>{cell}</td>"
            for i, cell in enumerate(cells[1:], 1)
        )
        return f'<tr><th scope="row">{cells[0]}</th>{others}</tr>'

    heads = "".join(f'<th scope="col">{name}</th>' for name in head)
    below = "" if foot is None else f"<tfoot>{line(foot)}</tfoot>"
    body = "\n".join(map(line, rows))
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{body}</tbody>{below}</table></div>"
    )


def _plot(plot: Plot) -> str:
    scroll = ' class="scroll" tabindex="0"' if plot.may_scroll else ""
    return (
        f'<figure id="{plot.name}-plot">\n<div{scroll} role="img" aria-labelledby='
        f'"{plot.name}-caption">{plot.svg}</div>\n'
        f'<figcaption id="{plot.name}-caption">{plot.caption}</figcaption>\n</figure>'
    )


def _curve(findings: Findings) -> str:
    return (
        "<p>To choose another threshold or bias, without retraining: "
        "<code>python -m spacy costner tune</code>, on development docs.</p>\n"
        + _plot(curve(findings))
    )


def _confidence(findings: Findings) -> str:
    reliability = reliability_plot(findings)
    if reliability is None:
        return "<p>No entity was predicted.</p>"
    return (
        "<p>About 70 % of the entities with confidence 0.7 should be correct. If they are not: "
        "<code>python -m spacy costner calibrate</code>, on development docs.</p>\n"
        + "\n".join(_plot(plot) for plot in (reliability, guarantee_plot(findings)) if plot)
    )


def _confusion(findings: Findings) -> str:
    confusion = confusion_plot(findings)
    return "<p>All tags are correct.</p>" if confusion is None else _plot(confusion)


def _mistakes(findings: Findings) -> str:
    mistakes = findings.mistakes
    if not mistakes.shown:
        return "<p>No mistakes to show.</p>"
    n, total = sum(mistakes.counts.values()), sum(mistakes.costs.values())
    rows = [
        [kind, number(mistakes.counts[kind]), cost(mistakes.costs[kind])]
        for kind in mistakes.counts
    ]
    unit = "cost" if findings.pricing.name else "wrong tags"
    table = _table(["kind", "number", unit], rows, ["all", number(n), cost(total)])
    items = "\n".join(_mistake(mistake, unit) for mistake in mistakes.shown)
    return (
        f"{table}\n<p>Sorted by cost, then by the model's confidence. The annotation is "
        "above the prediction, each with the model's probability. "
        '<mark class="wrong">part of the mistake</mark> <mark class="right">correct</mark> '
        '<mark class="other">part of another mistake</mark></p>\n'
        f'<ol class="mistakes">\n{items}\n</ol>'
    )


def _mistake(mistake: Mistake, unit: str) -> str:
    lines = "".join(
        f"<dt>{name}</dt><dd>{_render(mistake.text, marks)}</dd>"
        for name, marks in (("annotated", mistake.gold), ("predicted", mistake.predicted))
    )
    return (
        f"<li><p><b>{mistake.kind}</b> &middot; {unit}: {cost(mistake.cost)} &middot; "
        f"doc {mistake.doc}</p><dl>{lines}</dl></li>"
    )


def _render(text: str, marks: Sequence[Mark]) -> str:
    """Render a text with its entities, by displaCy."""
    ents = [
        {
            "start": mark.start,
            "end": mark.end,
            "label": _label(mark),
            "params": {"state": mark.state},
        }
        for mark in marks
    ]
    return displacy.render(
        {"text": text, "ents": ents, "title": None},
        style="ent",
        manual=True,
        jupyter=False,
        options={"template": ENTITY},
    )


def _label(mark: Mark) -> str:
    prob = "" if mark.prob is None else f" <i>{escape(probability(mark.prob))}</i>"
    return escape(mark.label) + prob


def _model(findings: Findings) -> str:
    parts = [_plot(transitions_plot(findings))]
    if findings.features:
        rows = [
            [
                escape(tag.tag),
                *(
                    " ".join(
                        f"<span><code>{escape(one.feature)}</code> {one.weight:+.2f}</span>"
                        for one in some
                    )
                    for some in (tag.in_favour, tag.against)
                ),
            ]
            for tag in findings.features
        ]
        table = _table(["tag", "for", "against"], rows)
        parts.append(
            '<details class="features"><summary>The strongest features for and against each tag'
            f"</summary>\n{table}\n</details>"
        )
    return "\n".join(parts)
