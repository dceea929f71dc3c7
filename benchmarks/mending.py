"""Check whether `guarantee --drawn` restores guarantees that no longer hold: make a guarantee on
one corpus, and measure the miss rate on different texts, before and after.

    python benchmarks/mending.py MODEL CALIBRATION TEXTS [--sentences 20] [--drawings 200]

Both corpora are annotated and new to the model. TEXTS are used unchanged, in lower case, in
capitals, and with 5 % of their characters garbled. `broken` is the guarantee on CALIBRATION. The
others are restored with 50, 100 and 200 docs, sampled repeatedly from the texts as by `estimate
--draw`. The table contains the mean miss rate of the remaining docs, marked if it exceeds the limit
by more than two standard errors. The percentage of samples that don't allow a guarantee is in
brackets; these have no miss rate. `spans` is the size of the set per annotated entity.
"""

import argparse
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import spacy
from shifts import CAPITALS, SHIFTS, shift_doc
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, ArrayXd, Floats1d, Ints1d

from spacy_costner.cli.tables import text_table
from spacy_costner.metrics import conformal
from spacy_costner.pipeline.promises import Terms
from spacy_costner.readers import ReadOptions, as_spacy_applies, read_docs
from spacy_costner.workflows.calibration.scored_spans import score_spans
from spacy_costner.workflows.calibration.set_thresholds import MIN_THRESHOLD
from spacy_costner.workflows.components import get_component
from spacy_costner.workflows.sampling.estimators import UNIFORM, draw_docs, drawing_probs
from spacy_costner.workflows.sampling.expected_counts import expect_counts

LIMITS = (0.02, 0.05, 0.1)
SIZES = (50, 100, 200)


class Scored(NamedTuple):
    """The spans and the annotated entities of D docs, with their scores: see `score_spans`."""

    spans: ArrayXd
    gold: ArrayXd
    n_docs: int

    def select(self, is_wanted: Array1d) -> "Scored":
        """Select the spans and entities of some docs. `is_wanted` contains a boolean for each doc,
        (D,)."""
        spans = self.spans[is_wanted[self.spans["doc"]]]
        gold = self.gold[is_wanted[self.gold["doc"]]]
        return Scored(spans, gold, n_docs=int(is_wanted.sum()))

    def losses(self, doc_weights: Floats1d | None = None) -> conformal.Losses:
        """Compute the losses (misses) of the docs with entities."""
        return conformal.miss_losses(self.gold["score"], self.gold["doc"], doc_weights=doc_weights)

    def miss_rate(self, threshold: float) -> float:
        """Compute the mean miss rate of the docs with entities at a threshold."""
        return float(self.losses().mean(numpy.asarray([threshold]))[0])

    def spans_per_entity(self, threshold: float) -> float:
        """Compute the size of the sets per entity at a threshold."""
        return float((self.spans["score"] >= threshold).sum() / len(self.gold))


def score(nlp: Language, docs: Sequence[Doc]) -> Scored:
    """Score the spans and entities of annotated docs."""
    examples = [Example(as_spacy_applies(doc), doc) for doc in docs]
    terms = Terms(miss=0.5)  # the limit doesn't matter
    scored = score_spans(nlp, get_component(nlp, "ner"), examples, terms)
    return Scored(scored.spans, scored.gold, len(docs))


def mend(texts: Scored, probs: Floats1d, drawn: Ints1d, limit: float) -> float | None:
    """Compute the threshold from drawn docs, as in `guarantee --drawn`, or None if there are too
    few. `probs` contains each doc's probability of being drawn, with the shape (D,); `drawn` the
    indices of the drawn docs, possibly with repetitions."""
    n_times_drawn = numpy.bincount(drawn, minlength=texts.n_docs)
    # The less likely a doc was to be drawn, the more it counts. Each draw has a weight of at most
    # 1, because no doc has a probability below UNIFORM / D. Shape: (D,)
    doc_weights = n_times_drawn * UNIFORM / texts.n_docs / probs
    losses = texts.select(n_times_drawn > 0).losses(doc_weights)
    return conformal.threshold(losses, limit, floor=MIN_THRESHOLD)


def mended_cells(
    texts: Scored, probs: Floats1d, n: int, limit: float, n_drawings: int
) -> list[str]:
    """Make the cells for a number of drawn docs: the miss rate of the other docs, and the size of
    their sets."""
    miss_rates: list[float] = []
    sizes: list[float] = []
    for seed in range(n_drawings):
        drawn = draw_docs(probs, n, numpy.random.default_rng(seed))
        threshold = mend(texts, probs, drawn, limit)
        if threshold is None:
            continue
        is_drawn = numpy.bincount(drawn, minlength=texts.n_docs) > 0
        others = texts.select(~is_drawn)
        miss_rates.append(others.miss_rate(threshold))
        sizes.append(others.spans_per_entity(threshold))

    refused = f"({100 * (1 - len(miss_rates) / n_drawings):.0f} %)"
    if not miss_rates:
        return [f"- {refused}", "-"]
    mean = numpy.mean(miss_rates)
    standard_error = numpy.std(miss_rates) / len(miss_rates) ** 0.5
    mark = ""
    if mean > limit + 2 * standard_error:
        mark = " !"
    return [f"{mean:.4f}{mark} {refused}", f"{numpy.mean(sizes):.2f}"]


def main() -> None:
    """Print a row for each kind of text and each limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("calibration", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--sentences", type=int, help="sentences of a doc")
    parser.add_argument("--drawings", type=int, default=200)
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    nlp = spacy.load(options.model)
    read_options = ReadOptions(n_sents=options.sentences)
    calibration = score(nlp, list(read_docs(nlp, options.calibration, read_options)))
    docs = list(read_docs(nlp, options.texts, read_options))
    print(f"{calibration.n_docs:,} calibration docs, {len(docs):,} texts")

    header = ["text", "limit", "broken", "spans"]
    for n in SIZES:
        header += [str(n), "spans"]
    rows: list[list[str]] = [header]
    for shift in (*SHIFTS, CAPITALS):
        rng = random.Random(0)
        shifted = [shift_doc(doc, shift, rng) for doc in docs]
        texts = score(nlp, shifted)
        # Docs with more expected mistakes are more likely to be drawn.
        mistakes = [counts.mistakes() for _, counts in expect_counts(nlp, "ner", shifted)]
        probs = drawing_probs(numpy.concatenate(mistakes))
        for limit in LIMITS:
            threshold = conformal.threshold(calibration.losses(), limit, floor=MIN_THRESHOLD)
            cells = ["-", "-"]
            if threshold is not None:
                miss_rate = texts.miss_rate(threshold)
                cells = [f"{miss_rate:.4f}", f"{texts.spans_per_entity(threshold):.2f}"]
            for n in SIZES:
                cells += mended_cells(texts, probs, n, limit, options.drawings)
            rows.append([shift, f"{limit:g}", *cells])
    print(text_table(rows))


if __name__ == "__main__":
    main()
