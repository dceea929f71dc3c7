"""How well mistakes in annotation are found, against scores by token and cleanlab's.

    python benchmarks/audit.py corpus.spacy config.cfg lang [seed] [made-up|natural]

A twentieth of the entities is corrupted: see docs/audit.md. All methods see the same marginals. AP
by kind is of the items that the method says are of the kind and, after the slash, of all items.
"""

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy
import spacy
from cleanlab.token_classification.filter import find_label_issues
from cleanlab.token_classification.rank import get_label_quality_scores
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config

from spacy_costner.analysis.auditing import KINDS, cross_fit, rank
from spacy_costner.analysis.preparation import Fold
from spacy_costner.cli.tables import markdown_table

LABEL, BOUNDARY, MISSING, SPURIOUS = KINDS
SAME_WORDS = f"{LABEL}, of the same words"
SPARSE = Path(__file__).parent.parent / "configs" / "sparse.cfg"
Entity = tuple[int, int, str]
Change = tuple[int, list[Entity], list[Entity], str]
"""The doc, entities that are removed and put in, the kind."""


class Item(NamedTuple):
    """A flagged place, or a corruption."""

    doc: int
    begin: int
    end: int
    kind: str
    score: float


def made_up(docs: Sequence[Doc], rng: random.Random) -> Iterator[Change]:
    ents = [(i, (e.start, e.end, e.label_)) for i, doc in enumerate(docs) for e in doc.ents]
    labels = sorted({ent[2] for _, ent in ents})
    rng.shuffle(ents)
    for n, (i, ent) in enumerate(ents):
        begin, end, label = ent
        if n % 4 == 0:
            yield i, [ent], [(begin, end, rng.choice([x for x in labels if x != label]))], LABEL
        elif n % 4 == 1:
            moves = [(-1, 0), (0, 1), *([(1, 0), (0, -1)] if end - begin > 1 else [])]
            left, right = rng.choice(moves)
            yield i, [ent], [(begin + left, end + right, label)], BOUNDARY
        elif n % 4 == 2:
            yield i, [ent], [], MISSING
        else:
            (j,) = rng.choices(range(len(docs)), [len(doc) for doc in docs])
            start = rng.randrange(len(docs[j]))
            yield j, [], [(start, start + end - begin, rng.choice(labels))], SPURIOUS


def natural(docs: Sequence[Doc], rng: random.Random, lang: str) -> Iterator[Change]:
    config = load_config(SPARSE, overrides={"nlp.lang": lang, "system.seed": 7}, interpolate=False)
    suspects = rank(cross_fit(config, docs, seed=7), docs)
    ents = [(i, ent) for i, doc in enumerate(docs) for ent in doc.ents]
    labels: dict[str, set[str]] = {}
    for _, ent in ents:
        labels.setdefault(ent.text, set()).add(ent.label_)
    rng.shuffle(ents)
    for i, ent in ents:
        for label in sorted(labels[ent.text] - {ent.label_})[:1]:
            place = (ent.start, ent.end)
            yield i, [(*place, ent.label_)], [(*place, label)], SAME_WORDS
    other = {MISSING: SPURIOUS, SPURIOUS: MISSING, LABEL: LABEL, BOUNDARY: BOUNDARY}
    keyed = [(rng.random() ** (1 / max(s.prob_suggested, 1e-9)), s) for s in suspects]
    for _, s in sorted(keyed, key=lambda pair: -pair[0]):  # without replacement, by probability
        yield s.doc, s.annotated, s.suggested, other[s.kind]


