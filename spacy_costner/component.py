"""The pipeline component: where docs, layers and losses meet."""

import warnings
from itertools import islice
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import numpy
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.util import check_lexeme_norms
from spacy.vocab import Vocab
from thinc.api import Config, Model, Optimizer, set_dropout_rate, to_numpy
from thinc.types import Array1d, Array2d, Ints1d

from . import chain
from .gold import (
    Tokens,
    annotation,
    docs_with,
    first_words,
    gold_tags,
    make_gold,
    possible_tags,
    read_docs,
    read_reference,
    trim,
)
from .tags import Entities, Tags
from .types import Gold, Loss, Potentials

DEFAULT_CONFIG = Config().from_str(
    """
[cost_sensitive_ner]
scheme = "BILUO"
sentence_boundaries = false

[cost_sensitive_ner.model]
@architectures = "spacy_costner.LinearChainCRF.v1"
nO = null

[cost_sensitive_ner.model.tok2vec]
@architectures = "spacy.HashEmbedCNN.v2"
pretrained_vectors = null
width = 96
depth = 4
embed_size = 2000
window_size = 1
maxout_pieces = 3
subword_features = true

[cost_sensitive_ner.loss]
@losses = "spacy_costner.Sequential.v1"

[cost_sensitive_ner.scorer]
@scorers = "spacy.ner_scorer.v1"
"""
)["cost_sensitive_ner"]


@Language.factory(
    "cost_sensitive_ner",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config=DEFAULT_CONFIG,
    default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
)
def make_cost_sensitive_ner(
    nlp: Language,
    name: str,
    model: Model[List[Doc], Potentials],
    loss: Loss,
    scheme: str,
    sentence_boundaries: bool,
    scorer: Optional[Callable],
) -> "CostSensitiveNER":
    """Build a named entity recogniser that is trained for what mistakes cost.

    model (Model[List[Doc], Potentials]): From docs to the scores of a chain.
    loss (Loss): What training minimises.
    scheme (str): How tags write entities down, "BILUO" or "IOB2".
    sentence_boundaries (bool): Whether entities end where sentences do.
    scorer (Optional[Callable]): The scoring method.
    """
    return CostSensitiveNER(
        nlp.vocab,
        model,
        name,
        loss=loss,
        scheme=scheme,
        sentence_boundaries=sentence_boundaries,
        scorer=scorer,
    )


