"""Rank the places of a corpus by how probably their annotation is wrong."""

from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import date
from functools import partial
from html import escape
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import numpy
import typer
from spacy.cli._util import import_code, show_validation_error
from spacy.tokens import Doc, Span
from spacy.util import load_config, load_model_from_config
from thinc.api import Config
from thinc.types import Array1d, Floats2d, Ints1d
from typer import Argument, Option

from ..decoding import LEAST
from ..metrics import text_table
from ..progress import progress
from ..readers import Task, TaskSpan, doc_to_task, read_docs, read_tasks, task_to_json, write_tasks
from ..readers.files import Place
from ..readers.tasks import spans_from_json
from ..saving import check_file, save_file
from ..settings import check_overrides
from ..tags import Entities, Tags
from .compare import component_name
from .convert import check_suffix, write_corpus
from .cross_fit import Fold, cross_fit
from .options import AddressOption, CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result, stdout_for
from .report import (
    Mark,
    Stretch,
    Texts,
    fill,
    find_pricing,
    number,
    probability,
    render,
    table,
    window,
)
from .runs import MakeExecutor, local_processes, ray_cluster

LABEL, BOUNDARY = "wrong label", "wrong boundary"
MISSING, SPURIOUS = "missing entity", "spurious entity"
KINDS = (LABEL, BOUNDARY, MISSING, SPURIOUS)
INCONSISTENT = "inconsistent"

MISSING_ODDS = 2.0
"""How many times as often an entity is overlooked as another mistake is made, given the same
probabilities. Chosen on made-up mistakes: see docs/audit.md."""

SMOOTHING = 0.2
"""Added to probabilities before the logarithm. Less finds more of the mistakes that are put in by
chance, more those that annotators make. Chosen on both: see docs/audit.md."""

PROBABLE = 0.5
"""The least probability of entities that are suggested beside the best alternative."""

Entity = Tuple[int, int, str]
"""First token, the one after the last, label."""
Cost = Callable[[Optional[Entity], Optional[Entity]], float]
"""Takes what is true and what is annotated to the cost of that mistake. None: no entity."""

Pair = Tuple[Optional[Entity], Optional[Entity]]
"""What is annotated, and what there may be instead."""


class Suspect(NamedTuple):
    """A place whose annotation may be wrong.

    doc (int): The number of the doc, from 0.
    kind (str): One of `KINDS`: what the mistake is if the suggestion is right.
    score (float): The log-odds of the suggestion against the annotation: see `rank`.
    annotated (List[Entity]): The annotated entities, in tokens of the doc.
    suggested (List[Entity]): The entities of the suggestion.
    prob_annotated (float): The probability of the annotation.
    prob_suggested (float): The probability of the suggestion.
    as_annotated (int): How often the words are annotated so elsewhere in the corpus.
    as_suggested (int): How often the words of the suggestion are annotated as it says.
    """

    doc: int
    kind: str
    score: float
    annotated: List[Entity]
    suggested: List[Entity]
    prob_annotated: float
    prob_suggested: float
    as_annotated: int = 0
    as_suggested: int = 0

    @property
    def is_inconsistent(self) -> bool:
        """Whether the same words elsewhere are annotated as the suggestion says more often."""
        return self.as_suggested > self.as_annotated

    @property
    def extent(self) -> Tuple[int, int]:
        """The first token and the one after the last."""
        begins, ends, _ = zip(*self.annotated, *self.suggested)
        return min(begins), max(ends)


def rank(folds: Sequence[Fold], docs: Sequence[Doc], cost: Optional[Cost] = None) -> List[Suspect]:
    """Find the best alternative of each place, and sort places by its score.

        score = log (c(other, given) p(other) + 0.2) - log (c(given, other) p(given) + 0.2)

    c(a, b) is the cost of annotating b where a is right, over the mean cost, and p is the
    probability of exactly these tokens as an entity of that label, or of no entity in them. For
    places without an annotated entity log 2 is added. Places don't overlap: of those that do, the
    first counts.

    folds (Sequence[Fold]): The docs with their posterior.
    docs (Sequence[Doc]): The annotated docs.
    cost (Optional[Cost]): The cost of mistakes.
    RETURNS (List[Suspect]): All places with a score, the most probable mistakes first.
    """
    found = [suspect for fold in folds for suspect in _suspects_of(fold, cost)]
    return compare_elsewhere(sorted(found, key=lambda suspect: -suspect.score), docs)


