"""Settings that fit the size of a corpus: rows of embeddings, batches, epochs."""

from dataclasses import dataclass

from spacy.util import registry

from .blocks import Block
from .corpus_statistics import SPACY_EMBED_ROWS, CorpusStatistics
from .init_options import Model

MIN_EMBED_ROWS = 1000
"""The minimum number of these rows, however small the corpus."""


@dataclass(frozen=True)
class Sizes:
    """Settings that fit the size of a corpus. All but the last are settings of [training].

    batcher (Block): The block of the batcher.
    eval_frequency (int): The number of steps between evaluations.
    patience (int): The number of steps without a better score after which training ends. 0: no
        limit.
    max_epochs (int): The number of epochs. 0: no limit.
    max_steps (int): The number of steps. 0: no limit.
    n_embed_rows (int): How many rows the table of word forms has.
    """

    batcher: Block
    eval_frequency: int
    patience: int
    max_epochs: int
    max_steps: int
    n_embed_rows: int


def choose_sizes(model: Model, corpus: CorpusStatistics) -> Sizes:
    """Choose settings that fit the size of a corpus. If the corpus has enough words, an epoch has
    100 batches or more. The model is evaluated at least once in each epoch."""
    batcher, batch_size = choose_batcher(model, corpus)
    # The number of steps of an epoch. Without a corpus, assume a large one.
    n_steps = 2000 if model == "linear" else 200
    if corpus.doc_lengths:
        make_batches = registry.resolve({"batcher": batcher})["batcher"]
        # A batcher only needs the length of a doc, so a range of that length is enough.
        docs = [range(length) for length in corpus.doc_lengths]
        n_batches = len(list(make_batches(docs)))
        # Shuffled docs may make fewer batches than docs in order. A tenth less is safe.
        n_steps = max(1, int(n_batches * 0.9))
    # A row for each word form, within limits
    n_embed_rows = min(SPACY_EMBED_ROWS, max(MIN_EMBED_ROWS, corpus.n_word_forms))

    # A linear model has a fixed number of epochs, as it learns quickly, and is evaluated twice in
    # each. 0 is no limit.
    if model == "linear":
        return Sizes(
            batcher,
            eval_frequency=max(1, n_steps // 2),
            patience=0,
            max_epochs=8,
            max_steps=0,
            n_embed_rows=n_embed_rows,
        )

    # Other models are trained until there was no better score for `patience` steps.
    if model != "transformer":
        # Their batches grow, as in spaCy's own configs.
        batcher["size"] = {
            "@schedules": "compounding.v1",
            "start": 100,
            "stop": batch_size,
            "compound": 1.001,
        }
    # The values of spaCy's own configs, or more if an epoch is long
    least_patience = 1600
    least_steps = 20000
    if model == "hybrid":  # Its linear part is already trained when training begins.
        least_patience = 1000
        least_steps = 3000
    return Sizes(
        batcher,
        eval_frequency=min(200, n_steps),
        patience=max(least_patience, 2 * n_steps),
        max_epochs=0,
        max_steps=max(least_steps, 5 * n_steps),
        n_embed_rows=n_embed_rows,
    )


def choose_batcher(model: Model, corpus: CorpusStatistics) -> tuple[Block, int]:
    """Choose the batcher of training. A batch has about a hundredth of the words of the corpus,
    within limits. With a transformer its size is fixed, and padding counts, too. The sizes of
    transformers, the tolerance, and the limits of models other than the linear one are from spaCy's
    quickstart. Returns the block of the batcher, and the number of words of a batch."""
    if model == "transformer":
        size = 2000
        block = {
            "@batchers": "spacy.batch_by_padded.v1",
            "size": size,
            "buffer": 256,
            "discard_oversize": True,
        }
        return block, size
    min_size = 100
    max_size = 1000
    if model == "linear":
        min_size = 1
        max_size = 500
    size = max_size
    if corpus.doc_lengths:
        hundredth = sum(corpus.doc_lengths) // 100
        size = max(min_size, min(max_size, hundredth))
    block = {
        "@batchers": "spacy.batch_by_words.v1",
        "tolerance": 0.2,
        "discard_oversize": False,
        "size": size,
    }
    return block, size