def corrupt(docs: Sequence[Doc], changes: Iterator[Change]) -> tuple[list[Doc], list[Item]]:
    """Make the first changes of each kind that don't overlap, nor cross sentences."""
    n = round(0.05 * sum(len(doc.ents) for doc in docs)) // 4
    ents: list[set[Entity]] = [{(e.start, e.end, e.label_) for e in doc.ents} for doc in docs]
    quota = Counter({**dict.fromkeys(KINDS, n), SAME_WORDS: n // 2})
    done: list[Item] = []
    for i, old, new, said in changes:
        kind, bounds = said.split(",")[0], [b for one in (*old, *new) for b in one[:2]]
        begin, end, rest = min(bounds), max(bounds), ents[i] - {*old}
        others = [entity[:2] for entity in rest] + [d[1:3] for d in done if d.doc == i]
        is_free = {*old} <= ents[i] and all(e <= begin or end <= b for b, e in others)
        is_free &= begin >= 0 and end <= len(docs[i]) and quota[said] > 0 and quota[kind] > 0
        if is_free and not any(docs[i][t].is_sent_start for t in range(begin + 1, end)):
            quota.subtract({said, kind})
            ents[i] = rest | {*new}
            done.append(Item(i, begin, end, kind, 0.0))
    copies = [doc.copy() for doc in docs]
    for doc, own in zip(copies, ents):
        doc.set_ents([Span(doc, b, e, label=label) for b, e, label in sorted(own)])
    return copies, done


def by_token(fold: Fold) -> Iterator[tuple[str, Item]]:
    """Adjacent tokens with a score above 0.1 or, for "issues", those that cleanlab finds."""
    posterior, tags = fold.dev.posterior, fold.dev.posterior.tags.collapsed
    lengths, probs = posterior.potentials.lengths, posterior.marginals.astype("float64")
    given, starts = tags.encode(fold.dev.gold, len(probs)), numpy.cumsum(lengths) - lengths
    probs /= probs.sum(axis=1, keepdims=True)
    parts = numpy.split(probs, starts[1:])
    labels = [part.tolist() for part in numpy.split(given, starts[1:])]
    scores = {"1 - p by token": 1 - probs[numpy.arange(len(given)), given]}
    for method in ("self_confidence", "normalized_margin"):
        _, found = get_label_quality_scores(labels, parts, token_score_method=method)
        scores[f"cleanlab, {method}"] = 1 - numpy.concatenate(found)
    flags = {name: score > 0.1 for name, score in scores.items()}
    scores["cleanlab, issues"] = scores["cleanlab, self_confidence"]
    flags["cleanlab, issues"] = issues = numpy.zeros(len(given), bool)
    issues[[int(starts[i]) + t for i, t in find_label_issues(labels, parts)]] = True
    doc, best = numpy.repeat(numpy.arange(len(lengths)), lengths), probs.argmax(1)
    for name, flag in flags.items():
        edges = numpy.flatnonzero(numpy.diff(flag) | (numpy.diff(doc) > 0)) + 1
        for run in numpy.split(numpy.arange(len(given)), edges):
            if flag[run[0]]:
                old, new = ({*tags.label_of[some[run]].tolist()} - {-1} for some in (given, best))
                kind = LABEL if old != new else BOUNDARY
                kind = MISSING if not old else SPURIOUS if not new else kind
                i, begin = doc[run[0]], int(run[0] - starts[doc[run[0]]])
                place = (int(fold.docs[i]), begin, begin + len(run), kind)
                yield name, Item(*place, float(scores[name][run].max()))


def evaluate(items: Sequence[Item], done: Sequence[Item], kinds: Sequence[str]) -> list[bool]:
    """Whether each item, by score, is right for these kinds. Those on other corruptions, or on ones
    found before, are left out."""
    by_doc: dict[int, list[Item]] = {}
    for one in done:
        by_doc.setdefault(one.doc, []).append(one)
    found, hits = set(), []
    for item in sorted(items, key=lambda item: -item.score):
        hit = {d for d in by_doc.get(item.doc, ()) if d.begin < item.end and item.begin < d.end}
        if not hit or any(d.kind in kinds and d not in found for d in hit):
            hits.append(bool(hit))
            found |= hit
    return hits


def main(path: str, config_path: str, lang: str, seed: str = "1", how: str = "made-up") -> None:
    docs, rng = (
        list(DocBin().from_disk(path).get_docs(spacy.blank(lang).vocab)),
        random.Random(int(seed)),
    )
    docs, done = corrupt(docs, made_up(docs, rng) if how == "made-up" else natural(docs, rng, lang))
    begin = process_time()
    config = load_config(config_path, overrides={"nlp.lang": lang}, interpolate=False)
    folds = cross_fit(config, docs)
    suspects = rank(folds, docs)
    print(f"{how}, {len(done)} corruptions, {process_time() - begin:.0f} s of CPU time\n")
    places = [Item(s.doc, *s.extent, s.kind, s.score) for s in suspects]
    minus = [s.prob_suggested - s.prob_annotated for s in suspects]
    methods = {"audit": places, "p - p": [p._replace(score=x) for p, x in zip(places, minus)]}
    for name, item in (found for fold in folds for found in by_token(fold)):
        methods.setdefault(name, []).append(item)

    def precision(items: Sequence[Item], kinds: Sequence[str]) -> float:
        hits = numpy.asarray(evaluate(items, done, kinds), dtype=float)
        at = numpy.cumsum(hits) / numpy.arange(1, len(hits) + 1)
        return float((at * hits).sum() / sum(d.kind in kinds for d in done))

    rows = []
    for name, items in methods.items():
        of_kind = {kind: [item for item in items if item.kind == kind] for kind in KINDS}
        cells = [f"{precision(of_kind[k], [k]):.2f} / {precision(items, [k]):.2f}" for k in KINDS]
        hits = evaluate(items, done, KINDS)
        at = [f"{numpy.mean(hits[:n]):.2f}" for n in (100, 300)]
        rows.append([name, f"{precision(items, KINDS):.3f}", *cells, *at])
    print(markdown_table(["method", "AP", *KINDS, "P@100", "P@300"], rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
