"""A noisy-channel model of annotators, which infers true tags from annotations with errors.

An annotator, such as a crowd worker, a language model or a gazetteer, has tagged texts. Its answers
are o, and the true path y is unknown. The annotator's errors are described by a table: the
probability of each observed tag, given the true tag of the token and the annotator's tag of the
previous token:

    p(o | y)  =  prod_t  table[state(o_{t-1}), y_t, o_t]

The state is the label of the annotator's entity that contains the previous token, or none. An
entity that the annotator misses therefore counts as a single error, instead of one error per token.
Given the true path, annotators make errors independently of each other. For a chain p(y | x),
Bayes' theorem gives

    p(y | x, o_1, o_2, ...)  =  exp(s(y)) p(o_1 | y) p(o_2 | y) ...  /  Z(o_1, o_2, ...)

The logarithm of p(o_1 | y) p(o_2 | y) ... is a sum of scores, one for each token and tag: the
evidence. With the evidence added to its emissions, the chain computes the exact posterior given the
text and the answers.

Tables are estimated from texts with known true tags and, by expectation maximisation, from the
other texts. Tables have many rows, most of them rarely used. Each row is therefore smoothed with
pseudo-counts, distributed like the annotator's errors averaged over all labels.

Dawid and Skene (1979): Maximum likelihood estimation of observer error-rates using the EM
algorithm. Rodrigues, Pereira and Ribeiro (2014): Sequence labeling with multiple annotators, for
the chain. Simpson and Gurevych (2019): A Bayesian approach for sequence tagging with crowds, for
tables that depend on the annotator's previous tag (the paper's model "seq").

In shapes, N is the number of tokens in a batch, B the number of sequences, K the number of tags in
the chain, L the number of labels, C the number of observed tags, which are IOB2 tags, and S = L + 1
the number of states.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy
from thinc.types import Array3d, Floats1d, Floats2d, Floats3d, Ints1d, Ints2d, Ints3d

from .. import chain
from ..tags import Tags, has_token_before
from ..types import Potentials

N_ADDED = 5.0
"""The number of pseudo-counts added to each row of a table. They are distributed as in the table
that is tied across labels."""

N_START = 1.0
"""The number of pseudo-counts added for each kind of row at the start of estimation. They describe
an annotator who mostly agrees with the truth."""

AGREES_AT_START = 0.8
"""The fraction of these pseudo-counts that agree with the truth."""

TOLERANCE = 1e-4
"""Expectation maximisation ends when the log-likelihood per token increases by less than this, in
nats."""

# The relation of an observed tag to the true tag of its token
OUTSIDE, SAME, OTHER, CONTINUES = range(4)
"""The observed tag is O, begins an entity with the true label, begins an entity with another label,
or continues an entity. If the true tag is O, all labels count as the true label."""

IMPOSSIBLE = -1
"""The observed tag continues an entity that the annotator didn't begin."""

N_RELATIONS = 4

N_STATE_KINDS = 3
"""The number of kinds of states: the previous token is outside entities, in an entity with the true
label, or in an entity with another label."""


class Answers(NamedTuple):
    """An annotator's answers for the texts of a batch.

    tags (Ints1d): The observed IOB2 tag of each token, or -1 if there is no answer. Shape: (N,)
    states (Ints1d): 1 + the label of the entity that contains the previous token, or 0 if there is
        none. Shape: (N,)
    """

    tags: Ints1d
    states: Ints1d


class Batch(NamedTuple):
    """Texts with answers, and a model's distribution over their paths.

    potentials (Potentials): The model's scores.
    tags (Tags): The tags of the model's chain.
    answers (Sequence[Answers]): Each annotator's answers.
    doc_of_sequence (Ints1d): The doc of each sequence. Shape: (B,)
    """

    potentials: Potentials
    tags: Tags
    answers: Sequence[Answers]
    doc_of_sequence: Ints1d


