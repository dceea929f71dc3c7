"""What answers are worth, and whether differences may be chance."""

from typing import Callable, Dict, List, Sequence

import numpy
from spacy.scorer import get_ner_prf
from spacy.training import Example
from thinc.types import FloatsXd

from spacy_costner.significance import Difference, bootstrap, difference


def entity_scores(found: Sequence[Example]) -> Dict[str, float]:
    """Precision "p", recall "r" and "f" of entities, in per cent."""
    scores = get_ner_prf(found)
    return {name: 100 * scores[f"ents_{name}"] for name in "prf"}


def sentence_counts(found: Sequence[Example]) -> List[List[int]]:
    """For each sentence the entities of gold, of the answer, and of both: what a bootstrap
    needs."""
    counts = []
    for eg in found:
        gold, answer = (
            {(ent.start, ent.end, ent.label) for ent in doc.ents}
            for doc in (eg.reference, eg.predicted)
        )
        counts.append([len(gold), len(answer), len(gold & answer)])
    return counts


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean and, of several, the standard deviation, as tables have them."""
    deviation = f" ± {numpy.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{numpy.mean(values):.{digits}f}{deviation}"


def f_score(counts: FloatsXd) -> FloatsXd:
    """F in per cent, 0 where there is nothing.

    counts (FloatsXd): Entities of gold, of the answer, and of both. Shape: (..., 3)
    RETURNS (FloatsXd): Shape: (...)
    """
    gold, answered, both = numpy.moveaxis(counts, -1, 0)
    return 200 * both / numpy.maximum(gold + answered, 1)


def paired_differences(
    counts: FloatsXd,
    score: Callable[[FloatsXd], FloatsXd],
    *,
    baseline: int = 0,
    n_samples: int = 10_000,
) -> List[Difference]:
    """How far systems are from one of them, in the mean score of their seeds: the paired
    bootstrap over sentences.

    counts (FloatsXd): What is counted of each system, with each seed, in each sentence. Shape:
        (M, S, D, C)
    score (Callable[[FloatsXd], FloatsXd]): Makes scores of counts that are added up over
        sentences. Shape: (..., C) to (...)
    baseline (int): The one that all are compared with.
    n_samples (int): Samples of sentences.
    RETURNS (List[Difference]): One for each system.
    """
    n_systems, n_seeds, n_docs, n_columns = counts.shape
    sums = bootstrap(numpy.moveaxis(counts, 2, 0).reshape(n_docs, -1), n_samples=n_samples)
    sampled = score(sums.reshape(-1, n_systems, n_seeds, n_columns)).mean(axis=-1)
    value = score(counts.sum(axis=2)).mean(axis=-1)
    return [
        difference(float(value[i] - value[baseline]), sampled[:, i] - sampled[:, baseline])
        for i in range(n_systems)
    ]