def _suspects_of(fold: Fold, cost: Optional[Cost]) -> Iterator[Suspect]:
    """The places of a fold, by score."""
    dev, posterior = fold.dev, fold.dev.posterior
    likely, probs = posterior.likely_entities(LEAST)
    known = dev.counts(likely)
    likely, probs = likely.select(known), probs[known]
    gold, others = ([*_named(some, posterior.tags.labels)] for some in (dev.gold, likely))
    given, other = _pair(dev.gold, likely)
    p_gold, p_no_gold = posterior.entity_probs(dev.gold), posterior.outside_probs(*dev.gold[:2])
    p_no_other = posterior.outside_probs(*likely[:2])
    p_given = numpy.where(given < 0, _at(p_no_other, other), _at(p_gold, given))
    p_other = numpy.where(other < 0, _at(p_no_gold, given), _at(probs, other))
    or_none: List[List[Optional[Entity]]] = [[*gold, None], [*others, None]]
    pairs = [(or_none[0][i], or_none[1][j]) for i, j in zip(given.tolist(), other.tolist())]
    if_other, if_given = _weights(pairs, cost)
    score = numpy.log(if_other * p_other + SMOOTHING) - numpy.log(if_given * p_given + SMOOTHING)
    score += numpy.where(given < 0, numpy.log(MISSING_ODDS), 0.0)
    starts = numpy.cumsum([0, *posterior.potentials.lengths])
    taken = numpy.zeros(starts[-1], dtype=bool)
    probable = [others[i] for i in numpy.flatnonzero(probs > PROBABLE)]
    for i in numpy.argsort(-score, kind="stable").tolist():
        annotated, suggested = _complete(pairs[i], gold, probable)
        begin, end = _extent([*annotated, *suggested])
        if taken[begin:end].any():
            continue
        taken[begin:end] = True
        doc = int(numpy.searchsorted(starts, begin, side="right")) - 1
        yield Suspect(
            doc=int(fold.docs[doc]),
            kind=_kind(annotated, suggested),
            score=float(score[i]),
            annotated=_shift(annotated, int(starts[doc])),
            suggested=_shift(suggested, int(starts[doc])),
            prob_annotated=float(p_given[i]),
            prob_suggested=float(p_other[i]),
        )


def _pair(gold: Entities, likely: Entities) -> Tuple[Ints1d, Ints1d]:
    """The alternatives of all places: an annotated entity or none, -1, and another that overlaps
    it, or none. Shapes: (R,)"""
    first = numpy.searchsorted(gold.end, likely.begin, side="right")
    last = numpy.searchsorted(gold.begin, likely.end)
    other = numpy.repeat(numpy.arange(len(first)), numpy.maximum(last - first, 1))
    given = numpy.arange(len(other)) - numpy.searchsorted(other, other) + first[other]
    given = numpy.where((last == first)[other], -1, given)
    same = [_at(a, given) == b[other] for a, b in zip(gold, likely)]
    is_other = (given < 0) | ~numpy.logical_and.reduce(same)
    every = numpy.arange(len(gold.begin))
    none = numpy.full(len(every), -1)
    return (
        numpy.concatenate([every, given[is_other]]),
        numpy.concatenate([none, other[is_other]]),
    )


def _at(values: Array1d, places: Ints1d) -> Array1d:
    """The values at some places; 0 at place -1."""
    return numpy.append(values, 0)[places]


def _weights(pairs: Sequence[Pair], cost: Optional[Cost]) -> Floats2d:
    """What two mistakes cost, in units of the mean cost: annotating what is annotated where the
    other one is right, and the other way round. Shape: (2, R)"""
    if cost is None or not pairs:
        return numpy.ones((2, len(pairs)))
    costs = numpy.asarray([(cost(other, given), cost(given, other)) for given, other in pairs]).T
    return costs / max(costs.mean(), 1e-12)


def _complete(
    pair: Pair, gold: List[Entity], probable: List[Entity]
) -> Tuple[List[Entity], List[Entity]]:
    """The annotated entities that an alternative replaces, and those that it has: the other one of
    the pair and the probable ones in the same tokens."""
    given, other = pair
    begin, end = _extent([entity for entity in pair if entity is not None])
    annotated = _between(gold, begin, end)
    if other is None:
        return annotated, []
    begin, end = _extent([*annotated, other])
    suggested = [other]
    for entity in _between(probable, begin, end) if given is not None else ():
        inside = begin <= entity[0] and entity[1] <= end
        if inside and all(entity[1] <= b or e <= entity[0] for b, e, _ in suggested):
            suggested.append(entity)
    return annotated, sorted(suggested)


