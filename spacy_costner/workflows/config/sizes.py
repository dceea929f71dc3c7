"""Settings that depend on the size of a corpus: embedding rows, batches, and epochs."""

from dataclasses import dataclass

from spacy.util import registry

from .blocks import Block
from .corpus_statistics import SPACY_EMBED_ROWS, CorpusStatistics
from .init_options import Model

MIN_EMBED_ROWS = 1000
"""The minimum number of rows of the word form embeddings."""


@dataclass(frozen=True)
class Sizes:
    """Settings that depend on the size of a corpus. All except the last belong to [training].

    batcher (Block): The block of the batcher.
    eval_frequency (int): The number of steps between evaluations.
    patience (int): The number of steps without improvement after which training ends, or 0 for no
        limit.
    max_epochs (int): The maximum number of epochs, or 0 for no limit.
    max_steps (int): The maximum number of steps, or 0 for no limit.
    n_embed_rows (int): The number of rows of the word form embeddings.
    """

    batcher: Block
    eval_frequency: int
    patience: int
    max_epochs: int
    max_steps: int
    n_embed_rows: int


def choose_sizes(model: Model, corpus: CorpusStatistics) -> Sizes:
    """Choose settings based on the size of a corpus. If the corpus is large enough, an epoch has at
    least 100 batches. The model is evaluated at least once per epoch."""
    batcher, batch_size = choose_batcher(model, corpus)
    # The number of steps per epoch. Without a corpus, assume a large one.
    n_steps = 2000 if model == "linear" else 200
    if corpus.doc_lengths:
        make_batches = registry.resolve({"batcher": batcher})["batcher"]
        # The batcher only uses the lengths of docs, so ranges of the same lengths are enough.
        docs = [range(length) for length in corpus.doc_lengths]
        n_batches = len(list(make_batches(docs)))
        # Shuffling the docs may result in fewer batches, so reduce the number by 10 %.
        n_steps = max(1, int(n_batches * 0.9))
    # One row per word form, within limits
    n_embed_rows = min(SPACY_EMBED_ROWS, max(MIN_EMBED_ROWS, corpus.n_word_forms))

    # A linear model learns quickly, so it is trained for a fixed number of epochs and evaluated
    # twice per epoch. 0 means no limit.
    if model == "linear":
        return Sizes(
            batcher,
            eval_frequency=max(1, n_steps // 2),
            patience=0,
            max_epochs=8,
            max_steps=0,
            n_embed_rows=n_embed_rows,
        )

    # Other models are trained until there is no improvement for `patience` steps.
    if model != "transformer":
        # Use growing batches, as in spaCy's default configs.
        batcher["size"] = {
            "@schedules": "compounding.v1",
            "start": 100,
            "stop": batch_size,
            "compound": 1.001,
        }
    # The values in spaCy's default configs, which are increased for long epochs
    least_patience = 1600
    least_steps = 20000
    if model == "hybrid":  # the linear part is already trained
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
    """Choose the batcher for training. Each batch contains about a hundredth of the words in the
    corpus, within limits. For transformers, the batch size is fixed and includes padding. The
    settings for transformers, the tolerance, and the limits for nonlinear models are taken from
    spaCy's quickstart. Returns the block of the batcher and the number of words per batch."""
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
