"""What training minimises: a loss over examples, down to the scores of the model."""

import warnings
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy
from spacy.strings import StringStore
from spacy.training import Example
from thinc.api import to_numpy
from thinc.types import Array1d, Array2d, Floats1d, Ints1d, Ints2d
from thinc.util import get_array_module

from .. import chain
from ..losses import LossSchedule
from ..tags import OUTSIDE, Entities, Tags
from ..types import Constraints, CostTable, Gold, Loss, LossResult, Potentials, Progress
from .incorrect_spans import AugmentedTags, augment_tags
from .targets import (
    NEGATED,
    Annotation,
    Tokens,
    Weights,
    allowed_tags,
    annotation,
    example_weights,
    first_words,
    gold_cost,
    gold_tags,
    possible_tags,
    read_incorrect_spans,
    read_presets,
    read_reference,
    token_weights,
    trim,
)


class Chains(NamedTuple):
    """The chains of a batch, without the paths that can't be. Those with incorrect spans can be,
    but are not right.

    potentials (Potentials): Their scores. K' tags, which is K unless spans are forbidden.
    tracks (Optional[AugmentedTags]): What the tags beyond K are, if there are any.
    free (bool): Whether all that the tag scheme allows is possible.
    """

    potentials: Potentials
    tracks: Optional[AugmentedTags]
    free: bool

    def expand(self, columns: Optional[Array2d]) -> Optional[Array2d]:
        """What is said of each of K tags, said of all tags. Shape: (..., K) to (..., K')"""
        if columns is None or self.tracks is None:
            return columns
        return columns[..., self.tracks.tied_to]

    def without_incorrect(self, allowed: Array2d) -> Array2d:
        """The tags that are allowed, without those that end an incorrect span. Shape: (N, K')"""
        return allowed if self.tracks is None else allowed & self.tracks.right

    def open(self, docs: Array1d, scores: Potentials) -> "Chains":
        """The chains, with all tags possible at each token of some docs.

        docs (Array1d): True for these docs. Shape: (B,)
        scores (Potentials): The scores of K tags.
        """
        if not docs.any():
            return self
        xp = get_array_module(scores.emissions)
        every = scores if self.tracks is None else self.tracks.expand(scores)
        tokens = xp.asarray(numpy.repeat(docs, scores.lengths))[:, None]
        emissions = xp.where(tokens, every.emissions, self.potentials.emissions)
        return self._replace(potentials=self.potentials._replace(emissions=emissions))


class Reading(NamedTuple):
    """What has to be known of a batch beside its scores.

    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    first_words (List[str]): What each doc is called in messages; none if all is free.
    constraints (Constraints): What the tag scheme and the docs allow.
    tracks (Optional[AugmentedTags]): The tags of the chain, if spans are forbidden.
    free (bool): Whether all that the tag scheme allows is possible.
    path (Ints1d): The gold tag of each token, -1 where it is missing. Shape: (N,)
    token_weights (Optional[Floats1d]): How much each token counts; None: 1. Shape: (N,)
    weights (Optional[Floats1d]): How much each doc counts; None: 1. Shape: (B,)
    features (Optional[Ints2d]): As in `Gold`. Shape: (N, S)
    """

    lengths: Ints1d
    first_words: List[str]
    constraints: Constraints
    tracks: Optional[AugmentedTags]
    free: bool
    path: Ints1d
    token_weights: Optional[Floats1d]
    weights: Optional[Floats1d]
    features: Optional[Ints2d]

    def constrain(self, scores: Potentials) -> Chains:
        """The chains of these scores, without the paths that can't be."""
        tracks, possible = self.tracks, self.constraints.emissions
        if tracks is None:
            return Chains(chain.constrain(scores, self.constraints), None, self.free)
        wide = chain.constrain(tracks.expand(scores), tracks.constraints)
        if possible is not None:
            wide = chain.restrict(wide, possible[:, tracks.tied_to])
        return Chains(wide, tracks, self.free)