def _between(entities: List[Entity], begin: int, end: int) -> List[Entity]:
    """The entities with tokens between these. They are sorted by their ends, too."""
    first = bisect_right(entities, begin, key=lambda entity: entity[1])
    return entities[first : bisect_left(entities, end, key=lambda entity: entity[0])]


def _extent(entities: Sequence[Entity]) -> Tuple[int, int]:
    return min(entity[0] for entity in entities), max(entity[1] for entity in entities)


def _named(entities: Entities, labels: Sequence[str]) -> Iterator[Entity]:
    for begin, end, label in zip(*(column.tolist() for column in entities)):
        yield begin, end, labels[label]


def _shift(entities: Sequence[Entity], start: int) -> List[Entity]:
    return [(begin - int(start), end - int(start), label) for begin, end, label in entities]


def _kind(annotated: Sequence[Entity], suggested: Sequence[Entity]) -> str:
    if not suggested:
        return SPURIOUS
    if not annotated:
        return MISSING
    same = [entity[:2] for entity in annotated] == [entity[:2] for entity in suggested]
    return LABEL if same else BOUNDARY


def compare_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> List[Suspect]:
    """Count how the same words are annotated elsewhere in the corpus.

    suspects (Sequence[Suspect]): The places.
    docs (Sequence[Doc]): The docs.
    RETURNS (List[Suspect]): The same with the counts.
    """
    words = [[token.text for token in doc] for doc in docs]
    keys = {tuple(words[s.doc][b:e]) for s in suspects for b, e, _ in (*s.annotated, *s.suggested)}
    labelled: Dict[Tuple[str, ...], Counter] = {key: Counter() for key in keys}
    sizes: Dict[str, Set[int]] = {}
    for key in keys:
        sizes.setdefault(key[0], set()).add(len(key))
    for doc, own in zip(docs, words):
        ents = {(ent.start, ent.end): ent.label_ for ent in doc.ents}
        for i, word in enumerate(own):
            for size in sizes.get(word, ()):
                counts = labelled.get(tuple(own[i : i + size]))
                if counts is not None and i + size <= len(own):
                    counts[ents.get((i, i + size), "")] += 1
    return [_with_counts(suspect, words[suspect.doc], labelled) for suspect in suspects]


def _with_counts(
    suspect: Suspect, words: List[str], labelled: Dict[Tuple[str, ...], Counter]
) -> Suspect:
    """The counts of the words of the first entity that annotation and suggestion differ in. The
    place itself doesn't count."""
    annotated, suggested = set(suspect.annotated), set(suspect.suggested)
    (begin, end, _) = min(suggested - annotated or annotated - suggested)
    counts = labelled[tuple(words[begin:end])]

    def label_in(entities: Sequence[Entity]) -> str:
        return next((label for b, e, label in entities if (b, e) == (begin, end)), "")

    own, other = label_in(suspect.annotated), label_in(suspect.suggested)
    return suspect._replace(as_annotated=counts[own] - 1, as_suggested=counts[other])


def make_cost(table: Floats2d, tags: Tags) -> Cost:
    """The cost of a mistake, from a cost table: the sum over the tokens of both entities.

    table (Floats2d): The cost of each pair of tags, [true, annotated]. Shape: (K, K)
    tags (Tags): Their tags.
    RETURNS (Cost): The cost of annotating one entity in place of another.
    """

    def path(entity: Optional[Entity], begin: int, end: int) -> Ints1d:
        if entity is None:
            return numpy.zeros(end - begin, dtype="int32")
        columns = (entity[0] - begin, entity[1] - begin, tags.labels.index(entity[2]))
        entities = Entities(*(numpy.asarray([column]) for column in columns))
        return tags.encode(entities, end - begin)

    def cost(true: Optional[Entity], annotated: Optional[Entity]) -> float:
        extent = _extent([entity for entity in (true, annotated) if entity is not None])
        return float(table[path(true, *extent), path(annotated, *extent)].sum())

    return cost


Characters = Tuple[int, int, str]
"""First character, the one after the last, label."""

