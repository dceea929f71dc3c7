"""The pipeline component `cost_sensitive_ner`."""

from functools import partial
from itertools import islice
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.util import check_lexeme_norms
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate
from thinc.types import Ints2d

from .. import chain
from ..decoding import Decoding, Posterior, Temperature, make_viterbi
from ..losses import LossSchedule
from ..tags import SINGLE, Tags
from ..training.folds import train_first_pass, train_linear_part
from ..training.objective import NEGATED, Objective, check_finite
from ..training.soft_targets import labels_of
from ..training.targets import Targets, Weights, possible_paths
from ..training.token_attrs import TokenAttrs, read_presets
from ..types import Constraints, Loss, Potentials, Progress
from .annotations import (
    NOTHING,
    Confidence,
    Hypothesis,
    Prediction,
    annotate,
    k_best,
    score_spans,
)
from .deprecated import OldMethods
from .learn_rate import check_factor, finish_update, warn_of_low_rate
from .prediction_settings import PredictionSettings
from .rehearsal import divergence

ComputeLoss = Callable[[List[Example], Potentials], Tuple[float, Potentials]]
"""Takes a batch and the model's potentials to the loss and its gradient."""


class CostSensitiveNER(OldMethods, PredictionSettings):
    """A named entity recognizer with a linear-chain CRF. It has the methods of spaCy's `ner`.

    `cfg` has what is saved: the labels, the scheme, the settings that can be changed without
    training (decoding, confidence, temperature) and the progress of training.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model[List[Doc], Potentials],
        name: str = "cost_sensitive_ner",
        *,
        loss: Union[Loss, LossSchedule],
        weights: Optional[Weights] = None,
        scheme: str = "BILUO",
        outside: str = SINGLE,
        incorrect_spans_key: Optional[str] = None,
        sentence_boundaries: bool = False,
        decoding: Optional[Decoding] = None,
        confidence: Optional[Confidence] = None,
        scorer: Optional[Callable] = None,
        learn_rate_factor: float = 1.0,
    ) -> None:
        """Initialize the component.

        vocab (Vocab): The shared vocabulary.
        model (Model[List[Doc], Potentials]): Predicts the potentials of the chain.
        name (str): The name of the component, also in the losses.
        loss (Union[Loss, LossSchedule]): The training loss.
        weights (Optional[Weights]): The weights of tokens and examples in training.
        scheme (str): The tag scheme, "BILUO" or "IOB2".
        outside (str): "single", or "before": O directly before an entity is a tag of its own.
        incorrect_spans_key (Optional[str]): The key in `doc.spans` of reference docs for spans
            that are not entities.
        sentence_boundaries (bool): Whether entities end where sentences do.
        decoding (Optional[Decoding]): How entities are predicted. Defaults to the best path.
        confidence (Optional[Confidence]): Where to write the probabilities of entities.
        scorer (Optional[Callable]): The scoring method.
        learn_rate_factor (float): The factor of the learning rate of the chain, not of its Tok2Vec.
        RAISES (ValueError): If `scheme` or `outside` is unknown, the loss doesn't use the weights,
            another extension of spans has the name of the confidence, or the factor is not for it.
        """
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.sentence_boundaries = sentence_boundaries
        self.learn_rate_factor = check_factor(learn_rate_factor, model, name)
        self._rehearsal_model: Optional[Model] = None
        self.cfg: Dict[str, Any] = {
            "labels": [],
            "scheme": scheme,
            "outside": outside,
            "progress": Progress()._asdict(),
            "n_examples": 0,
            "cost_tables": [],
            "temperature": Temperature()._asdict(),
            "guarantee": None,
            "untrained": [],
        }
        self.meta: Dict[str, Any] = {}
        self._configured: Dict[str, Any] = {}
        self.set_decoding(decoding or make_viterbi())
        self.set_confidence(confidence)
        self.objective = Objective(
            name,
            vocab.strings,
            loss,
            weights=weights,
            incorrect_spans_key=incorrect_spans_key,
            sentence_boundaries=sentence_boundaries,
        )
        self._tags = Tags((), scheme, outside)

    def add_label(self, label: str) -> int:
        """Add a label. A trained model predicts it after an update with an entity that has it.

        label (str): The label.
        RETURNS (int): 1, or 0 if the component already has the label.
        RAISES (ValueError): If the label is not a string, is empty, or begins with "!".
        """
        if not isinstance(label, str) or not label or label.startswith(NEGATED):
            raise ValueError(
                f"{self.name}: label: expected a string without {NEGATED!r} in front (for spans "
                f"that are no entities there is incorrect_spans_key), got {label!r}"
            )
        if label in self.labels:
            return 0
        self.drop_guarantee(f"add_label({label!r})")
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if self.model.has_dim("nO"):
            self.set_output(len(self.chain_tags))
            self.cfg["untrained"] = [*self.cfg["untrained"], label]
            self.cfg["cost_tables"] = self.objective.prepare(self.tags)
            self.check_decoding(self.tags)
        return 1

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Optional[Language] = None,
        labels: Optional[Sequence[str]] = None,
    ) -> None:
        """Initialize the component for training.

        get_examples (Callable[[], Iterable[Example]]): Returns the training examples.
        nlp (Optional[Language]): The current `nlp` object.
        labels (Optional[Sequence[str]]): The labels, as `spacy init labels` writes them. Defaults
            to those of the examples, in alphabetical order.
        RAISES (ValueError): If there are no labels, or the loss or the decoding has a cost,
            weights or settings that don't fit the labels.
        """
        validate_get_examples(partial(_first, get_examples), "CostSensitiveNER.initialize")
        check_lexeme_norms(self.vocab, "ner")
        warn_of_low_rate(nlp, self.model, self.learn_rate_factor, self.name)
        found = self._read_corpus(get_examples())
        for label in sorted(found) if labels is None else labels:
            self.add_label(label)
        if not self.labels:
            raise ValueError(
                f"{self.name}: labels: expected at least one, from the entities of the training "
                f"data or from [initialize.components.{self.name}] labels, found none"
            )
        self.cfg["cost_tables"] = self.objective.prepare(self.tags)
        self.check_decoding(self.tags)
        self.drop_guarantee("training")
        self.cfg["temperature"], self.cfg["untrained"] = Temperature()._asdict(), []
        self.set_output(len(self.chain_tags))
        self.model.initialize(X=[eg.predicted for eg in _first(get_examples)])
        train_first_pass(self.model, self.objective, self.chain_tags, get_examples)
        train_linear_part(self.model, self.objective, self.chain_tags, get_examples)
        self.objective.forget()
        self.cfg["progress"] = Progress()._asdict()

    def _read_corpus(self, examples: Iterable[Example]) -> Set[str]:
        """Count the examples, collect features and find labels; read once, maybe from a file."""
        labels: Set[str] = set()
        self.cfg["n_examples"] = 0

        def references() -> Iterable[Doc]:
            for eg in examples:
                labels.update(labels_of(eg.reference))
                self.cfg["n_examples"] += 1
                yield eg.reference

        docs = references()
        if build_vocab := self.model.attrs.get("build_vocab"):
            build_vocab(self.model, docs)
        for _ in docs:
            pass
        return labels

    def predict(self, docs: Iterable[Doc]) -> Prediction:
        """Predict the entities of docs, without modifying them.

        docs (Iterable[Doc]): The docs.
        RETURNS (Prediction): Their entities.
        """
        docs = list(docs)
        tokens = read_presets(docs)
        if not len(tokens.iob):
            return Prediction(tokens, NOTHING, NOTHING, NOTHING)
        posterior, guarantee = self._posterior(docs, tokens), self.guarantee
        return score_spans(self.decode(posterior), posterior, tokens, self.confidence, guarantee)

    def set_annotations(self, docs: Iterable[Doc], prediction: Prediction) -> None:
        """Write predicted entities to docs. Preset annotation stays as it is.

        docs (Iterable[Doc]): The docs.
        prediction (Prediction): What `predict` returned for them.
        """
        annotate(list(docs), prediction, self.vocab.strings, self.confidence)

    def posterior(self, docs: Iterable[Doc], *, preset: bool = False) -> Posterior:
        """Compute the probabilities of tags and entities.

        docs (Iterable[Doc]): The docs, not all of them empty.
        preset (bool): Whether the entities of the docs are taken as given, or ignored.
        RETURNS (Posterior): The probabilities, with the tokens of all docs in one array.
        """
        docs = list(docs)
        tokens = read_presets(docs)
        return self._posterior(docs, tokens if preset else tokens.without_annotation())

    def k_best(self, docs: Iterable[Doc], k: int = 5) -> List[List[Hypothesis]]:
        """Predict the k most probable analyses of docs. Preset entities are ignored.

        docs (Iterable[Doc]): The docs, not all of them empty.
        k (int): The number of analyses, at least 1.
        RETURNS (List[List[Hypothesis]]): Up to k hypotheses for each doc, with their entities and
            their probability, the most probable first.
        RAISES (ValueError): If `docs` is a doc, or k less than 1.
        """
        if isinstance(docs, Doc):
            raise ValueError("docs: expected several docs, as [doc], got a Doc")
        docs = list(docs)
        return k_best(docs, self.posterior(docs), read_presets(docs), k, self.vocab.strings)

    def _posterior(self, docs: List[Doc], tokens: TokenAttrs) -> Posterior:
        self._require_labels()
        allowed = self.constraints(tokens, self.cfg["untrained"])
        potentials = chain.constrain(self.model.predict(docs), allowed)
        temperature, is_space = Temperature(**self.cfg["temperature"]), tokens.is_space
        return Posterior(potentials, self.chain_tags, temperature=temperature, is_space=is_space)

    def constraints(self, tokens: TokenAttrs, untrained: Sequence[str] = ()) -> Constraints:
        """The paths that the tag scheme and the docs allow, in training and in prediction.

        tokens (TokenAttrs): The tokens of the docs.
        untrained (Sequence[str]): Labels that only preset entities may have.
        RETURNS (Constraints): The constraints.
        """
        return possible_paths(
            tokens,
            self.chain_tags,
            self.vocab.strings,
            sentence_boundaries=self.sentence_boundaries,
            untrained=untrained,
        )

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Update the model with a batch of examples.

        examples (Iterable[Example]): The batch.
        drop (float): The dropout rate.
        sgd (Optional[Optimizer]): The optimizer.
        losses (Optional[Dict[str, float]]): The losses to add to, by component name. The loss is
            the exact value of the objective, divided by the number of annotated tokens.
        RETURNS (Dict[str, float]): The losses.
        """
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.update")
        losses = self._learn(examples, self.get_loss, drop, sgd, losses)
        if untrained := self.cfg["untrained"]:
            trained = {ent.label_ for eg in examples for ent in eg.reference.ents}
            self.cfg["untrained"] = [label for label in untrained if label not in trained]
        if any(len(eg.predicted) for eg in examples):
            self.advance(len(examples))
        return losses

    def _learn(
        self,
        examples: List[Example],
        compute_loss: ComputeLoss,
        drop: float,
        sgd: Optional[Optimizer],
        losses: Optional[Dict[str, float]],
    ) -> Dict[str, float]:
        """Update the model with the gradient of a loss. Batches without tokens have none."""
        self.drop_guarantee("training")
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        docs = [eg.predicted for eg in examples]
        if not any(len(doc) for doc in docs):
            return losses
        set_dropout_rate(self.model, drop)
        scores, backprop = self.model.begin_update(docs)
        loss, gradient = compute_loss(examples, scores)
        backprop(gradient)
        if sgd not in (None, False):
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses

    def finish_update(self, sgd: Optimizer) -> None:
        """Update the weights with the current gradients: see `learn_rate.finish_update`.

        sgd (Optimizer): The optimizer.
        """
        finish_update(self.model, sgd, self.learn_rate_factor)

    def get_loss(self, examples: Iterable[Example], scores: Potentials) -> Tuple[float, Potentials]:
        """Compute the loss of a batch and its gradient.

        examples (Iterable[Example]): The batch.
        scores (Potentials): The model's potentials of the predicted docs.
        RETURNS (Tuple[float, Potentials]): The loss per annotated token or, if the loss is one
            ratio, of the batch; and the gradient of the loss of the batch.
        RAISES (ValueError): If a score is not a number or infinite.
        """
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.get_loss")
        check_finite(scores, self.name)
        find, features = self.model.attrs.get("find_features"), None
        if find is not None and self.objective.loss.at(self.progress).uses_features:
            features = find(self.model, [eg.predicted for eg in examples], is_train=True).rows
        targets = self.targets(examples, features)
        result, n_annotated = self.objective.evaluate(targets, scores, self.progress)
        return result.value / n_annotated, result.gradient

    def targets(self, examples: Sequence[Example], features: Optional[Ints2d] = None) -> Targets:
        """Make the training targets of a batch.

        examples (Sequence[Example]): The batch.
        features (Optional[Ints2d]): As in `Gold`, if the loss uses them. Shape: (N, S)
        RETURNS (Targets): The targets, to be used with any scores of the same docs.
        """
        return self.objective.targets(examples, self.chain_tags, features)

    def rehearse(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Update the model to keep its predictions from before `nlp.resume_training`: see
        `rehearsal.divergence`. Labels that were added since then are ignored.

        examples (Iterable[Example]): A batch. Its annotation is not used.
        drop (float): The dropout rate.
        sgd (Optional[Optimizer]): The optimizer.
        losses (Optional[Dict[str, float]]): The losses to add to, by component name. The loss is
            the divergence in nats per token.
        RETURNS (Dict[str, float]): The losses.
        """
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.rehearse")
        if self._rehearsal_model is None:
            examples = []  # nothing to rehearse
        return self._learn(examples, self._get_divergence, drop, sgd, losses)

    def _get_divergence(
        self, examples: List[Example], scores: Potentials
    ) -> Tuple[float, Potentials]:
        assert self._rehearsal_model is not None
        check_finite(scores, self.name)
        docs = [eg.predicted for eg in examples]
        constraints = self.constraints(read_presets(docs).without_annotation())
        result = divergence(scores, self._rehearsal_model.predict(docs), constraints)
        return result.value / len(scores.emissions), result.gradient

    @property
    def progress(self) -> Progress:
        """How far training has come."""
        return Progress(**self.cfg["progress"])

    def advance(self, n_examples: float) -> None:
        """Count an update.

        n_examples (float): The number of its examples, and shares of them.
        """
        steps, epochs = self.progress
        epochs += n_examples / max(self.cfg["n_examples"], 1)
        self.cfg["progress"] = Progress(steps + 1, epochs)._asdict()


def _first(get_examples: Callable[[], Iterable[Example]], n_examples: int = 10) -> List[Example]:
    """The first examples, to validate them and to infer the shapes of the model."""
    return list(islice(get_examples(), n_examples))