class CostSensitiveNER(TrainablePipe):
    """A linear-chain CRF over the tokens of a doc, with the contract of spaCy's `ner`."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model[List[Doc], Potentials],
        name: str = "cost_sensitive_ner",
        *,
        loss: Loss,
        scheme: str = "BILUO",
        sentence_boundaries: bool = False,
        scorer: Optional[Callable] = None,
    ) -> None:
        """Initialize the component.

        vocab (Vocab): The shared vocabulary.
        model (Model[List[Doc], Potentials]): From docs to the scores of a chain.
        name (str): Its name in the pipeline and in the losses.
        loss (Loss): What training minimises.
        scheme (str): How tags write entities down, "BILUO" or "IOB2".
        sentence_boundaries (bool): Whether entities end where sentences do.
        scorer (Optional[Callable]): The scoring method.
        RAISES (ValueError): If the scheme is unknown.
        """
        self.vocab = vocab
        self.model = model
        self.name = name
        self.loss = loss
        self.scorer = scorer
        self.cfg: Dict[str, Any] = {
            "labels": [],
            "scheme": scheme,
            "sentence_boundaries": sentence_boundaries,
        }
        self._tags = Tags((), scheme)
        self._warned: Set[str] = set()

    @property
    def labels(self) -> Tuple[str, ...]:
        """The labels that the component can give to an entity."""
        return tuple(self.cfg["labels"])

    @property
    def label_data(self) -> Tuple[str, ...]:
        """The labels in the form that `initialize` takes."""
        return self.labels

    @property
    def tags(self) -> Tags:
        """The tags of the chain."""
        if self._tags.labels != self.labels or self._tags.scheme.name != self.cfg["scheme"]:
            self._tags = Tags(self.labels, self.cfg["scheme"])
        return self._tags

    def add_label(self, label: str) -> int:
        """Add a label, to a trained model too: what it knows of the others stays.

        label (str): The label.
        RETURNS (int): 1, or 0 if the component has it already.
        RAISES (ValueError): If the label is not a string or is empty.
        """
        if not isinstance(label, str) or not label:
            raise ValueError(f"{self.name}: label: expected a string, was: {label!r}")
        if label in self.labels:
            return 0
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if self.model.get_ref("output_layer").has_param("transitions"):
            self.set_output(len(self.tags))
        return 1

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        labels: Optional[Sequence[str]] = None,
    ) -> None:
        """Initialize the component for training.

        get_examples (Callable[[], Iterable[Example]]): Returns a sample of the examples.
        nlp (Optional[Language]): The pipeline.
        labels (Optional[Sequence[str]]): The labels, as `spacy init labels` writes them.
            Otherwise they are those of the examples, in alphabetical order.
        RAISES (ValueError): If there is no label.
        """
        validate_get_examples(get_examples, "CostSensitiveNER.initialize")
        check_lexeme_norms(self.vocab, "ner")
        if labels is None:
            labels = sorted({ent.label_ for eg in get_examples() for ent in eg.reference.ents})
        for label in labels:
            self.add_label(label)
        if not self.labels:
            raise ValueError(
                f"{self.name}: labels: expected at least one, from the entities of the training "
                f"data or from [initialize.components.{self.name}] labels, found none"
            )
        self.set_output(len(self.tags))
        self.model.initialize(X=[eg.predicted for eg in islice(get_examples(), 10)])

    def predict(self, docs: Iterable[Doc]) -> Ints1d:
        """Find the best path of each doc, without changing it.

        docs (Iterable[Doc]): The docs.
        RETURNS (Ints1d): The tag of each token, doc after doc. Shape: (N,)
        """
        docs = list(docs)
        if not any(len(doc) for doc in docs):
            return numpy.zeros(0, dtype="int32")
        self._require_labels()
        potentials = self._constrain(self.model.predict(docs), self._possible(read_docs(docs)))
        return to_numpy(chain.best_path(potentials).tags)

    def set_annotations(self, docs: Iterable[Doc], tags: Ints1d) -> None:
        """Write the entities of predicted paths to the docs. What was annotated before
        stays as it was.

        docs (Iterable[Doc]): The docs.
        tags (Ints1d): Their tags, as `predict` returns them. Shape: (N,)
        """
        docs = list(docs)
        tokens = read_docs(docs)
        found = trim(self.tags.decode(tags, tokens.lengths), tokens.is_space)
        labels = [self.vocab.strings.as_int(label) for label in self.labels]
        ends = numpy.cumsum(tokens.lengths)
        last = numpy.searchsorted(found.begin, ends)
        for doc, stop, length, e0, e1 in zip(docs, ends, tokens.lengths, [0, *last], last):
            start = stop - length
            spans = [
                Span(doc, begin - start, end - start, label=labels[label])
                for begin, end, label in zip(*(column[e0:e1].tolist() for column in found))
            ]
            _set_ents(doc, spans, preset=tokens.iob[start:stop] != 0)

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Learn from a batch.

        examples (Iterable[Example]): The batch.
        drop (float): The dropout rate.
        sgd (Optional[Optimizer]): The optimizer.
        losses (Optional[Dict[str, float]]): Where the loss is added up, under the name of
            the component: the objective's true value, divided by the annotated tokens.
        RETURNS (Dict[str, float]): The losses.
        """
        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, "CostSensitiveNER.update")
        if not any(len(eg.predicted) for eg in examples):
            return losses
        set_dropout_rate(self.model, drop)
        potentials, backprop = self.model.begin_update([eg.predicted for eg in examples])
        loss, gradient = self.get_loss(examples, potentials)
        backprop(gradient)
        if sgd not in (None, False):
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses

    def get_loss(self, examples: Iterable[Example], scores: Potentials) -> Tuple[float, Potentials]:
        """Compute the loss of a batch and its gradient.

        examples (Iterable[Example]): The batch.
        scores (Potentials): The model's potentials of the predicted docs.
        RETURNS (Tuple[float, Potentials]): The loss, divided by the annotated tokens of
            the batch; and the gradient of the undivided sum.
        RAISES (ValueError): If a score is not a number or infinite.
        """
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.get_loss")
        self._check_finite(scores)
        tokens = read_docs([eg.predicted for eg in examples])
        possible = self._possible(tokens)
        path = self._gold_path(examples, tokens, possible)
        potentials = self._constrain(scores, possible)
        result = self.loss.compute(potentials, self._gold(path))
        n_annotated = int((path >= 0).sum())
        return result.value / max(n_annotated, 1), result.gradient

    def _possible(self, tokens: Tokens) -> Optional[Array2d]:
        return possible_tags(
            tokens,
            self.tags,
            self.vocab.strings,
            sentence_boundaries=self.cfg["sentence_boundaries"],
        )

    def _constrain(self, potentials: Potentials, possible: Optional[Array2d]) -> Potentials:
        """Allow what the tag scheme and the docs allow."""
        return chain.constrain(potentials, self.tags.constraints._replace(emissions=possible))

    def _gold_path(
        self, examples: List[Example], tokens: Tokens, possible: Optional[Array2d]
    ) -> Ints1d:
        """The gold tag of each token, -1 where missing: everywhere in a doc whose gold is
        forbidden."""
        annotated = annotation(read_reference(examples, tokens), self.tags, self.vocab.strings)
        trimmed = trim(annotated.entities, tokens.is_space)
        self._warn_of_unusual(annotated.entities, trimmed, examples, tokens)
        path = gold_tags(annotated._replace(entities=trimmed), self.tags)
        if possible is not None:
            forbidden = (path >= 0) & ~possible[numpy.arange(len(path)), path]
            for i in docs_with(forbidden, tokens):
                path[tokens.of_doc(i)] = -1
                warnings.warn(
                    f"{self.name}: left out of training, as its entities contradict preset ones "
                    f"or cross a sentence boundary: {first_words(examples[i].reference)}",
                    stacklevel=2,
                )
        return path

    def _warn_of_unusual(
        self, entities: Entities, trimmed: Entities, examples: List[Example], tokens: Tokens
    ) -> None:
        """Warn, once each, of gold that is not learned as it stands."""
        in_space = ~numpy.isin(entities.begin, trimmed.begin) | ~numpy.isin(
            entities.end, trimmed.end
        )
        cases = {
            "white space at an end of an entity is taken off it": in_space,
            f"entities of other labels than {self.labels} count as O": entities.label < 0,
        }
        for message, which in cases.items():
            if which.any() and message not in self._warned:
                self._warned.add(message)
                token = entities.begin[which][0]
                doc = numpy.searchsorted(numpy.cumsum(tokens.lengths), token, side="right")
                words = first_words(examples[int(doc)].reference)
                warnings.warn(f"{self.name}: {message}, as in: {words}", stacklevel=2)

    def _gold(self, path: Ints1d) -> Gold:
        table = None if self.loss.cost is None else self.loss.cost(self.tags)
        gold = make_gold(path, len(self.tags), table)
        asarray = self.model.ops.xp.asarray
        return Gold(*(None if array is None else asarray(array) for array in gold))

    def _check_finite(self, scores: Potentials) -> None:
        for field in ("emissions", "transitions", "start", "end"):
            total = float(getattr(scores, field).sum())
            if not numpy.isfinite(total):
                raise ValueError(
                    f"{self.name}: {field}: expected finite scores, found {total}. The model was "
                    "not updated; try a lower learning rate or gradient clipping"
                )


def _set_ents(doc: Doc, spans: List[Span], preset: Array1d) -> None:
    """Set the entities of a doc, and O elsewhere, where nothing was preset."""
    if not preset.any():
        doc.set_ents(spans)
        return
    new = [span for span in spans if not preset[span.start : span.end].any()]
    free = ~preset
    for span in new:
        free[span.start : span.end] = False
    outside = [doc[int(i) : int(i) + 1] for i in numpy.flatnonzero(free)]
    doc.set_ents(new, outside=outside, default="unmodified")
