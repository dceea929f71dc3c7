"""Does `guarantee --drawn` restore guarantees that no longer hold? A guarantee on one corpus, and
the miss rate of texts that are unlike it, before and after.

    python benchmarks/mending.py MODEL CALIBRATION TEXTS [--sentences 20] [--drawings 200]

Both corpora are annotated and new to the model. TEXTS are taken unchanged, in lower case, in
capitals, and with 5 % of their characters garbled. `broken` is the guarantee of CALIBRATION. The
others are restored with 50, 100 and 200 docs that `estimate --draw` would draw from the texts,
repeatedly: the mean miss rate of the docs that were not drawn, marked if it is above the limit by
more than two standard errors; in brackets the share of drawings with which nothing can be
guaranteed, whose miss rate is missing; `spans` is the size of the set for each annotated entity.
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
        """The spans and entities of some docs. `is_wanted` has a boolean for each doc, (D,)."""
        spans = self.spans[is_wanted[self.spans["doc"]]]
        gold = self.gold[is_wanted[self.gold["doc"]]]
        return Scored(spans, gold, n_docs=int(is_wanted.sum()))

    def losses(self, doc_weights: Floats1d | None = None) -> conformal.Losses:
        """The misses of the docs with entities."""
        return conformal.miss_losses(self.gold["score"], self.gold["doc"], doc_weights=doc_weights)

    def miss_rate(self, threshold: float) -> float:
        """The mean miss rate of the docs with entities at a threshold."""
        return float(self.losses().mean(numpy.asarray([threshold]))[0])

    def spans_per_entity(self, threshold: float) -> float:
        """The size of the sets at a threshold."""
        return float((self.spans["score"] >= threshold).sum() / len(self.gold))


def score(nlp: Language, docs: Sequence[Doc]) -> Scored:
    """Score the spans and the entities of annotated docs."""
    examples = [Example(as_spacy_applies(doc), doc) for doc in docs]
    terms = Terms(miss=0.5)  # the limit doesn't matter
    scored = score_spans(nlp, get_component(nlp, "ner"), examples, terms)
    return Scored(scored.spans, scored.gold, len(docs))


def mend(texts: Scored, probs: Floats1d, drawn: Ints1d, limit: float) -> float | None:
    """The threshold from drawn docs, as in `guarantee --drawn`; None if they are too few. `probs`
    has the probability with which each of all docs is drawn, with the shape (D,); `drawn` the
    indices of the drawn docs, in which a doc may occur several times."""
    n_times_drawn = numpy.bincount(drawn, minlength=texts.n_docs)
    # The less probable a drawn doc was, the more it counts. A weight for each drawing is at most 1,
    # as no doc has a probability below UNIFORM / D. Shape: (D,)
    doc_weights = n_times_drawn * UNIFORM / texts.n_docs / probs
    losses = texts.select(n_times_drawn > 0).losses(doc_weights)
    return conformal.threshold(losses, limit, floor=MIN_THRESHOLD)


def mended_cells(
    texts: Scored, probs: Floats1d, n: int, limit: float, n_drawings: int
) -> list[str]:
    """The cells of a number of drawn docs: the miss rate of the other docs, and the size of their
    sets."""
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
    """Print a row for each kind of texts and each limit."""
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
        # Docs with more expected mistakes are drawn more often.
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
