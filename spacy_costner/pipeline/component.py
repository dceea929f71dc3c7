"""The pipeline component: where docs, layers and losses meet."""

from copy import deepcopy
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.util import check_lexeme_norms
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from .. import chain
from ..decoding import DecodedSpans, Decoding, Posterior, Temperature, make_viterbi
from ..losses import LossSchedule
from ..tags import Tags
from ..types import Constraints, Loss, Potentials, Progress
from .annotations import (
    NOTHING,
    Confidence,
    Hypothesis,
    Prediction,
    annotate,
    checked,
    k_best,
    register,
    score_spans,
)
from .deprecated import OldMethods
from .objective import Objective
from .rehearsal import divergence
from .serialization import MADE, SavedPipe, check_names
from .targets import (
    MISSING,
    NEGATED,
    Tokens,
    Weights,
    possible_tags,
    read_presets,
)


class CostSensitiveNER(OldMethods, SavedPipe):
    """A linear-chain CRF over the tokens of a doc, with the contract of spaCy's `ner`."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model[List[Doc], Potentials],
        name: str = "cost_sensitive_ner",
        *,
        loss: Union[Loss, LossSchedule],
        weights: Optional[Weights] = None,
        scheme: str = "BILUO",
        incorrect_spans_key: Optional[str] = None,
        sentence_boundaries: bool = False,
        decoding: Optional[Decoding] = None,
        confidence: Optional[Confidence] = None,
        scorer: Optional[Callable] = None,
    ) -> None:
        """Initialize the component.

        vocab (Vocab): The shared vocabulary.
        model (Model[List[Doc], Potentials]): From docs to the scores of a chain.
        name (str): Its name in the pipeline and in the losses.
        loss (Union[Loss, LossSchedule]): What training minimises.
        weights (Optional[Weights]): How much single tokens and examples count.
        scheme (str): How tags write entities down, "BILUO" or "IOB2".
        incorrect_spans_key (Optional[str]): Where reference docs have spans that are no
            entities.
        sentence_boundaries (bool): Whether entities end where sentences do.
        decoding (Optional[Decoding]): Which answer is given; None: the best path.
        confidence (Optional[Confidence]): Where it is written how probable entities are.
        scorer (Optional[Callable]): The scoring method.
        RAISES (ValueError): If the scheme is unknown, weights and loss don't go together, or
            spans have an extension attribute of the name that confidence is to have.
        """
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self._rehearsal_model: Optional[Model[List[Doc], Potentials]] = None
        self.cfg: Dict[str, Any] = {
            "labels": [],
            "scheme": scheme,
            "progress": Progress()._asdict(),
            "n_examples": 0,
            "cost_tables": [],
            "temperature": Temperature()._asdict(),
        }
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
        self._tags = Tags((), scheme)

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
        RAISES (ValueError): If the label is not a string, is empty, or begins with a "!", by
            which spaCy 2 marked spans that are no entities.
        """
        if not isinstance(label, str) or not label or label.startswith(NEGATED):
            raise ValueError(
                f"{self.name}: label: expected a string without {NEGATED!r} in front (for spans "
                f"that are no entities there is incorrect_spans_key), got {label!r}"
            )
        if label in self.labels:
            return 0
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if self.model.has_dim("nO"):
            self.set_output(len(self.tags))
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

        get_examples (Callable[[], Iterable[Example]]): Returns a sample of the examples.
        nlp (Optional[Language]): The pipeline.
        labels (Optional[Sequence[str]]): The labels, as `spacy init labels` writes them.
            Otherwise they are those of the examples, in alphabetical order.
        RAISES (ValueError): If there is no label, or the loss or the decoding has a cost,
            weights or settings that don't fit the labels.
        """
        validate_get_examples(partial(_first, get_examples), "CostSensitiveNER.initialize")
        check_lexeme_norms(self.vocab, "ner")
        found = self._read_corpus(get_examples())
        for label in sorted(found) if labels is None else labels:
            self.add_label(label)
        if not self.labels:
            raise ValueError(
                f"{self.name}: labels: expected at least one, from the entities of the training "
                f"data or from [initialize.components.{self.name}] labels, found none"
            )
        self.cfg["cost_tables"] = self.objective.prepare(self.tags)
        for stage in self.objective.loss.stages:
            stage.forget()
        self.check_decoding(self.tags)
        self.cfg["temperature"] = Temperature()._asdict()
        self.cfg["progress"] = Progress()._asdict()
        self.set_output(len(self.tags))
        self.model.initialize(X=[eg.predicted for eg in _first(get_examples)])

    def _read_corpus(self, examples: Iterable[Example]) -> Set[str]:
        """Go through the examples, once, as they may have to be read from a file: count them,
        show them to a model that makes its features of them, and find their labels."""
        labels: Set[str] = set()
        self.cfg["n_examples"] = 0

        def references() -> Iterator[Doc]:
            for eg in examples:
                labels.update(ent.label_ for ent in eg.reference.ents)
                self.cfg["n_examples"] += 1
                yield eg.reference

        docs = references()
        if collect_features := self.model.attrs.get("collect_features"):
            collect_features(self.model, docs)
        for _ in docs:
            pass
        return labels

    def predict(self, docs: Iterable[Doc]) -> Prediction:
        """Find the entities of docs, without changing these.

        docs (Iterable[Doc]): The docs.
        RETURNS (Prediction): Their entities.
        """
        docs = list(docs)
        tokens = read_presets(docs)
        if not len(tokens.iob):
            return Prediction(tokens, NOTHING, NOTHING)
        posterior = self._posterior(docs, tokens)
        return score_spans(self.answer(posterior), posterior, tokens, self.confidence)

    def answer(self, posterior: Posterior) -> DecodedSpans:
        """Choose the answer to what is believed, as decoding is set.

        posterior (Posterior): The probabilities.
        RETURNS (DecodedSpans): The entities.
        """
        return self._decoding.decode(posterior, self.cfg["decoding"])

    def set_annotations(self, docs: Iterable[Doc], prediction: Prediction) -> None:
        """Write predicted entities to the docs. What was annotated before stays as it was.

        docs (Iterable[Doc]): The docs.
        prediction (Prediction): What `predict` returned for them.
        """
        annotate(list(docs), prediction, self.vocab.strings, self.confidence)

    def posterior(self, docs: Iterable[Doc], *, preset: bool = False) -> Posterior:
        """Find out how probable tags and entities are.

        docs (Iterable[Doc]): The docs, not all of them empty.
        preset (bool): Whether entities that docs have already are right; otherwise it is
            as if they had none.
        RETURNS (Posterior): The probabilities, of the tokens of all docs one after another.
        """
        docs = list(docs)
        tokens = read_presets(docs)
        return self._posterior(docs, tokens if preset else _without_presets(tokens))

    def k_best(self, docs: Iterable[Doc], k: int = 5) -> List[List[Hypothesis]]:
        """Find the most probable ways to read docs, whatever entities these have already.

        docs (Iterable[Doc]): The docs, not all of them empty.
        k (int): How many, at least 1.
        RETURNS (List[List[Hypothesis]]): For each doc up to k hypotheses, with their entities and
            their probability, the most probable first.
        RAISES (ValueError): If `docs` is a doc, or k less than 1.
        """
        if isinstance(docs, Doc):
            raise ValueError("docs: expected several docs, as [doc], got a Doc")
        docs = list(docs)
        return k_best(docs, self.posterior(docs), read_presets(docs), k, self.vocab.strings)

    def _posterior(self, docs: List[Doc], tokens: Tokens) -> Posterior:
        self._require_labels()
        return Posterior(
            chain.constrain(self.model.predict(docs), self._constraints(tokens)),
            self.tags,
            temperature=Temperature(**self.cfg["temperature"]),
            is_space=tokens.is_space,
        )

    def _constraints(self, tokens: Tokens) -> Constraints:
        """What the tag scheme and the docs allow."""
        possible = possible_tags(
            tokens,
            self.tags,
            self.vocab.strings,
            sentence_boundaries=self.objective.sentence_boundaries,
        )
        return self.tags.constraints._replace(emissions=possible)

    def set_decoding(self, decoding: Decoding) -> None:
        """Decode in another way from now on, without training again.

        decoding (Decoding): The way. Its settings are in `cfg["decoding"]` then.
        RAISES (ValueError): If its settings don't fit the labels of a trained model.
        """
        if self.labels and self.model.has_dim("nO"):
            decoding.check(self.tags, decoding.settings)
        self._decoding = decoding
        self.cfg["decoding"] = deepcopy(decoding.settings)
        self._configured["decoding"] = deepcopy(decoding.settings)

    def check_decoding(self, tags: Tags) -> None:
        """Check that the settings of decoding fit some labels.

        tags (Tags): The tags of the labels.
        RAISES (ValueError): If one is for another label, or a label has no cost or is not in
            the tree.
        """
        self._decoding.check(tags, self.cfg["decoding"])

    def set_confidence(self, confidence: Optional[Confidence]) -> None:
        """Write from now on how probable entities are, or don't any more.

        confidence (Optional[Confidence]): Where to; None: nowhere. Its settings are in
            `cfg["confidence"]` then.
        RAISES (ValueError): If spans have an extension attribute of that name already.
        """
        if confidence is not None:
            register(confidence)
        self.cfg["confidence"] = confidence and asdict(confidence)
        self._configured["confidence"] = confidence and asdict(confidence)

    @property
    def confidence(self) -> Optional[Confidence]:
        """Where it is written how probable entities are."""
        settings = self.cfg["confidence"]
        if settings and not isinstance(settings, dict):
            raise ValueError(f"confidence: expected a block of settings, got {settings!r}")
        return settings and checked(Confidence(**settings))

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
        drop (float): The dropout score_spans.
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
        self.advance(len(examples))
        return losses

    def get_loss(self, examples: Iterable[Example], scores: Potentials) -> Tuple[float, Potentials]:
        """Compute the loss of a batch and its gradient.

        examples (Iterable[Example]): The batch.
        scores (Potentials): The model's potentials of the predicted docs.
        RETURNS (Tuple[float, Potentials]): The loss for each annotated token or, where it
            is one ratio, for the batch; and the gradient of the loss as a whole.
        RAISES (ValueError): If a score is not a number or infinite.
        """
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.get_loss")
        self.check_finite(scores)
        find = self.model.attrs.get("find_features")
        features = None
        if find is not None and self.objective.loss.at(self.progress).uses_features:
            features = find(self.model, [eg.predicted for eg in examples])
        return self.objective(examples, scores, self.tags, self.progress, features)

    def rehearse(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optional[Optimizer] = None,
        losses: Optional[Dict[str, float]] = None,
    ) -> Dict[str, float]:
        """Keep to what the model said when `nlp.resume_training` was called: see
        `rehearsal.divergence`. Labels that were added since are left alone.

        examples (Iterable[Example]): A batch. Only the text counts, not the annotation.
        drop (float): The dropout score_spans.
        sgd (Optional[Optimizer]): The optimizer.
        losses (Optional[Dict[str, float]]): Where the divergence is added up, in nats for each
            token, under the name of the component.
        RETURNS (Dict[str, float]): The losses.
        """
        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, "CostSensitiveNER.rehearse")
        docs = [eg.predicted for eg in examples]
        if self._rehearsal_model is None or not any(len(doc) for doc in docs):
            return losses
        set_dropout_rate(self.model, drop)
        scores, backprop = self.model.begin_update(docs)
        self.check_finite(scores)
        constraints = self._constraints(_without_presets(read_presets(docs)))
        result = divergence(scores, self._rehearsal_model.predict(docs), constraints)
        backprop(result.gradient)
        if sgd not in (None, False):
            self.finish_update(sgd)
        losses[self.name] += result.value / len(scores.emissions)
        return losses

    @property
    def progress(self) -> Progress:
        """How far training has come."""
        return Progress(**self.cfg["progress"])

    def advance(self, n_examples: int) -> None:
        """Keep count of a step of training.

        n_examples (int): The examples that it was made with.
        """
        steps, epochs = self.progress
        epochs += n_examples / max(self.cfg["n_examples"], 1)
        self.cfg["progress"] = Progress(steps + 1, epochs)._asdict()

    def _n_tags(self) -> Optional[int]:
        return len(self.tags) if self.labels else None

    def _made(self) -> Dict[str, Any]:
        tables = self._decoding.tables if self.labels else None
        return {
            "configured": self._configured,
            "decoding_tables": tables and tables(self.tags),
        }

    def _settle(self, saved: Dict[str, Any]) -> None:
        """Make use of a cfg that was loaded. What was set on the component that wrote it
        holds, but not where the config says something else now than it said then."""
        then, tables = saved.get("configured", self._configured), saved.get("decoding_tables")
        self.cfg.update({name: saved[name] for name in saved if name not in MADE})
        self.objective.restore(self.cfg["cost_tables"], self.tags)
        for name, settings in self._configured.items():
            # Models of 0.1 don't have all settings that there are now.
            before = then.get(name)
            if isinstance(before, dict) and isinstance(settings, dict):
                before = {**dict.fromkeys(settings), **before}
            if before != settings:
                self.cfg[name] = deepcopy(settings)
        # Models of 0.1 have the tables among the settings, and sentence_boundaries as well.
        self.cfg.pop("sentence_boundaries", None)
        if tables is None and "table" in saved.get("decoding", ()):
            tables, self.cfg["decoding"] = saved["decoding"], deepcopy(self._configured["decoding"])
        if self._decoding.restore is not None and tables:
            self._decoding.restore(tables)
        check_names(self.cfg["decoding"], self._configured["decoding"], "decoding")
        if self.labels:
            self.check_decoding(self.tags)
        for label in self.labels:
            self.vocab.strings.add(label)
        if self.confidence is not None:
            register(self.confidence)

    def check_finite(self, scores: Potentials) -> None:
        """Check scores before anything is learned from them.

        scores (Potentials): The model's potentials.
        RAISES (ValueError): If a score is not a number or infinite.
        """
        for field in ("emissions", "transitions", "start", "end"):
            total = float(getattr(scores, field).sum())
            if not numpy.isfinite(total):
                raise ValueError(
                    f"{self.name}: {field}: expected finite scores, found {total}. The model was "
                    "not updated; try a lower learning score_spans or gradient clipping"
                )


def _first(get_examples: Callable[[], Iterable[Example]], n_examples: int = 10) -> List[Example]:
    """As many examples as it takes to see what they look like."""
    return list(islice(get_examples(), n_examples))


def _without_presets(tokens: Tokens) -> Tokens:
    """The tokens as if nothing had been annotated before."""
    return tokens._replace(iob=numpy.full_like(tokens.iob, MISSING))
