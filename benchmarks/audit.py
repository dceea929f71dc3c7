"""Measure how well annotation mistakes are found, compared with token scores and cleanlab.

    python benchmarks/audit.py corpus.spacy config.cfg lang [seed] [made-up|natural]

A twentieth of the entities is corrupted: see docs/audit.md. A corruption has a kind, one of
SUSPECT_KINDS. An item is a place flagged by a method, with a score. All methods use the same
marginals. The average precision (AP) for a kind is computed from the items that the method assigns
to the kind and, after the slash, from all items.
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
from thinc.types import Array1d, Floats1d, Floats2d, Ints1d

from spacy_costner.cli.tables import markdown_table
from spacy_costner.workflows.fitting.folds import Fold
from spacy_costner.workflows.noisy_labels.auditing import cross_fit
from spacy_costner.workflows.noisy_labels.suspects import SUSPECT_KINDS, rank

LABEL, BOUNDARY, MISSING, SPURIOUS = SUSPECT_KINDS
SAME_WORDS = f"{LABEL}, of the same words"
SPARSE = Path(__file__).parent.parent / "configs" / "sparse.cfg"
Entity = tuple[int, int, str]
"""The start token, the end token (exclusive) and the label."""

Change = tuple[int, list[Entity], list[Entity], str]
"""The doc, the removed entities, the added entities, and the kind."""


class Item(NamedTuple):
    """A flagged place or a corruption: its doc, start and end tokens, kind and score."""

    doc: int
    begin: int
    end: int
    kind: str
    score: float


def made_up(docs: Sequence[Doc], rng: random.Random) -> Iterator[Change]:
    """Make random changes, a quarter of each kind."""
    entities: list[tuple[int, Entity]] = []
    for i, doc in enumerate(docs):
        entities += [(i, (ent.start, ent.end, ent.label_)) for ent in doc.ents]
    labels = sorted({label for _, (_, _, label) in entities})
    rng.shuffle(entities)

    for number, (i, entity) in enumerate(entities):
        begin, end, label = entity
        kind = SUSPECT_KINDS[number % len(SUSPECT_KINDS)]
        if kind == LABEL:
            other_label = rng.choice([name for name in labels if name != label])
            yield i, [entity], [(begin, end, other_label)], LABEL
        elif kind == BOUNDARY:
            # The changes to start and end. An entity of one token can't become shorter.
            moves = [(-1, 0), (0, 1)]
            if end - begin > 1:
                moves += [(1, 0), (0, -1)]
            of_begin, of_end = rng.choice(moves)
            yield i, [entity], [(begin + of_begin, end + of_end, label)], BOUNDARY
        elif kind == MISSING:
            yield i, [entity], [], MISSING
        else:
            # As long as the entity, anywhere: all tokens are equally likely.
            (j,) = rng.choices(range(len(docs)), [len(doc) for doc in docs])
            start = rng.randrange(len(docs[j]))
            yield j, [], [(start, start + end - begin, rng.choice(labels))], SPURIOUS


def natural(docs: Sequence[Doc], rng: random.Random, lang: str) -> Iterator[Change]:
    """Make changes like people's mistakes: labels that the same words have elsewhere, then the
    predictions that a model considers likely."""
    # Not the same seed as for the models that find the corruptions
    config = load_config(SPARSE, overrides={"nlp.lang": lang, "system.seed": 7}, interpolate=False)
    suspects = rank(cross_fit(config, docs, seed=7), docs)
    ents: list[tuple[int, Span]] = []
    labels_of_text: dict[str, set[str]] = {}
    for i, doc in enumerate(docs):
        for ent in doc.ents:
            ents.append((i, ent))
            labels_of_text.setdefault(ent.text, set()).add(ent.label_)
    rng.shuffle(ents)

    for i, ent in ents:
        other_labels = sorted(labels_of_text[ent.text] - {ent.label_})
        if other_labels:
            old = (ent.start, ent.end, ent.label_)
            new = (ent.start, ent.end, other_labels[0])
            yield i, [old], [new], SAME_WORDS

    # An entity that the model would add becomes a spurious entity in the corrupted corpus.
    kind_of_change = {MISSING: SPURIOUS, SPURIOUS: MISSING, LABEL: LABEL, BOUNDARY: BOUNDARY}
    # Sorting by u^(1/p), with u uniform, samples without replacement in proportion to p.
    keys = [rng.random() ** (1 / max(suspect.prob_suggested, 1e-9)) for suspect in suspects]
    for _, suspect in sorted(zip(keys, suspects), key=lambda pair: -pair[0]):
        kind = kind_of_change[suspect.kind]
        yield suspect.doc, suspect.annotated, suspect.suggested, kind


def corrupt(docs: Sequence[Doc], changes: Iterator[Change]) -> tuple[list[Doc], list[Item]]:
    """Apply the first changes of each kind that neither overlap nor cross sentence boundaries.
    Returns the corrupted docs, and the corruptions."""
    n_of_kind = round(0.05 * sum(len(doc.ents) for doc in docs)) // len(SUSPECT_KINDS)
    entities_in: list[set[Entity]] = []
    for doc in docs:
        entities_in.append({(ent.start, ent.end, ent.label_) for ent in doc.ents})
    # The number of changes still to be made. Changes for the same words also count as labels.
    quota = Counter({**dict.fromkeys(SUSPECT_KINDS, n_of_kind), SAME_WORDS: n_of_kind // 2})
    corruptions: list[Item] = []
    for i, old, new, name in changes:
        kind = name.split(",")[0]  # LABEL for SAME_WORDS; other names are kinds
        if quota[name] <= 0 or quota[kind] <= 0:
            continue
        begin = min(entity[0] for entity in (*old, *new))
        end = max(entity[1] for entity in (*old, *new))
        unchanged = entities_in[i] - {*old}
        taken = [(entity[0], entity[1]) for entity in unchanged]
        taken += [(item.begin, item.end) for item in corruptions if item.doc == i]
        is_possible = (
            {*old} <= entities_in[i]
            and begin >= 0
            and end <= len(docs[i])
            and all(taken_end <= begin or end <= taken_begin for taken_begin, taken_end in taken)
            and not any(docs[i][t].is_sent_start for t in range(begin + 1, end))
        )
        if is_possible:
            quota.subtract({name, kind})  # a set: usually both are equal and count once
            entities_in[i] = unchanged | {*new}
            corruptions.append(Item(i, begin, end, kind, 0.0))

    corrupted = [doc.copy() for doc in docs]
    for doc, entities in zip(corrupted, entities_in):
        doc.set_ents([Span(doc, begin, end, label) for begin, end, label in sorted(entities)])
    return corrupted, corruptions


class TokenScores(NamedTuple):
    """How suspect a method considers each token's annotation, and which tokens it flags. Shapes:
    (N,)"""

    scores: Floats1d
    is_flagged: Array1d


def score_tokens(probs: Floats2d, gold: Ints1d, starts: Ints1d) -> dict[str, TokenScores]:
    """Compute the scores of each method. Tokens with a score above 0.1 are flagged or, for
    "issues", the tokens that cleanlab reports. `probs` contains the probability of each tag, `gold`
    the annotated tags, `starts` the first token of each doc. Shapes: (N, K), (N,), (B,)"""
    probs_of_docs = numpy.split(probs, starts[1:])
    gold_of_docs = [tags.tolist() for tags in numpy.split(gold, starts[1:])]
    scores = {"1 - p by token": 1 - probs[numpy.arange(len(gold)), gold]}
    for method in ("self_confidence", "normalized_margin"):
        _, qualities = get_label_quality_scores(
            gold_of_docs, probs_of_docs, token_score_method=method
        )
        scores[f"cleanlab, {method}"] = 1 - numpy.concatenate(qualities)
    methods: dict[str, TokenScores] = {}
    for name, scores_of_method in scores.items():
        methods[name] = TokenScores(scores_of_method, is_flagged=scores_of_method > 0.1)

    is_issue = numpy.zeros(len(gold), bool)
    for i, token in find_label_issues(gold_of_docs, probs_of_docs):
        is_issue[starts[i] + token] = True
    methods["cleanlab, issues"] = TokenScores(scores["cleanlab, self_confidence"], is_issue)
    return methods


def by_token(fold: Fold) -> Iterator[tuple[str, Item]]:
    """Yield the places found by the methods of `score_tokens`, with the name of the method. A place
    consists of adjacent flagged tokens in a doc, with their highest score."""
    posterior = fold.dev.posterior
    tags = posterior.tags.collapsed
    lengths = posterior.potentials.lengths
    starts = numpy.cumsum(lengths) - lengths
    doc_of_token = numpy.repeat(numpy.arange(len(lengths)), lengths)
    # Marginals in float32 don't sum to exactly 1.
    probs = posterior.marginals.astype("float64")
    probs /= probs.sum(axis=1, keepdims=True)
    gold_tags = tags.encode(fold.dev.gold, len(probs))
    likely_tags = probs.argmax(axis=1)

    for name, (scores, is_flagged) in score_tokens(probs, gold_tags, starts).items():
        # Tokens are divided where flagged tokens start or end, and where docs start.
        is_cut = numpy.diff(is_flagged) | (numpy.diff(doc_of_token) > 0)
        cuts = numpy.flatnonzero(is_cut) + 1
        for tokens in numpy.split(numpy.arange(len(gold_tags)), cuts):
            first = tokens[0]
            if not is_flagged[first]:
                continue
            i = doc_of_token[first]
            begin = int(first - starts[i])
            gold_labels = tags.label_of[gold_tags[tokens]]
            kind = kind_of(gold_labels, tags.label_of[likely_tags[tokens]])
            score = float(scores[tokens].max())
            yield name, Item(int(fold.docs[i]), begin, begin + len(tokens), kind, score)


def kind_of(gold_labels: Ints1d, likely_labels: Ints1d) -> str:
    """Classify a mistake by the annotated and the likely labels of its tokens. Label -1 is O."""
    annotated = set(gold_labels.tolist()) - {-1}
    likely = set(likely_labels.tolist()) - {-1}
    if not annotated:
        return MISSING
    if not likely:
        return SPURIOUS
    if annotated != likely:
        return LABEL
    return BOUNDARY


def evaluate(
    items: Sequence[Item], corruptions: Sequence[Item], kinds: Sequence[str]
) -> list[bool]:
    """Check whether each item, highest score first, is correct: whether it overlaps a corruption of
    these kinds. Items that only overlap corruptions of other kinds, or corruptions that have
    already been found, are left out."""
    corruptions_in: dict[int, list[Item]] = {}
    for corruption in corruptions:
        corruptions_in.setdefault(corruption.doc, []).append(corruption)
    found_before: set[Item] = set()
    is_right: list[bool] = []
    for item in sorted(items, key=lambda item: -item.score):
        touched: set[Item] = set()
        for corruption in corruptions_in.get(item.doc, ()):
            if corruption.begin < item.end and item.begin < corruption.end:
                touched.add(corruption)
        if not touched:
            is_right.append(False)
            continue
        new_kinds = {corruption.kind for corruption in touched - found_before}
        if not new_kinds.isdisjoint(kinds):
            is_right.append(True)
            found_before |= touched
    return is_right


def average_precision(
    items: Sequence[Item], corruptions: Sequence[Item], kinds: Sequence[str]
) -> float:
    """Compute the average precision for some kinds: the mean over corruptions of the precision at
    the item that finds the corruption, or 0 if it isn't found."""
    is_right = numpy.asarray(evaluate(items, corruptions, kinds), dtype=float)
    precisions = numpy.cumsum(is_right) / numpy.arange(1, len(is_right) + 1)
    n_corruptions = sum(corruption.kind in kinds for corruption in corruptions)
    return float((precisions * is_right).sum() / n_corruptions)