Change = Tuple[Place, List[Entity], List[Entity]]
"""A line, and the entities that it removes and adds."""


def suspect_to_task(suspect: Suspect, docs: Sequence[Doc]) -> Task:
    """Make a task of a suspect, in Prodigy's form. Its spans are those of the suggestion, and
    those around it. The spans as annotated are under "annotated".

    suspect (Suspect): The place.
    docs (Sequence[Doc]): The docs.
    RETURNS (Task): The sentence or, of a long one, the part around the place. Its key "doc" is the
        number of the doc, and "start" the character of the doc that the text begins with.
    """
    doc = docs[suspect.doc]
    begin, end = window(doc, *suspect.extent)
    start = doc[begin].idx
    task = doc_to_task(doc[begin:end].as_doc())
    spans = task.spans or []
    old, new = (
        [TaskSpan(*_characters(doc, entity, start)) for entity in entities]
        for entities in (suspect.annotated, suspect.suggested)
    )
    kept = [s for s in spans if all(s.end <= other.start or other.end <= s.start for other in old)]
    extra = {
        "annotated": [dict(zip(TaskSpan._fields, span[:3])) for span in spans],
        "doc": suspect.doc,
        "start": start,
        "kind": suspect.kind,
        "score": round(suspect.score, 4),
        "prob_annotated": round(suspect.prob_annotated, 4),
        "prob_suggested": round(suspect.prob_suggested, 4),
        "inconsistent": suspect.is_inconsistent,
        "elsewhere": {"as_annotated": suspect.as_annotated, "as_suggested": suspect.as_suggested},
        "meta": {"kind": suspect.kind, "change": describe(suspect, doc)},
    }
    return task._replace(spans=sorted([*kept, *new], key=lambda span: span[:3]), extra=extra)


def _characters(doc: Doc, entity: Entity, start: int) -> Characters:
    """An entity in characters of a part of its doc."""
    begin, end, label = entity
    return doc[begin].idx - start, doc[end - 1].idx + len(doc[end - 1]) - start, label


def describe(suspect: Suspect, doc: Doc) -> str:
    """The annotation and the suggestion, in a line."""
    sides = [
        ", ".join(f"{doc[b:e].text} {label}" for b, e, label in entities) or "nothing"
        for entities in (suspect.annotated, suspect.suggested)
    ]
    return " -> ".join(sides)


def correct(docs: Sequence[Doc], path: Path) -> Dict[str, int]:
    """Correct a corpus by the accepted lines of an audit.

    A line is accepted unless its answer is "reject" or "ignore". What a line changes is the
    difference between its spans, which may have been edited, and those under "annotated".

    docs (Sequence[Doc]): The docs that were audited. Their entities are corrected.
    path (Path): The lines.
    RETURNS (Dict[str, int]): The number of lines that were "accepted", and "rejected" or ignored.
    RAISES (CorpusError): If something is no line of an audit of these docs, or two lines
        contradict each other; the message names the line.
    """
    changes: Dict[int, List[Change]] = {}
    n_rejected = 0
    for place, task in read_tasks(path):
        if task.extra.get("answer", "accept") == "accept":
            i, removed, added = _read_change(docs, task, place)
            changes.setdefault(i, []).append((place, removed, added))
        else:
            n_rejected += 1
    for i, of_doc in changes.items():
        _change(docs[i], of_doc)
    return {"accepted": sum(map(len, changes.values())), "rejected": n_rejected}


def _read_change(
    docs: Sequence[Doc], task: Task, place: Place
) -> Tuple[int, List[Entity], List[Entity]]:
    """The doc that a line changes, and the entities that are removed from it and added to it."""
    i, start, annotated = (task.extra.get(name) for name in ("doc", "start", "annotated"))
    if type(i) is not int or type(start) is not int or not isinstance(annotated, list):
        raise place.refuse("expected a line of an audit, with doc, start and annotated")
    if not 0 <= i < len(docs):
        raise place.refuse(f"doc: expected less than {len(docs)}, the number of docs, got {i}")
    own = docs[i].text[start : start + len(task.text)]
    if start < 0 or own != task.text:
        raise place.refuse(f"expected the text of doc {i}, {own!r}, got {task.text!r}")
    before, after = (
        {span[:3] for span in spans}
        for spans in (spans_from_json(annotated, own, "annotated", place), task.spans or ())
    )

    def to_tokens(spans: Iterable[Characters]) -> List[Entity]:
        return [_to_tokens(docs[i], span, start, place) for span in sorted(spans)]

    return i, to_tokens(before - after), to_tokens(after - before)


