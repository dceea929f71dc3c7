"""Find probable mistakes in the annotation of a corpus, and correct those that a person accepts."""

from collections import Counter
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from spacy.tokens import Doc
from thinc.api import Config

from ..config_variants import component_name
from ..cross_fit import Fold, assign_folds, cross_fit
from ..report.findings import find_pricing
from ..runs import MakeExecutor
from .page import page
from .suspects import INCONSISTENT, KINDS, Suspect, make_cost, rank
from .tasks import correct, suspect_to_task

__all__ = [
    "KINDS",
    "Audit",
    "Fold",
    "Suspect",
    "assign_folds",
    "audit",
    "correct",
    "cross_fit",
    "page",
    "rank",
    "suspect_to_task",
]


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