def items_of_methods(folds: Sequence[Fold], docs: Sequence[Doc]) -> dict[str, list[Item]]:
    """Get the items of each method: ours, ours scored by the difference between probabilities, and
    the token methods."""
    methods: dict[str, list[Item]] = {"audit": [], "p - p": []}
    for suspect in rank(folds, docs):
        item = Item(suspect.doc, *suspect.span, suspect.kind, suspect.score)
        difference = suspect.prob_suggested - suspect.prob_annotated
        methods["audit"].append(item)
        methods["p - p"].append(item._replace(score=difference))
    for fold in folds:
        for name, item in by_token(fold):
            methods.setdefault(name, []).append(item)
    return methods


def cells_of(items: Sequence[Item], corruptions: Sequence[Item]) -> list[str]:
    """Make the cells of a method: AP overall and by kind, and the precision of the first items."""
    cells = [f"{average_precision(items, corruptions, SUSPECT_KINDS):.3f}"]
    for kind in SUSPECT_KINDS:
        items_of_kind = [item for item in items if item.kind == kind]
        of_kind = average_precision(items_of_kind, corruptions, [kind])
        of_all = average_precision(items, corruptions, [kind])
        cells.append(f"{of_kind:.2f} / {of_all:.2f}")
    is_right = evaluate(items, corruptions, SUSPECT_KINDS)
    for n in (100, 300):
        cells.append(f"{numpy.mean(is_right[:n]):.2f}")
    return cells


def main(path: str, config_path: str, lang: str, seed: str = "1", how: str = "made-up") -> None:
    """Corrupt a corpus, and print how well each method finds the corruptions."""
    docs = list(DocBin().from_disk(path).get_docs(spacy.blank(lang).vocab))
    rng = random.Random(int(seed))
    changes = made_up(docs, rng) if how == "made-up" else natural(docs, rng, lang)
    docs, corruptions = corrupt(docs, changes)

    began = process_time()
    config = load_config(config_path, overrides={"nlp.lang": lang}, interpolate=False)
    folds = cross_fit(config, docs)
    print(f"{how}, {len(corruptions)} corruptions, {process_time() - began:.0f} s of CPU time\n")
    rows: list[list[str]] = []
    for name, items in items_of_methods(folds, docs).items():
        rows.append([name, *cells_of(items, corruptions)])
    print(markdown_table(["method", "AP", *SUSPECT_KINDS, "P@100", "P@300"], rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