def _to_tokens(doc: Doc, span: Characters, start: int, place: Place) -> Entity:
    found = doc.char_span(start + span[0], start + span[1])
    if found is None:
        text = doc.text[start + span[0] : start + span[1]]
        raise place.refuse(f"spans: expected whole tokens, got {text!r} {span[2]}")
    return found.start, found.end, span[2]


def _change(doc: Doc, changes: List[Change]) -> None:
    """Change the entities of a doc. Tokens without annotation stay so, unless a span is added."""
    kept: Dict[Entity, Any] = {(ent.start, ent.end, ent.label_): ent for ent in doc.ents}
    outside = []
    for place, removed, _ in changes:
        for entity in removed:
            if entity not in kept:
                text = f"{doc[entity[0] : entity[1]].text} {entity[2]}"
                raise place.refuse(f"annotated: expected an entity of the doc, got {text!r}")
            outside.append(doc[entity[0] : entity[1]])
            del kept[entity]
    for place, _, added in changes:
        for begin, end, label in added:
            other = next((e for e in kept if e[0] < end and begin < e[1]), None)
            if other is not None:
                raise place.refuse(
                    f"spans: expected entities without overlap, got {doc[begin:end].text!r} "
                    f"{label} and {doc[other[0] : other[1]].text!r} {other[2]}"
                )
            kept[begin, end, label] = Span(doc, begin, end, label=label)
    is_free = [token.i for span in outside for token in span]
    covered = {i for begin, end, _ in kept for i in range(begin, end)}
    doc.set_ents(
        list(kept.values()),
        outside=[doc[i : i + 1] for i in is_free if i not in covered],
        default="unmodified",
    )


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


class Audit(NamedTuple):
    """The result of an audit.

    suspects (List[Suspect]): All places, the most probable mistakes first.
    kinds (Dict[str, int]): For each of `KINDS`, the number of places where the suggestion is
        more probable than the annotation; and, as "inconsistent", how many of all these have words
        that are annotated as the suggestion says more often elsewhere.
    docs (int): Number of docs.
    tokens (int): Number of tokens.
    entities (int): Number of annotated entities.
    """

    suspects: List[Suspect]
    kinds: Dict[str, int]
    docs: int
    tokens: int
    entities: int


def audit(
    config: Config,
    docs: Sequence[Doc],
    *,
    n_folds: int = 5,
    n_seeds: int = 1,
    seed: Optional[int] = None,
    make_executor: Optional[MakeExecutor] = None,
    code_path: Optional[str] = None,
    on_fold: Callable[[], object] = lambda: None,
) -> Audit:
    """Find probable mistakes in the annotation of docs.

    config (Config): A config of a linear model. Its corpora are not read. If its component has a
        cost, probabilities are weighed by it.
    docs (Sequence[Doc]): The annotated docs, none of them empty.
    n_folds (int), n_seeds (int), seed (Optional[int]), make_executor (Optional[MakeExecutor]),
        code_path (Optional[str]), on_fold (Callable): See `cross_fit`.
    RETURNS (Audit): The places.
    RAISES (ValueError): See `cross_fit`.
    """
    folds = cross_fit(
        config,
        docs,
        n_folds=n_folds,
        n_seeds=n_seeds,
        seed=seed,
        make_executor=make_executor,
        code_path=code_path,
        on_fold=on_fold,
    )
    tags = folds[0].dev.posterior.tags.collapsed
    components = config.interpolate()["components"]
    pricing = find_pricing(components[component_name(config, Path("config"))])
    cost = make_cost(pricing.cost(tags), tags) if pricing.name else None
    suspects = rank(folds, docs, cost)
    probable = [s for s in suspects if s.prob_suggested > s.prob_annotated]
    kinds = Counter(s.kind for s in probable)
    kinds[INCONSISTENT] = sum(s.is_inconsistent for s in probable)
    return Audit(
        suspects=suspects,
        kinds={kind: kinds[kind] for kind in (*KINDS, INCONSISTENT)},
        docs=len(docs),
        tokens=sum(map(len, docs)),
        entities=sum(len(doc.ents) for doc in docs),
    )


N_SHOWN = 10
"""Number of places that are printed."""


