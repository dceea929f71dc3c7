"""Compare the chain with pytorch-crf and torch-struct: loss with gradient, and Viterbi.

    OMP_NUM_THREADS=1 python benchmarks/chain_speed.py [turns]

Each library is used as documented: pytorch-crf and torch-struct on padded batches with a mask or
lengths, ours on ragged batches. Lengths are sampled uniformly from half the mean to one and a half
times the mean, and are the same for all libraries. The gradient is with respect to emissions,
transitions, start and end scores. The potentials of torch-struct are for pairs of tags. Building
them from emissions and transitions is part of the task. Converting gold tags to its parts, and its
parts to tags, is not.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import torch
from timing import compare
from torch_struct import LinearChainCRF
from torchcrf import CRF

from spacy_costner import chain
from spacy_costner.losses.likelihood import sequential
from spacy_costner.types import Gold, Potentials

SHAPES = (
    (1, 25, 17),
    (32, 25, 17),
    (128, 25, 17),
    (128, 25, 9),
    (1, 1000, 17),
    (8, 400, 17),
    (32, 25, 73),
    (32, 25, 145),
    (32, 25, 265),
)
"""The number of sequences, mean length and number of tags of each batch: B, mean T, K."""

OURS = "spacy-costner"
PYTORCH_CRF = "pytorch-crf"
TORCH_STRUCT = "torch-struct"
MOST_BYTES = 2**28
"""The maximum size of the tensor with all terms of torch-struct's matrix products: it multiplies
the K x K matrices of neighbouring steps."""


class Tasks(NamedTuple):
    """The timed tasks of a library."""

    loss: Callable[[], Any]
    viterbi: Callable[[], Any]


class Batch(NamedTuple):
    """The same batch for all libraries: ragged for ours, padded for the peers."""

    potentials: Potentials
    gold: Gold
    emissions: torch.Tensor
    tags: torch.Tensor
    mask: torch.Tensor
    lengths: torch.Tensor


def random_batch(n_sequences: int, mean_length: int, n_tags: int) -> Batch:
    """Make random scores and tags for sequences of random lengths."""
    rng = numpy.random.default_rng(0)
    lengths = numpy.full(n_sequences, mean_length)
    if n_sequences > 1:
        lengths = rng.integers(mean_length // 2, mean_length * 3 // 2 + 1, size=n_sequences)
    emissions = rng.normal(size=(int(lengths.sum()), n_tags)).astype("float32")
    transitions = rng.normal(size=(n_tags, n_tags)).astype("float32")
    start = rng.normal(size=n_tags).astype("float32")
    end = rng.normal(size=n_tags).astype("float32")
    tags = rng.integers(n_tags, size=len(emissions))

    # True where the padded array contains a token. (sequences, longest length)
    mask = numpy.arange(lengths.max()) < lengths[:, None]
    padded_emissions = numpy.zeros((*mask.shape, n_tags), dtype="float32")
    padded_tags = numpy.zeros(mask.shape, dtype="int64")
    padded_emissions[mask] = emissions
    padded_tags[mask] = tags
    return Batch(
        potentials=Potentials(emissions, transitions, start, end, lengths.astype("int32")),
        gold=Gold(tags),
        emissions=torch.tensor(padded_emissions, requires_grad=True),
        tags=torch.tensor(padded_tags),
        mask=torch.tensor(mask),
        lengths=torch.tensor(lengths),
    )


def our_tasks(batch: Batch) -> Tasks:
    """Make the tasks for our chain."""
    return Tasks(
        loss=lambda: sequential(batch.potentials, batch.gold),
        viterbi=lambda: chain.best_path(batch.potentials),
    )


def pytorch_crf_tasks(batch: Batch) -> Tasks:
    """Make the tasks for pytorch-crf."""
    crf = CRF(batch.emissions.shape[2], batch_first=True)
    _set_parameters(crf, batch.potentials)

    def loss() -> torch.Tensor:
        batch.emissions.grad = None
        crf.zero_grad()
        value = -crf(batch.emissions, batch.tags, mask=batch.mask)
        value.backward()
        return value

    def viterbi() -> object:
        with torch.no_grad():
            return crf.decode(batch.emissions, mask=batch.mask)

    return Tasks(loss, viterbi)


def torch_struct_tasks(batch: Batch) -> Tasks | None:
    """Make the tasks for torch-struct. Returns None if they would use too much memory."""
    n_sequences, longest, n_tags = batch.emissions.shape
    n_terms = n_sequences * longest / 2 * n_tags**3
    if 4 * n_terms > MOST_BYTES:
        return None
    # Only the parameters are used, because torch-struct doesn't have any.
    crf = CRF(n_tags, batch_first=True)
    _set_parameters(crf, batch.potentials)
    parts = LinearChainCRF.struct.to_parts(batch.tags, n_tags, lengths=batch.lengths).float()
    steps = torch.arange(longest - 1)[:, None, None]
    # A step is a pair of neighbouring tokens. The first step includes the start scores and the
    # emissions of the first token, the last step the end scores.
    is_first = steps == 0
    is_last = steps == (batch.lengths - 2)[:, None, None, None]

    def distribution() -> LinearChainCRF:
        """Make the distribution over paths, from the score of each pair of tags at each step."""
        # Shape: (sequences, steps, tag of the second token, tag of the first token)
        edges = batch.emissions[:, 1:, :, None] + crf.transitions.T.contiguous()
        edges = edges + is_first * (batch.emissions[:, 0] + crf.start_transitions)[:, None, None]
        edges = edges + is_last * crf.end_transitions[:, None]
        return LinearChainCRF(edges, lengths=batch.lengths)

    def loss() -> torch.Tensor:
        batch.emissions.grad = None
        crf.zero_grad()
        value = -distribution().log_prob(parts).sum()
        value.backward()
        return value

    return Tasks(loss, lambda: distribution().argmax)


def _set_parameters(crf: CRF, potentials: Potentials) -> None:
    """Set the transition, start and end scores of a pytorch-crf CRF to ours."""
    with torch.no_grad():
        crf.transitions.copy_(torch.tensor(potentials.transitions))
        crf.start_transitions.copy_(torch.tensor(potentials.start))
        crf.end_transitions.copy_(torch.tensor(potentials.end))


def check(tasks: dict[str, Tasks]) -> None:
    """Check that all libraries compute the same loss."""
    value = tasks[OURS].loss().value
    for name in (PYTORCH_CRF, TORCH_STRUCT):
        if name in tasks:
            numpy.testing.assert_allclose(tasks[name].loss().item(), value, rtol=1e-4)


def print_table(title: str, task: str, turns: int) -> None:
    """Print the table of a task, "loss" or "viterbi": a row for each shape of a batch."""
    print(f"\n## {title}\n")
    print("Our time, and the peers' times as multiples of ours: median and quartiles over turns.\n")
    print(f"| (B, mean T, K) | {OURS} | {PYTORCH_CRF} | {TORCH_STRUCT} |")
    print("|---|---|---|---|")
    for shape in SHAPES:
        batch = random_batch(*shape)
        tasks = {OURS: our_tasks(batch), PYTORCH_CRF: pytorch_crf_tasks(batch)}
        tasks_of_torch_struct = torch_struct_tasks(batch)
        if tasks_of_torch_struct is not None:
            tasks[TORCH_STRUCT] = tasks_of_torch_struct
        check(tasks)

        timed = compare({name: getattr(tasks[name], task) for name in tasks}, OURS, turns)
        cells = [str(shape), f"{timed[OURS].seconds * 1e6:,.0f} µs"]
        for name in (PYTORCH_CRF, TORCH_STRUCT):
            if name not in timed:
                cells.append("too large")
                continue
            _, ratio, low, high = timed[name]
            cells.append(f"{ratio:.0f} ({low:.0f} to {high:.0f})")
        print(f"| {' | '.join(cells)} |", flush=True)


def main(turns: int = 15) -> None:
    """Print a table for each task."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torch_struct")
    print_table("Chain: loss and gradient", "loss", turns)
    print_table("Chain: Viterbi", "viterbi", turns)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
