"""How well mistakes in annotation are found, against scores by token and cleanlab's.

    python benchmarks/audit.py corpus.spacy config.cfg lang [seeds] [made-up|natural]

A twentieth of the entities is corrupted, a fourth each: another label, other borders, dropped, put
in. "made-up" draws them by chance; "natural" as another model confuses them, and half of the labels
are labels that the same words have elsewhere. All methods see the same out-of-fold marginals. An
item is a place: adjacent tokens are merged. It is right if it overlaps a corruption, once. Items on
corruptions of other kinds don't count for or against a kind. AP by kind is of all items and, after
the slash, of those that the method says are of that kind.
"""

import random
import sys
from collections import Counter
from pathlib import Path
from time import process_time
from typing import Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import numpy
import spacy
from cleanlab.token_classification.filter import find_label_issues
from cleanlab.token_classification.rank import get_label_quality_scores
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config

from spacy_costner.commands.audit import KINDS, Fold, cross_fit, rank
from spacy_costner.metrics import markdown_table

LABEL, BOUNDARY, MISSING, SPURIOUS = KINDS
SHARE = 0.05
SPARSE = Path(__file__).parent.parent / "configs" / "sparse.cfg"
Entity = Tuple[int, int, str]


class Item(NamedTuple):
    """A flagged place, or a corruption: of a doc, tokens from and to, of a kind."""

    doc: int
    begin: int
    end: int
    kind: str
    score: float = 0.0


Change = Tuple[int, List[Entity], List[Entity], str]
"""A doc, the entities that are removed and put in, the kind."""


def made_up(docs: Sequence[Doc], rng: random.Random) -> Iterator[Change]:
    """Corruptions by chance, in random order; more than are needed."""
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
    """Corruptions as a model confuses entities that it was not trained on."""
    config = load_config(SPARSE, overrides={"nlp.lang": lang, "system.seed": 7}, interpolate=False)
    suspects = rank(cross_fit(config, docs, seed=7), docs)
    ents = [(i, ent) for i, doc in enumerate(docs) for ent in doc.ents]
    labels: Dict[str, Set[str]] = {}
    for _, ent in ents:
        labels.setdefault(ent.text, set()).add(ent.label_)
    rng.shuffle(ents)
    for i, ent in ents:
        for label in sorted(labels[ent.text] - {ent.label_})[:1]:
            extent = (ent.start, ent.end)
            yield i, [(*extent, ent.label_)], [(*extent, label)], f"{LABEL} elsewhere"
    other = {MISSING: SPURIOUS, SPURIOUS: MISSING, LABEL: LABEL, BOUNDARY: BOUNDARY}
    keyed = [(rng.random() ** (1 / max(s.prob_suggested, 1e-9)), s) for s in suspects]
    for _, s in sorted(keyed, key=lambda pair: -pair[0]):  # without replacement, by probability
        yield s.doc, s.annotated, s.suggested, other[s.kind]


def corrupt(docs: Sequence[Doc], changes: Iterator[Change]) -> Tuple[List[Doc], List[Item]]:
    """Carry out as many changes of each kind as are wanted, where they don't overlap."""
    n = round(SHARE * sum(len(doc.ents) for doc in docs)) // 4
    ents: List[Set[Entity]] = [{(e.start, e.end, e.label_) for e in doc.ents} for doc in docs]
    done: List[Item] = []
    quota = Counter({kind: n for kind in KINDS})
    quota[f"{LABEL} elsewhere"] = n // 2
    for i, old, new, said in changes:
        kind, extent = said.removesuffix(" elsewhere"), [e for one in (*old, *new) for e in one[:2]]
        begin, end = min(extent), max(extent)
        rest = ents[i] - {*old}
        is_free = all(e <= begin or end <= b for b, e, _ in rest) and {*old} <= ents[i]
        is_free &= all(d.end <= begin or end <= d.begin for d in done if d.doc == i)
        inside = (
            begin >= 0
            and end <= len(docs[i])
            and not any(docs[i][t].is_sent_start for t in range(begin + 1, min(end, len(docs[i]))))
        )
        if is_free and inside and quota[said] and quota[kind]:
            quota.subtract({said, kind})
            ents[i] = rest | {*new}
            done.append(Item(i, begin, end, kind))
    copies = [doc.copy() for doc in docs]
    for doc, own in zip(copies, ents):
        doc.set_ents([Span(doc, b, e, label=label) for b, e, label in sorted(own)])
    return copies, done


