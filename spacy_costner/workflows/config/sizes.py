"""Settings that depend on the size of a corpus: embedding rows, batches, and epochs."""

import math
from dataclasses import dataclass
from itertools import takewhile

from ...training.eval_frequency import UNCERTAIN
from ...training.stages import passes_after_steps, resolve_batcher
from .blocks import Block
from .corpus_statistics import SPACY_EMBED_ROWS, CorpusStatistics
from .init_options import Model
from .loss_blocks import FIRST_EPOCHS, count_needed_epochs

MIN_EMBED_ROWS = 1000
"""The minimum number of rows of the word form embeddings."""

FIRST_STEPS = 500
"""The approximate number of steps for the first loss in a schedule, if the number of epochs isn't
limited."""


@dataclass(frozen=True)
class Sizes:
    """Settings that depend on the size of a corpus. All except the last two belong to [training].

    batcher (Block): The block of the batcher.
    eval_frequency (int): The number of steps between evaluations.
    patience (int): The number of steps without improvement after which training ends, or 0 for no
        limit.
    max_epochs (int): The maximum number of epochs, or 0 for no limit.
    max_steps (int): The maximum number of steps, or 0 for no limit.
    n_epochs (int): The number of epochs that the losses of a schedule share. Training has at least
        this number of epochs, unless it ends early.
    n_embed_rows (int): The number of rows of the word form embeddings.
    """

    batcher: Block
    eval_frequency: int
    patience: int
    max_epochs: int
    max_steps: int
    n_epochs: int
    n_embed_rows: int


def choose_sizes(model: Model, corpus: CorpusStatistics, *, n_losses: int = 1) -> Sizes:
    """Choose settings based on the size of a corpus. If the corpus is large enough, an epoch has at
    least 100 batches. The model is evaluated at least once per epoch. Training is long enough for
    each loss of a schedule."""
    batcher, batch_size = choose_batcher(model, corpus)
    # The number of steps per epoch. Without a corpus, assume a large one.
    n_steps = 2000 if model == "linear" else 200
    # Batchers only use the lengths of docs, so ranges of the same lengths are enough.
    docs = [range(length) for length in corpus.doc_lengths]
    if docs:
        make_batches = resolve_batcher({"batcher": batcher})
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
            n_epochs=8,
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
    eval_frequency = min(200, n_steps)
    # An epoch has at least `eval_frequency` steps, because the model is evaluated in each epoch.
    first_epochs = max(FIRST_EPOCHS, math.ceil(FIRST_STEPS / eval_frequency))
    n_epochs = count_needed_epochs(n_losses, first_epochs)
    # Count the steps with the growing batches, as the first epochs have more of them than the later
    # ones. Without a corpus, there are none to count. If long docs are discarded, a pass takes more
    # than one epoch, and almost endlessly many if almost all are discarded.
    make_batches = resolve_batcher({"batcher": batcher})
    passes = passes_after_steps(docs, make_batches, max_epochs=4 * n_epochs)
    n_needed_steps = sum(1 for _ in takewhile(lambda n_passes: n_passes < n_epochs, passes)) + 1
    # In a different document order, there may be more steps.
    n_needed_steps += math.ceil(n_needed_steps / UNCERTAIN)
    return Sizes(
        batcher,
        eval_frequency=eval_frequency,
        patience=max(least_patience, 2 * n_steps),
        max_epochs=0,
        max_steps=max(least_steps, n_needed_steps),
        n_epochs=n_epochs,
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