def audit_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config of a linear model", exists=True)],
    corpus_path: Annotated[
        Path, Argument(help="Annotated corpus: see `costner convert`", exists=True)
    ],
    output_path: Annotated[
        Optional[Path],
        Option("--output", "-o", help="Output file: JSONL; with --apply the corrected corpus"),
    ] = None,
    html_path: Annotated[Optional[Path], Option("--html", help="Output HTML page")] = None,
    apply_path: Annotated[
        Optional[Path],
        Option("--apply", help="Correct the corpus by the lines of this JSONL file", exists=True),
    ] = None,
    n_places: Annotated[int, Option("--places", "-n", help="Number of places", min=1)] = 200,
    n_folds: Annotated[int, Option("--folds", help="Number of folds")] = 5,
    n_seeds: Annotated[
        int, Option("--seeds", help="Trainings for each fold, whose weights are averaged", min=1)
    ] = 1,
    seed: Annotated[
        Optional[int],
        Option("--shuffle", help="Random seed of the folds", show_default="blocks of docs"),
    ] = None,
    jobs: Annotated[int, Option("--jobs", "-j", help="Folds at a time", min=1)] = 1,
    address: AddressOption = None,
    print_json: JsonOption = False,
    code_path: CodeOption = None,
) -> None:
    """
    Find probable mistakes in the annotation of a corpus: wrong labels, wrong boundaries, missing
    and spurious entities. The linear model of the config is trained on all docs but those of a
    fold, for each fold, and compares the annotation with alternatives. Writes the most probable
    mistakes as JSONL in Prodigy's form and as an HTML page. Delete the lines that you reject, or
    set "answer": "reject"; then run the command again with --apply and a new --output. Override
    settings as in `spacy train`, e.g. --nlp.lang es.
    """
    overrides = read_overrides(ctx)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        for path in (output_path, html_path):
            check_file(path, [config_path, corpus_path, *([apply_path] if apply_path else [])])
        import_code(code_path)
        check_overrides(load_config(config_path, interpolate=False), overrides)
        config = load_config(config_path, overrides=overrides, interpolate=False)
        docs = list(read_docs(load_model_from_config(config, auto_fill=True), corpus_path))
        if apply_path is not None:
            apply_cli(docs, apply_path, output_path, print_json)
            return
        executor = ray_cluster(address) or local_processes(jobs)
        folds = progress(desc="audit", unit="fold", total=n_folds)
        with stdout_for(address), folds as bar:
            found = audit(
                config,
                docs,
                n_folds=n_folds,
                n_seeds=n_seeds,
                seed=seed,
                make_executor=executor,
                code_path=None if code_path is None else str(code_path),
                on_fold=bar.update,
            )
        found = found._replace(suspects=found.suspects[:n_places])
        tasks = [suspect_to_task(suspect, docs) for suspect in found.suspects]
        if output_path is not None:
            save_file(output_path, partial(write_tasks, tasks=tasks))
        if html_path is not None:
            html = page(found.suspects, docs, str(corpus_path))
            save_file(html_path, partial(Path.write_text, data=html, encoding="utf8"))
    result = {**found._asdict(), "suspects": [task_to_json(task) for task in tasks]}
    print_result(result, describe_audit(found, docs), print_json, output_path, html_path)


def apply_cli(docs: List[Doc], path: Path, output_path: Optional[Path], print_json: bool) -> None:
    """Write the corrected corpus."""
    if output_path is None:
        raise ValueError("audit: output: expected the corrected corpus with --apply, got none")
    check_suffix(output_path)
    numbers = correct(docs, path)
    write_corpus(output_path, docs)
    lines = [f"{n} {name}" for name, n in numbers.items()]
    print_result(numbers, "\n".join(lines), print_json, output_path)


def describe_audit(found: Audit, docs: List[Doc]) -> str:
    """How many places there are of each kind, and the first of them."""
    lines = [f"{found.docs:,} docs, {found.tokens:,} tokens, {found.entities:,} entities", ""]
    lines += [text_table([["kind", "places"], *found.kinds.items()]), ""]
    for suspect in found.suspects[:N_SHOWN]:
        probs = f"{suspect.prob_annotated:.2f} -> {suspect.prob_suggested:.2f}"
        change = describe(suspect, docs[suspect.doc])
        lines.append(f"{suspect.kind:15} doc {suspect.doc:<6} {probs}  {change}")
    return "\n".join(lines)