class Ties(NamedTuple):
    """Which entries of a table are tied, regardless of their labels.

    rows (Ints2d): The kind of each row, by state and true tag. Shape: (S, C)
    relations (Ints3d): The relation of each observed tag to the true tag: see `OUTSIDE`.
        Shape: (S, C, C)
    """

    rows: Ints2d
    relations: Ints3d

    @property
    def kinds(self) -> Array3d:
        """The kind of each entry, as an index computed from its row kind and relation. Shape: (S,
        C, C)"""
        return self.rows[:, :, None] * N_RELATIONS + self.relations

    @property
    def is_possible(self) -> Array3d:
        """A mask that is False for entries that are always 0. Shape: (S, C, C)"""
        return self.relations != IMPOSSIBLE


class Estimate(NamedTuple):
    """The estimated tables of all annotators.

    tables (list[Floats3d]): Each annotator's table. Shape: (S, C, C)
    counts (list[Floats3d]): For each annotator, the expected number of tokens with each state, true
        tag and observed tag, including tokens with a known true tag. Shape: (S, C, C)
    objective (list[float]): The log-likelihood of the answers and the pseudo-counts in each
        iteration, in nats. It never decreases.
    """

    tables: list[Floats3d]
    counts: list[Floats3d]
    objective: list[float]