class Objective:
    """A loss over examples.

    Makes of the docs what the loss has to know: what is possible, what is right, what
    mistakes cost and how much everything counts.
    """

    def __init__(
        self,
        name: str,
        strings: StringStore,
        loss: Union[Loss, LossSchedule],
        *,
        weights: Optional[Weights] = None,
        incorrect_spans_key: Optional[str] = None,
        sentence_boundaries: bool = False,
    ) -> None:
        """Initialize the objective.

        name (str): The component, for messages.
        strings (StringStore): What the hashes of labels mean.
        loss (Union[Loss, LossSchedule]): What is minimised.
        weights (Optional[Weights]): How much tokens and examples count.
        incorrect_spans_key (Optional[str]): Where reference docs have spans that are no
            entities.
        sentence_boundaries (bool): Whether entities end where sentences do.
        RAISES (ValueError): If tokens have weights and the loss has no use for them.
        """
        self.name = name
        self.strings = strings
        self.loss = loss
        self.weights = weights or Weights()
        self.incorrect_spans_key = incorrect_spans_key
        self.sentence_boundaries = sentence_boundaries
        self._tables: Dict[Tuple[int, Tuple[str, ...]], CostTable] = {}
        self._saved: Dict[Tuple[int, Tuple[str, ...]], CostTable] = {}
        self._warned: Set[str] = set()
        useful = any(stage.weighs_tokens or stage.cost is not None for stage in loss.stages)
        if self.weights.weighs_tokens and not useful:
            raise ValueError(
                f"{name}: weights: expected none of labels, boundaries or tokens, as the loss has "
                "no use for them; losses that have are those with a cost, Pointwise and Mixed"
            )

    def __call__(
        self,
        examples: Sequence[Example],
        scores: Potentials,
        tags: Tags,
        progress: Progress,
        features: Optional[Ints2d] = None,
    ) -> Tuple[float, Potentials]:
        """Compute the loss and its gradient.

        examples (Sequence[Example]): A batch.
        scores (Potentials): The model's potentials of the predicted docs.
        tags (Tags): The tag set.
        progress (Progress): How far training has come.
        features (Optional[Ints2d]): As in `Gold`, if the loss uses them. Shape: (N, S)
        RETURNS (Tuple[float, Potentials]): The loss for each annotated token or, where it
            is one ratio, for the batch; and the gradient of the loss as a whole.
        """
        reading = self.read(examples, tags, features)
        result, n_annotated = self.evaluate(reading, scores, tags, progress)
        return result.value / n_annotated, result.gradient

    def read(
        self, examples: Sequence[Example], tags: Tags, features: Optional[Ints2d] = None
    ) -> Reading:
        """Read all that has to be known of a batch beside its scores.

        examples (Sequence[Example]): The batch.
        tags (Tags): The tag set.
        features (Optional[Ints2d]): As in `Gold`. Shape: (N, S)
        RETURNS (Reading): What `evaluate` takes, as often as the scores change.
        """
        tokens = read_presets([eg.predicted for eg in examples])
        annotated = self._annotation(examples, tokens, tags)
        constraints, tracks, free = self._constraints(examples, tokens, tags)
        return Reading(
            lengths=tokens.lengths,
            first_words=[first_words(eg.reference) for eg in examples] if not free else [],
            constraints=constraints,
            tracks=tracks,
            free=free,
            path=gold_tags(annotated, tags),
            token_weights=token_weights(self.weights, annotated, tags, examples, tokens),
            weights=example_weights(self.weights, examples),
            features=features,
        )

    def evaluate(
        self, reading: Reading, scores: Potentials, tags: Tags, progress: Progress
    ) -> Tuple[LossResult, int]:
        """Compute the loss of what was read.

        reading (Reading): The batch, as `read` returned it.
        scores (Potentials): The model's potentials of the predicted docs.
        tags (Tags): The tag set.
        progress (Progress): How far training has come.
        RETURNS (Tuple[LossResult, int]): The loss as a whole and its gradient; and the
            number of annotated tokens or, where the loss is one ratio, 1.
        """
        loss = self.loss.at(progress)
        chains, gold = self.pose(reading, scores, tags, loss)
        result = loss.compute(chains.potentials, gold)
        if chains.tracks is not None:
            result = result._replace(gradient=chains.tracks.collapse(result.gradient))
        return result, 1 if loss.is_ratio else max(int((gold.tags >= 0).sum()), 1)

    def pose(
        self, reading: Reading, scores: Potentials, tags: Tags, loss: Loss
    ) -> Tuple[Chains, Gold]:
        """Make of what was read what a loss computes with.

        reading (Reading): The batch, as `read` returned it.
        scores (Potentials): The model's potentials of the predicted docs.
        tags (Tags): The tag set.
        loss (Loss): The loss.
        RETURNS (Tuple[Chains, Gold]): The chains without the paths that can't be, and gold.
        """
        chains = reading.constrain(scores)
        path, wide_path, left_out = self._gold_path(reading, chains, tags)
        self._warn_of_left_out(left_out, reading)
        chains = chains.open(left_out, scores)
        table, weights = self.cost_table(loss, tags), reading.token_weights
        allowed = allowed_tags(path, tags, reading.lengths)
        if chains.tracks is not None:
            allowed = chain.to_mask(path, len(tags)) if allowed is None else allowed
            out = numpy.repeat(left_out, reading.lengths)[:, None]
            allowed = chains.without_incorrect(chains.expand(allowed)) | out
        gold = Gold(
            tags=wide_path,
            allowed=allowed,
            cost=None if table is None else chains.expand(gold_cost(path, table, weights)),
            token_weights=weights,
            weights=reading.weights,
            opening=chains.expand(tags.opening),
            continuing=chains.expand(tags.continuing),
            tied_to=None if chains.tracks is None else chains.tracks.tied_to,
            features=reading.features,
        )
        return chains, _to_array_module_of(scores, gold)

    def prepare(self, tags: Tags) -> List[Optional[List[List[float]]]]:
        """Check that costs and weights fit the labels, before training begins.

        tags (Tags): The tag set.
        RETURNS (List[Optional[List[List[float]]]]): The cost table of each stage of the
            loss, to be saved with the model: see `restore`.
        RAISES (ValueError): If a cost can't be made of these tags, or a weight is that of
            none of them.
        """
        unknown = sorted(set(self.weights.labels) - {*tags.labels, OUTSIDE})
        if unknown:
            raise ValueError(
                f"{self.name}: weights: labels: expected some of {(*tags.labels, OUTSIDE)}, "
                f"got {unknown}"
            )
        tables = [self.cost_table(stage, tags) for stage in self.loss.stages]
        return [None if table is None else table.tolist() for table in tables]

    def restore(self, tables: Sequence[Optional[List[List[float]]]], tags: Tags) -> None:
        """Take over the cost tables of a saved model. They stand in where a cost can't be
        made any more, such as for want of its file.

        tables (Sequence[Optional[List[List[float]]]]): What `prepare` returned.
        tags (Tags): The tag set that they were made for.
        """
        for stage, table in zip(self.loss.stages, tables):
            if table is not None:
                self._saved[id(stage), tags.names] = numpy.asarray(table, dtype="float32")

    def cost_table(self, loss: Loss, tags: Tags) -> Optional[CostTable]:
        """The table of a loss's cost, if it has one; made once for each tag set.

        RAISES (ValueError): If the cost can't be made of these tags.
        """
        if loss.cost is None:
            return None
        key = (id(loss), tags.names)
        if key not in self._tables:
            try:
                self._tables[key] = loss.cost(tags)
            except ValueError:
                if key not in self._saved:
                    raise
                self._tables[key] = self._saved[key]
        return self._tables[key]

    def _annotation(self, examples: Sequence[Example], tokens: Tokens, tags: Tags) -> Annotation:
        """Gold entities, without white space at their ends."""
        annotated = annotation(read_reference(examples, tokens), tags, self.strings)
        if (annotated.entities.label < 0).any():
            self._refuse_negated(examples)
        trimmed = trim(annotated.entities, tokens.is_space)
        self._warn_of_unusual(annotated.entities, trimmed, examples, tokens, tags)
        return annotated._replace(entities=trimmed)

    def _refuse_negated(self, examples: Sequence[Example]) -> None:
        """What is no PERSON was annotated as a `!PERSON` in spaCy 2; not as an entity any more."""
        for eg in examples:
            for ent in eg.reference.ents:
                if ent.label_.startswith(NEGATED):
                    raise ValueError(
                        f"{self.name}: entities: expected spans that are no entities in doc.spans, "
                        f"under the incorrect_spans_key of the config, got {ent.label_!r} in "
                        f"{first_words(eg.reference)}"
                    )

    def _constraints(
        self, examples: Sequence[Example], tokens: Tokens, tags: Tags
    ) -> Tuple[Constraints, Optional[AugmentedTags], bool]:
        """What the tag scheme, the docs and the forbidden spans allow: see `Reading`."""
        possible = possible_tags(
            tokens, tags, self.strings, sentence_boundaries=self.sentence_boundaries
        )
        spans = []
        if self.incorrect_spans_key is not None:
            spans = read_incorrect_spans(examples, self.incorrect_spans_key, tags, tokens)
        constraints = tags.constraints._replace(emissions=possible)
        if not spans:
            return constraints, None, possible is None
        return constraints, augment_tags(tags, spans, len(tokens.iob)), False

    def _gold_path(
        self, reading: Reading, chains: Chains, tags: Tags
    ) -> Tuple[Ints1d, Ints1d, Array1d]:
        """The gold tags, and what they are among all tags; -1 where missing: everywhere in a
        doc whose gold is not possible. Then which docs these are. Shapes: (N,), (N,), (B,)"""
        path, lengths = reading.path, reading.lengths
        if chains.free:
            return path, path, numpy.zeros(len(lengths), dtype=bool)
        allowed = allowed_tags(path, tags, lengths)
        if allowed is None:
            allowed = chain.to_mask(path, len(tags))
        allowed = chains.without_incorrect(chains.expand(allowed))
        found = chain.best_path(chain.restrict(chains.potentials, allowed))
        left_out = ~numpy.isfinite(to_numpy(found.scores))
        known = (path >= 0) & ~numpy.repeat(left_out, lengths)
        wide_path = numpy.where(known, to_numpy(found.tags), -1)
        return numpy.where(known, path, -1), wide_path, left_out

    def _warn_of_left_out(self, docs: Array1d, reading: Reading) -> None:
        for i in numpy.flatnonzero(docs).tolist():
            warnings.warn(
                f"{self.name}: left out of training, as its entities contradict preset ones, cross "
                "a sentence boundary or are among the incorrect spans: "
                f"{reading.first_words[i]}",
                stacklevel=2,
            )

    def _warn_of_unusual(
        self,
        entities: Entities,
        trimmed: Entities,
        examples: Sequence[Example],
        tokens: Tokens,
        tags: Tags,
    ) -> None:
        """Warn, once each, of gold that is not learned as it stands."""
        in_space = ~numpy.isin(entities.begin, trimmed.begin)
        in_space |= ~numpy.isin(entities.end, trimmed.end)
        cases = {
            "white space at an end of an entity is taken off it": in_space,
            f"entities of other labels than {tags.labels} count as O": entities.label < 0,
        }
        for message, which in cases.items():
            if which.any() and message not in self._warned:
                self._warned.add(message)
                token = entities.begin[which][0]
                doc = numpy.searchsorted(numpy.cumsum(tokens.lengths), token, side="right")
                words = first_words(examples[int(doc)].reference)
                warnings.warn(f"{self.name}: {message}, as in: {words}", stacklevel=2)


def _to_array_module_of(scores: Potentials, gold: Gold) -> Gold:
    """Put gold where the scores are."""
    asarray = get_array_module(scores.emissions).asarray
    return Gold._make(None if array is None else asarray(array) for array in gold)