def by_token(folds: Sequence[Fold]) -> Dict[str, List[Item]]:
    """The items of scores by token."""
    found: Dict[str, List[Item]] = {}
    for fold in folds:
        tags, posterior = fold.dev.posterior.tags.collapsed, fold.dev.posterior
        lengths, probs = posterior.potentials.lengths, posterior.marginals.astype("float64")
        given, ends = tags.encode(fold.dev.gold, len(probs)), numpy.cumsum(lengths)
        probs /= probs.sum(axis=1, keepdims=True)
        labels = [part.tolist() for part in numpy.split(given, ends[:-1])]
        parts = numpy.split(probs, ends[:-1])
        scores = {"1 - p by token": 1 - probs[numpy.arange(len(given)), given]}
        for method in ("self_confidence", "normalized_margin"):
            _, of_tokens = get_label_quality_scores(labels, parts, token_score_method=method)
            scores[f"cleanlab {method}"] = 1 - numpy.concatenate(of_tokens)
        issues = numpy.zeros(len(given), bool)
        starts = ends - lengths
        issues[[int(starts[i]) + t for i, t in find_label_issues(labels, parts)]] = True
        flags = {name: score > 0.1 for name, score in scores.items()}
        scores["cleanlab issues"] = scores["cleanlab self_confidence"]
        flags["cleanlab issues"] = issues
        doc_of = numpy.repeat(numpy.arange(len(lengths)), lengths)
        label_of = tags.label_of
        for name, score in scores.items():
            edges = numpy.flatnonzero(numpy.diff(flags[name]) | (numpy.diff(doc_of) > 0)) + 1
            for run in numpy.split(numpy.arange(len(given)), edges):
                if flags[name][run[0]]:
                    pair = [{*label_of[t[run]].tolist()} - {-1} for t in (given, probs.argmax(1))]
                    kind = _kind(*pair)
                    i = doc_of[run[0]]
                    begin, end = run[0] - starts[i], run[-1] + 1 - starts[i]
                    item = Item(int(fold.docs[i]), begin, end, kind, float(score[run].max()))
                    found.setdefault(name, []).append(item)
    return found


def _kind(given: Set[int], other: Set[int]) -> str:
    return (
        MISSING if not given else SPURIOUS if not other else LABEL if given != other else BOUNDARY
    )


def average_precision(
    items: Sequence[Item], done: Sequence[Item], kinds: Sequence[str], said: Sequence[str] = KINDS
) -> float:
    """Average precision of items, for corruptions of some kinds."""
    found: Set[Item] = set()
    n_seen, total = 0, 0.0
    by_doc: Dict[int, List[Item]] = {}
    for one in done:
        by_doc.setdefault(one.doc, []).append(one)
    for item in sorted(items, key=lambda item: -item.score):
        if item.kind not in said:
            continue
        hit = {d for d in by_doc.get(item.doc, ()) if d.begin < item.end and item.begin < d.end}
        ours = {d for d in hit if d.kind in kinds}
        if (hit and not ours) or (ours and ours <= found):
            continue
        n_seen += 1
        if ours:
            total += len(ours - found) * (len(found | ours)) / max(n_seen, len(found | ours))
            found |= ours
    return total / sum(d.kind in kinds for d in done)


def main(path: str, config_path: str, lang: str, seeds: str = "1", how: str = "made-up") -> None:
    docs = list(DocBin().from_disk(path).get_docs(spacy.blank(lang).vocab))
    for seed in map(int, seeds.split(",")):
        rng = random.Random(seed)
        changes = made_up(docs, rng) if how == "made-up" else natural(docs, rng, lang)
        corrupted, done = corrupt(docs, changes)
        begin = process_time()
        config = load_config(config_path, overrides={"nlp.lang": lang}, interpolate=False)
        folds = cross_fit(config, corrupted)
        ranked = rank(folds, corrupted)
        seconds = process_time() - begin
        ours = [Item(s.doc, *s.extent, s.kind, s.score) for s in ranked]
        minus = [
            item._replace(score=s.prob_suggested - s.prob_annotated)
            for item, s in zip(ours, ranked)
        ]
        methods = {"audit": ours, "p - p": minus, **by_token(folds)}
        rows = []
        for name, items in methods.items():
            best = sorted(items, key=lambda item: -item.score)
            hits = [average_precision([item], done, KINDS) > 0 for item in best[:300]]
            cells = [
                f"{average_precision(items, done, [k]):.2f} / "
                f"{average_precision(items, done, [k], [k]):.2f}"
                for k in KINDS
            ]
            overall = f"{average_precision(items, done, KINDS):.3f}"
            at = [f"{numpy.mean(hits[:n]):.2f}" for n in (100, 300)]
            rows.append([name, overall, *cells, *at])
        print(f"seed {seed}, {how}, {len(done)} corruptions, {seconds:.0f} s of CPU time\n")
        print(markdown_table(["method", "AP", *KINDS, "P@100", "P@300"], rows), "\n", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