def make_answers(tags: Ints1d, lengths: Ints1d) -> Answers:
    """Create answers from observed tags. An entity that continues in the next sequence, or after a
    token without an answer, is split there.

    tags (Ints1d): The observed IOB2 tag of each token, or -1 if there is no answer. Shape: (N,)
    lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
    """
    # O is tag 0. For label l, tag 1 + 2 l begins an entity, and tag 2 + 2 l continues it.
    one_plus_label = numpy.where(tags > 0, (tags + 1) // 2, 0)
    states = numpy.zeros(len(tags), dtype="int64")
    states[1:] = one_plus_label[:-1]
    states[~has_token_before(lengths)] = 0
    is_inside = (tags > 0) & (tags % 2 == 0)
    begins_anew = is_inside & (states != one_plus_label)
    return Answers(numpy.where(begins_anew, tags - 1, tags), states)


def add_evidence(
    potentials: Potentials, tags: Tags, answers: Sequence[Answers], tables: Sequence[Floats3d]
) -> Potentials:
    """Add the evidence of the answers to the scores of a model. With these scores, the chain
    computes the posterior given the text and the answers.

    potentials (Potentials): The model's scores.
    tags (Tags): The tags of the model's chain.
    answers (Sequence[Answers]): Each annotator's answers.
    tables (Sequence[Floats3d]): Each annotator's table. Shape: (S, C, C)
    RETURNS (Potentials): The scores, including the evidence.
    RAISES (ValueError): If the shape of a table doesn't match the labels, or answers have the wrong
        number of tokens.
    """
    evidence = numpy.zeros((len(potentials.emissions), 2 * len(tags.labels) + 1))
    for annotator_answers, table in zip(answers, tables, strict=True):
        _check_shapes(annotator_answers, table, evidence)
        evidence += log_evidence(annotator_answers, table)
    # Each tag of the chain gets the evidence of the corresponding IOB2 tag.
    emissions = potentials.emissions + evidence[:, observed_tag_of(tags)]
    return potentials._replace(emissions=emissions.astype(potentials.emissions.dtype))


def _check_shapes(answers: Answers, table: Floats3d, evidence: Floats2d) -> None:
    """Check that the shapes of the answers and the table match the evidence of shape (N, C)."""
    n_tokens, n_observed = evidence.shape
    shape = ((n_observed + 1) // 2, n_observed, n_observed)
    if table.shape != shape:
        raise ValueError(f"tables: expected the shape {shape}, got {table.shape}")
    if len(answers.tags) != n_tokens:
        raise ValueError(f"answers: expected {n_tokens} tokens, got {len(answers.tags)}")


def log_evidence(answers: Answers, table: Floats3d) -> Floats2d:
    """Compute the log-probability of an annotator's answers given each true tag. It is 0 for tokens
    without an answer. Shape: (N, C)"""
    has_answer = answers.tags >= 0
    evidence = numpy.zeros((len(answers.tags), table.shape[1]))
    probs = table[answers.states[has_answer], :, answers.tags[has_answer]]
    with numpy.errstate(divide="ignore"):  # log 0 for tags that the annotator never assigns
        evidence[has_answer] = numpy.log(probs)
    return evidence


def observed_tag_of(tags: Tags) -> Ints1d:
    """Return the IOB2 tag that corresponds to each tag of a chain. Shape: (K,)"""
    begins = 1 + 2 * tags.label_of
    tags_of_entities = numpy.where(tags.opening, begins, begins + 1)
    return numpy.where(tags.label_of >= 0, tags_of_entities, 0)


@lru_cache(maxsize=8)
def ties(n_labels: int) -> Ties:
    """Return which entries of a table are tied. Rows are tied if their true tags have the same
    prefix (O, B or I) and their states are of the same kind: outside the annotator's entities, in
    an entity with the true label, or in an entity with another label. `n_labels` is L."""
    observed = Tags(map(str, range(n_labels)), "IOB2")
    label = observed.label_of  # (C,)
    is_outside = label < 0
    label_of_state = numpy.arange(-1, n_labels)  # (S,)

    # By state and true tag: shape (S, C)
    prefix = numpy.where(is_outside, 0, numpy.where(observed.opening, 1, 2))
    has_same_label = (label_of_state[:, None] == label) | is_outside
    relation_of_state = numpy.where(has_same_label, 1, 2)
    relation_of_state[0] = 0
    rows = prefix * N_STATE_KINDS + relation_of_state

    # By true tag and observed tag: shape (C, C)
    is_same = (label[:, None] == label) | is_outside[:, None]
    relations_of_tags = numpy.where(is_same, SAME, OTHER)
    relations_of_tags[:, is_outside] = OUTSIDE
    relations = numpy.repeat(relations_of_tags[None], n_labels + 1, axis=0)
    # By state and observed tag: an entity continues only with its label.
    is_label_of_state = label_of_state[:, None] == label  # (S, C)
    continues = observed.continuing
    relations[:, :, continues] = numpy.where(
        is_label_of_state[:, None, continues], CONTINUES, IMPOSSIBLE
    )
    return Ties(rows, relations)


def count_tags(answers: Answers, probs: Floats2d) -> Floats3d:
    """Count how often an annotator assigns each tag, by state and true tag.

    answers (Answers): The annotator's answers.
    probs (Floats2d): The probability of each true IOB2 tag at each token. Shape: (N, C)
    RETURNS (Floats3d): The expected counts. Shape: (S, C, C)
    """
    n_observed = probs.shape[1]  # the number of IOB2 tags, C = 2 L + 1
    n_states = (n_observed + 1) // 2  # S = L + 1
    has_answer = answers.tags >= 0
    # Combine the state and the observed tag of each token in one number, to count both at once
    pair = answers.states[has_answer] * n_observed + answers.tags[has_answer]
    counts = numpy.zeros((n_observed, n_states * n_observed))
    for true_tag, probs_of_tag in enumerate(probs[has_answer].T):
        counts[true_tag] = numpy.bincount(pair, probs_of_tag, n_states * n_observed)
    # From [true, state, observed] to [state, true, observed]
    return counts.reshape(n_observed, n_states, n_observed).transpose(1, 0, 2)


def estimate_tables(
    batches: Sequence[Batch], known_counts: Sequence[Floats3d], *, n_iterations: int = 20
) -> Estimate:
    """Estimate the table of each annotator by expectation maximisation.

    Tables that are tied across labels are estimated first. They determine the distribution of the
    pseudo-counts that are added to the rows of the final tables.

    batches (Sequence[Batch]): Texts with answers but unknown true tags.
    known_counts (Sequence[Floats3d]): For each annotator, the counts from texts with known true
        tags (see `count_tags`), or zeros if there are no such texts. Shape: (S, C, C)
    n_iterations (int): The maximum number of iterations, both for the tied tables and for the final
        tables.
    RETURNS (Estimate): The estimated tables.
    """
    tied = ties(known_counts[0].shape[0] - 1)
    start = _start_counts(tied)
    estimators: list[TableEstimator] = []
    for annotator, counts in enumerate(known_counts):
        frequencies = counts.sum(axis=(0, 1)) + _count_observed(batches, annotator, len(counts[0]))
        estimators.append(TableEstimator(start, tied, _spread(frequencies, tied)))
    tied_estimate = _maximise_expectation(batches, known_counts, estimators, n_iterations)

    estimators = [TableEstimator(N_ADDED * table, tied) for table in tied_estimate.tables]
    return _maximise_expectation(batches, known_counts, estimators, n_iterations)


class TableEstimator(NamedTuple):
    """Computes an annotator's most probable table from counts.

    added (Floats3d): The pseudo-counts. Shape: (S, C, C)
    tied (Ties): Which entries of the table are tied.
    spread (Floats3d | None): How the probability of tied entries is distributed over the
        observed tags of a row. If None, each row is estimated separately. Shape: (S, C, C)
    """

    added: Floats3d
    tied: Ties
    spread: Floats3d | None = None

    def table(self, counts: Floats3d) -> Floats3d:
        """Compute the table from observed counts. Shapes: (S, C, C) to (S, C, C)"""
        total = counts + self.added
        if self.spread is not None:
            # Sum the counts of tied entries, and divide each sum among its entries. Impossible
            # entries get a kind of their own, the last one.
            n_kinds = (self.tied.rows.max() + 1) * N_RELATIONS
            kinds = numpy.where(self.tied.is_possible, self.tied.kinds, n_kinds)
            total_of_kind = numpy.bincount(kinds.ravel(), total.ravel(), n_kinds + 1)
            total = total_of_kind[kinds] * self.spread
        total = numpy.where(self.tied.is_possible, total, 0.0)
        return total / total.sum(axis=-1, keepdims=True)

    def log_prior(self, table: Floats3d) -> float:
        """Compute the log-likelihood of the pseudo-counts, in nats."""
        has_counts = self.added > 0
        return float((self.added[has_counts] * numpy.log(table[has_counts])).sum())


def _maximise_expectation(
    batches: Sequence[Batch],
    known_counts: Sequence[Floats3d],
    estimators: Sequence[TableEstimator],
    n_iterations: int,
) -> Estimate:
    """Estimate tables by expectation maximisation, starting from known counts: see
    `estimate_tables`."""
    n_tokens = sum(len(batch.potentials.emissions) for batch in batches)
    counts = list(known_counts)
    objective: list[float] = []
    tables = [estimator.table(total) for estimator, total in zip(estimators, counts)]
    for _ in range(n_iterations):
        # E step: compute the expected counts and the objective, given the tables.
        expected = expect_counts(batches, tables)
        log_likelihood = expected.log_likelihood
        for known, estimator, table in zip(known_counts, estimators, tables):
            is_known = known > 0
            log_likelihood += float((known[is_known] * numpy.log(table[is_known])).sum())
            log_likelihood += estimator.log_prior(table)
        objective.append(log_likelihood)
        if len(objective) > 1 and objective[-1] - objective[-2] < TOLERANCE * n_tokens:
            break
        # M step: compute the tables from known and expected counts.
        counts = [known + new for known, new in zip(known_counts, expected.counts)]
        tables = [estimator.table(total) for estimator, total in zip(estimators, counts)]
    return Estimate(tables, counts, objective)


class Expected(NamedTuple):
    """The expected counts, given the tables.

    counts (list[Floats3d]): The expected counts of each annotator. Shape: (S, C, C)
    log_likelihood (float): The log-probability of all answers given the texts, in nats.
    """

    counts: list[Floats3d]
    log_likelihood: float


def expect_counts(batches: Sequence[Batch], tables: Sequence[Floats3d]) -> Expected:
    """Compute how often each annotator is expected to assign each tag, by state and true tag.

    batches (Sequence[Batch]): Texts with answers.
    tables (Sequence[Floats3d]): Each annotator's table. Shape: (S, C, C)
    RETURNS (Expected): The expected counts.
    """
    counts = [numpy.zeros(table.shape) for table in tables]
    log_likelihood = 0.0
    for batch in batches:
        with_evidence = add_evidence(batch.potentials, batch.tags, batch.answers, tables)
        posterior = chain.forward_backward(with_evidence)
        log_z, _ = posterior.log_partition()
        log_z_of_text, _ = chain.log_partition(batch.potentials)
        log_likelihood += float(log_z.sum(dtype="float64") - log_z_of_text.sum(dtype="float64"))
        # For each IOB2 tag, sum the probabilities of the corresponding tags of the chain
        n_observed = tables[0].shape[1]
        counts_as = observed_tag_of(batch.tags)[:, None] == numpy.arange(n_observed)
        probs = posterior.marginals() @ counts_as
        for annotator, answers in enumerate(batch.answers):
            counts[annotator] += count_tags(answers, probs)
    return Expected(counts, log_likelihood)


def _count_observed(batches: Sequence[Batch], annotator: int, n_observed: int) -> Floats1d:
    """Count how often an annotator assigns each tag. Shape: (C,)"""
    counts = numpy.zeros(n_observed)
    for batch in batches:
        tags = batch.answers[annotator].tags
        counts += numpy.bincount(tags[tags >= 0], minlength=n_observed)
    return counts


def _spread(frequencies: Floats1d, tied: Ties) -> Floats3d:
    """Distribute the probability of tied entries over the observed tags of each row, in proportion
    to 1 + the number of times that the annotator assigns each tag. Shapes: (C,) to (S, C, C)"""
    spread = numpy.zeros(tied.relations.shape)
    for relation in range(N_RELATIONS):
        is_alike = tied.relations == relation
        weights = numpy.where(is_alike, frequencies + 1, 0.0)
        sums = weights.sum(axis=-1, keepdims=True)
        spread += numpy.divide(weights, sums, out=numpy.zeros_like(spread), where=sums > 0)
    return spread


def _start_counts(tied: Ties) -> Floats3d:
    """Create the pseudo-counts of an annotator who mostly agrees with the truth. They add up to
    `N_START` for each kind of row. Shape: (S, C, C)"""
    counts = numpy.zeros(tied.relations.shape)
    for row in range(tied.rows.max() + 1):
        prefix, state = divmod(row, N_STATE_KINDS)
        relations_of_row = tied.relations[tied.rows == row]
        if not len(relations_of_row):
            continue  # with a single label, there are no other labels
        # An agreeing tag is O if the true tag is O, and begins an entity with the true label if the
        # true tag begins one. Inside a true entity, it continues the annotator's entity, if any,
        # and is O otherwise.
        agreeing = (OUTSIDE, SAME, CONTINUES if state else OUTSIDE)[prefix]
        possible_relations = numpy.unique(relations_of_row[relations_of_row != IMPOSSIBLE])
        for relation in possible_relations:
            is_alike = (tied.rows == row)[:, :, None] & (tied.relations == relation)
            share = AGREES_AT_START
            if relation != agreeing:
                share = (1 - AGREES_AT_START) / (len(possible_relations) - 1)
            counts[is_alike] = N_START * share / is_alike.sum()
    return counts
