"""The pipeline component `cost_sensitive_ner`."""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, replace
from itertools import islice
from math import exp, inf, isnan
from pathlib import Path
from typing import (
    Any,
)

import numpy
import srsly
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.pipeline.ner import DEFAULT_NER_MODEL, ner_score
from spacy.pipeline.spancat import spancat_score
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.util import check_lexeme_norms, to_bytes, to_disk
from thinc.api import Model, Optimizer, set_dropout_rate
from thinc.types import Array1d, Floats1d
from thinc.util import get_array_module

from .. import chain
from ..borders import Boundaries, cut, find_borders
from ..costs.tables import hamming_cost
from ..decoding import DecodedSpans, Decoding, MinCost, Posterior, Temperature
from ..ent_iob import INSIDE
from ..features import FeatureBatch
from ..losses import LossSchedule
from ..metrics.shift import ENOUGH, Shift, digest_of, find_shift, restore, rounded
from ..ml import first_pass_of
from ..readers.documents import short_values
from ..tags import SINGLE, Tags
from ..token_attrs import TokenAttrs, possible_paths, read_presets
from ..training.folds import train_first_pass, train_linear_part
from ..training.incorrect_spans import expand
from ..training.known_text import pack_ids, sentence_ids, unpack_ids
from ..training.lbfgs import check_memory
from ..training.objective import NEGATED, Objective, check_finite
from ..training.soft_targets import SoftTargets, divergence, labels_of
from ..training.targets import Weights
from ..types import Constraints, Cost, Loss, Potentials, Progress, map_scores, no_scores
from .annotations import (
    Confidence,
    Hypothesis,
    Prediction,
    add_measures,
    annotate,
    group_of,
    make_prediction,
    register,
    register_default,
    spans_by_doc,
)
from .learn_rate import check_factor, finish_update, warn_of_low_rate
from .reading import Reading, find_difference, read_reading
from .serialization import (
    Cfg,
    check_digest,
    check_keys,
    load_model,
    sign,
    upgrade_cfg,
)

DEFAULT_CONFIG: dict[str, Any] = {
    "model": {
        "@architectures": "spacy_costner.LinearChainCRF.v1",
        "nO": None,
        "tok2vec": DEFAULT_NER_MODEL["tok2vec"],
    },
    "loss": {"@losses": "spacy_costner.Sequential.v1"},
    "decoding": {"@misc": "spacy_costner.ViterbiDecoding.v1"},
    "scorer": {"@scorers": "spacy.ner_scorer.v1"},
}

N_COMPARED = 100
"""Calls of `predict` whose docs are compared with those that the component was measured on."""

HOLDS_FOR = ("labels", "scheme", "outside", "decoding", "temperature")
"""The keys of `cfg` that a guarantee depends on. It depends on the weights, too, and so does the
test for a shift, but not on the decoding."""


class CostSensitiveNER(TrainablePipe):
    """A named entity recognizer with a linear-chain CRF, trained for the costs of mistakes. It has
    the methods of spaCy's `ner`.

    `cfg` is saved: the labels, the scheme, the progress of training, and the settings of prediction
    (decoding, confidence, temperature), which can be changed without training. The config fills
    these in; `set_decoding`, `set_confidence` or you change them.

    model (Model[list[Doc], Potentials]): Predicts the potentials of the chain.
    loss (Loss | LossSchedule): The training loss.
    weights (Weights | None): The weights of tokens and examples in training.
    scheme (str): The tag scheme, "BILUO" or "IOB2".
    outside (str): "single", or "before": O directly before an entity is a tag of its own, by the
        label of the entity.
    incorrect_spans_key (str | None): The key in `doc.spans` of reference docs for spans that
        are known not to be entities.
    spans_key (str | None): The key in `doc.spans` to learn from and to write to, as that of
        spaCy's `spancat`, in place of `doc.ents`.
    own_labels (list[str] | None): With a `spans_key`: the labels of the spans that are written,
        which may overlap with those of other labels. The component learns those, too, where they
        don't overlap with its own, so that labels compete. None: all its labels are its own.
    filter_spans (bool): With a `spans_key`: whether the longest of spans of its own labels is kept
        where they overlap in training docs. Otherwise they are an error.
    sentence_boundaries (Boundaries): What the chain of a doc is cut at. False: nothing. True:
        sentence starts and line breaks. "sentences": sentence starts.
    decoding (Decoding): How entities are predicted.
    confidence (Confidence | None): Where to write the probabilities of entities.
    scorer (Callable | None): The scoring method.
    learn_rate_factor (float): The factor of the learning rate of the weights that stand on the
        Tok2Vec: 1 if it is trained from scratch, about 20 if it is pretrained.
    RAISES (ValueError): If `scheme` or `outside` is unknown, the loss doesn't use the weights,
        another extension of spans has the name of the confidence, the factor is not for the
        model, or the model has a number of tags.
    """

    cfg: Cfg

    def __init__(
        self,
        nlp: Language,
        name: str,
        model: Model[list[Doc], Potentials],
        loss: Loss | LossSchedule,
        decoding: Decoding,
        scorer: Callable | None,
        weights: Weights | None = None,
        scheme: str = "BILUO",
        outside: str = SINGLE,
        incorrect_spans_key: str | None = None,
        spans_key: str | None = None,
        own_labels: list[str] | None = None,
        filter_spans: bool = False,
        sentence_boundaries: Boundaries = False,
        confidence: Confidence | None = None,
        learn_rate_factor: float = 1.0,
    ) -> None:
        if spans_key is None and (own_labels is not None or filter_spans):
            raise ValueError(f"{name}: own_labels, filter_spans: expected a spans_key with them")
        if own_labels is not None and not own_labels:
            raise ValueError(f"{name}: own_labels: expected null or some labels, got none")
        if (n_tags := model.maybe_get_dim("nO")) is not None:
            # A pipeline that is saved with it could not be loaded again.
            raise ValueError(
                f"{name}: model.nO: expected null, as the labels say how many tags there are, got "
                f"{n_tags!r}"
            )
        self.vocab, self.meta = nlp.vocab, nlp.meta
        self.model, self.name, self.scorer = model, name, scorer
        self.sentence_boundaries = sentence_boundaries
        if (first_pass := first_pass_of(model)) is not None:
            first_pass.boundaries = sentence_boundaries
        self.learn_rate_factor = check_factor(learn_rate_factor, model, name)
        self._rehearsal_model: Model | None = None
        self._tokenizer = nlp.tokenizer
        self._n_compared = 0
        self._configured: Cfg = {}
        self._tags = Tags((), scheme, outside)
        self.cfg = {
            "labels": [],
            "scheme": scheme,
            "outside": outside,
            "progress": Progress()._asdict(),
            "n_examples": 0,
            "cost_tables": [],
            "temperature": Temperature()._asdict(),
            "guarantee": None,
            "shift": None,
            "reading": None,
            "untrained": [],
            "trained_on": "",
        }
        self.objective = Objective(
            name,
            self.vocab.strings,
            loss,
            weights=Weights() if weights is None else weights,
            incorrect_spans_key=incorrect_spans_key,
            spans_key=spans_key,
            own_labels=own_labels,
            filter_spans=filter_spans,
            sentence_boundaries=sentence_boundaries,
        )
        self.set_decoding(decoding)
        self.set_confidence(confidence)

    # Labels and tags

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the component."""
        return tuple(self.cfg["labels"])

    label_data = labels  # in the form that `initialize` takes

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The labels of the entities that the component writes."""
        own = self.objective.own_labels
        return self.labels if own is None else tuple(x for x in self.labels if x in own)

    @property
    def other_labels(self) -> tuple[int, ...]:
        """The other labels, as indices."""
        own = self.own_labels
        return tuple(i for i, label in enumerate(self.labels) if label not in own)

    @property
    def chain_tags(self) -> Tags:
        """The tags of the chain."""
        tags, names = self._tags, (self.labels, self.cfg["scheme"], self.cfg["outside"])
        if (tags.labels, tags.scheme.name, tags.outside) != names:
            self._tags = Tags(*names)
        return self._tags

    @property
    def tags(self) -> Tags:
        """The tags of annotation, costs and probabilities, with a single O."""
        return self.chain_tags.collapsed

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

    # Training

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        """Initialize the component for training.

        get_examples (Callable[[], Iterable[Example]]): Returns the training examples.
        nlp (Language | None): The current `nlp` object.
        labels (Sequence[str] | None): The labels, as `spacy init labels` writes them. Defaults
            to those of the examples, in alphabetical order.
        RAISES (ValueError): If there are no labels, or the loss or the decoding has a cost,
            weights or settings that don't fit the labels, or the weights don't fit in memory.
        """

        def first_examples() -> list[Example]:
            return list(islice(get_examples(), 10))

        validate_get_examples(first_examples, "CostSensitiveNER.initialize")
        check_lexeme_norms(self.vocab, "ner")
        warn_of_low_rate(nlp, self.model, self.learn_rate_factor, self.name)
        corpus_labels = self._read_corpus(get_examples(), labels)
        for label in sorted(corpus_labels) if labels is None else labels:
            self.add_label(label)
        self._check_own_labels()
        if not self.labels:
            raise ValueError(
                f"{self.name}: labels: expected at least one, from the entities of the training "
                f"data or from [initialize.components.{self.name}] labels, got none"
            )
        self.cfg["cost_tables"] = self.objective.prepare(self.tags)
        self.check_decoding(self.tags)
        self.drop_guarantee("training")
        self.cfg["temperature"], self.cfg["untrained"] = Temperature()._asdict(), []
        self.cfg["reading"] = None
        self.set_output(len(self.chain_tags))
        check_memory(self.model, self.chain_tags, self.name)
        self.model.initialize(X=[eg.predicted for eg in first_examples()])
        train_first_pass(self.model, self.objective, self.chain_tags, get_examples)
        train_linear_part(self.model, self.objective, self.chain_tags, get_examples)
        self.objective.forget()
        self.cfg["progress"] = Progress()._asdict()

    def _check_own_labels(self) -> None:
        """RAISES (ValueError): If an own label is not among the labels, and so never written."""
        unknown = [x for x in self.objective.own_labels or () if x not in self.labels]
        if unknown:
            raise ValueError(
                f"{self.name}: own_labels: expected some of {list(self.labels)}, got {unknown}"
            )

    def _read_corpus(self, examples: Iterable[Example], given: Sequence[str] | None) -> set[str]:
        """Read the corpus once: count its examples, collect features, and return its labels. With
        a `spans_key`, spans of other labels than those given are left out."""
        labels: set[str] = set()
        sentences: set[int] = set()
        self.cfg["n_examples"] = 0
        own = None if given is None else {*given, *self.labels}

        def references() -> Iterator[Doc]:
            for eg in examples:
                doc = self.objective.as_entities(eg, own).reference
                labels.update(labels_of(doc))
                sentences.update(sentence_ids(doc))
                self.cfg["n_examples"] += 1
                yield doc

        docs = references()
        if build_vocab := self.model.attrs.get("build_vocab"):
            build_vocab(self.model, docs)
        deque(docs, maxlen=0)  # reads those that the model has not read
        self.cfg["trained_on"] = pack_ids(sentences)
        return labels

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Update the model with a batch of examples.

        examples (Iterable[Example]): The batch.
        drop (float): The dropout rate.
        sgd (Optimizer | None): The optimizer.
        losses (dict[str, float] | None): The losses to add to, by component name. The loss is
            the exact value of the objective, divided by the number of annotated tokens.
        RETURNS (dict[str, float]): The losses.
        """
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.update")
        self.drop_guarantee("training")
        docs = [eg.predicted for eg in examples]
        if not any(len(doc) for doc in docs):
            return losses
        set_dropout_rate(self.model, drop)
        features = self._find_features(docs)
        if features is None:
            scores, backprop = self.model.begin_update(docs)
        else:
            # They are looked up once, for the scores and for the loss.
            scores, backprop = self.model.attrs["score_features"](self.model, features)
        loss, gradient = self.get_loss(examples, scores, features=features)
        backprop(gradient)
        if sgd not in (None, False):
            self.finish_update(sgd)
        losses[self.name] += loss
        if self.cfg["untrained"]:
            viewed = [self.objective.as_entities(eg, self.labels) for eg in examples]
            trained = {ent.label_ for eg in viewed for ent in eg.reference.ents}
            self.cfg["untrained"] = [each for each in self.cfg["untrained"] if each not in trained]
        n_examples = max(self.cfg["n_examples"], 1)
        self.cfg["progress"] = self.progress.after_update(len(examples), n_examples)._asdict()
        return losses

    def get_loss(
        self,
        examples: Iterable[Example],
        scores: Potentials,
        *,
        features: FeatureBatch | None = None,
    ) -> tuple[float, Potentials]:
        """Compute the loss of a batch and its gradient.

        examples (Iterable[Example]): The batch.
        scores (Potentials): The model's potentials of the predicted docs.
        features (FeatureBatch | None): The features of the predicted docs in training. None: they
            are looked up, if the loss uses them.
        RETURNS (tuple[float, Potentials]): The loss per annotated token or, if the loss is one
            ratio, of the batch; and the gradient of the loss of the batch.
        RAISES (ValueError): If a score is not a number or infinite.
        """
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.get_loss")
        check_finite(scores, self.name)
        if features is None:
            features = self._find_features([eg.predicted for eg in examples])
        targets = self.objective.targets_in_epoch(
            examples,
            self.chain_tags,
            self.progress.epochs,
            None if features is None else features.rows,
        )
        result, n_annotated = self.objective.evaluate(targets, scores, self.progress)
        return result.value / n_annotated, result.gradient

    def _find_features(self, docs: Sequence[Doc]) -> FeatureBatch | None:
        """The features of training docs, if the loss uses them and the model has some."""
        find_features = self.model.attrs.get("find_features")
        if find_features is None or not self.objective.loss.stage_at(self.progress).uses_features:
            return None
        return find_features(self.model, docs, is_train=True)

    def rehearse(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Update the model to keep its predictions from before `nlp.resume_training`, by their
        divergence from the new ones. Labels that were added since then are ignored.

        examples (Iterable[Example]): A batch. Its annotation is not used.
        drop (float): The dropout rate.
        sgd (Optimizer | None): The optimizer.
        losses (dict[str, float] | None): The losses to add to, by component name. The loss is
            the divergence in nats per token.
        RETURNS (dict[str, float]): The losses.

        Li & Hoiem (2016): Learning without forgetting, eq. 2, for paths in place of classes.
        """
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.rehearse")
        self.drop_guarantee("training")
        docs = [eg.predicted for eg in examples]
        if self._rehearsal_model is None or not any(len(doc) for doc in docs):
            return losses
        set_dropout_rate(self.model, drop)
        scores, backprop = self.model.begin_update(docs)
        check_finite(scores, self.name)
        tokens = read_presets(docs).without_annotation()
        constraints = possible_paths(tokens, self.chain_tags, self.vocab.strings)
        lengths = cut(scores.lengths, find_borders(docs, self.sentence_boundaries))[0]
        # In float64: the divergence is a small difference of large numbers.
        teacher, exact = (
            map_scores(lambda array: array.astype("float64"), each)._replace(lengths=lengths)
            for each in (self._rehearsal_model.predict(docs), scores)
        )
        targets = rehearsal_targets(teacher, len(self.chain_tags), constraints)
        result = divergence(exact, targets)
        dtype = scores.emissions.dtype
        gradient = result.gradient._replace(lengths=scores.lengths)
        backprop(map_scores(lambda array: array.astype(dtype), gradient))
        if sgd not in (None, False):
            self.finish_update(sgd)
        losses[self.name] += result.value / len(scores.emissions)
        return losses

    def finish_update(self, sgd: Optimizer) -> None:
        """Update the weights with the current gradients: see `learn_rate.finish_update`."""
        finish_update(self.model, sgd, self.learn_rate_factor)

    def score(self, examples: Iterable[Example], **settings: Any) -> dict[str, Any]:
        """Score predictions. With a `spans_key`, spaCy's scorer of spans replaces that of entities.

        examples (Iterable[Example]): The examples, with predicted docs.
        **settings (Any): Settings of the scorer.
        RETURNS (dict[str, Any]): The scores: with a `spans_key` "sc", `spans_sc_f` and others.
        """
        key = self.objective.spans_key
        if key is not None and self.scorer is ner_score:
            return spancat_score(examples, spans_key=key)
        own = {"component": self.name} if key is None else {"spans_key": key}
        return super().score(examples, **{**settings, **own})

    @property
    def trained_on(self) -> Array1d:
        """The hashes of the long sentences that the component was initialized with, ascending:
        see `sentence_ids`. None of models that were saved before these were kept. Shape: (S,)"""
        return unpack_ids(self.cfg["trained_on"])

    @property
    def progress(self) -> Progress:
        """How far training has come."""
        return Progress(**self.cfg["progress"])

    # Prediction

    def predict(self, docs: Iterable[Doc]) -> Prediction:
        """Predict the entities of docs, without modifying them.

        docs (Iterable[Doc]): The docs.
        RETURNS (Prediction): Their entities.
        """
        self.check_guarantee()
        docs = several(docs)
        guarantee = self.cfg["guarantee"]
        self.compare_reading(docs)
        groups = [group_of(doc, guarantee["by_group"]) for doc in docs] if guarantee else []
        if guarantee and (new := {*map(str, groups)} - guarantee["groups"].keys()):
            warnings.warn(
                f"{self.name}: no guaranteed set for docs whose {guarantee['by_group']!r} is "
                f"{', '.join(sorted(new))}: nothing is promised of them",
                stacklevel=2,
            )
        tokens, posterior = self._posterior(docs, preset=True)
        return make_prediction(
            self.decode(posterior),
            posterior,
            tokens,
            self.confidence,
            guarantee,
            groups,
            others=self.other_labels,
            is_scored=self.objective.spans_key is not None,
            is_measured=self.cfg["shift"] is not None,
        )

    def set_annotations(self, docs: Iterable[Doc], prediction: Prediction) -> None:
        """Write predicted entities to docs: to `doc.ents`, where preset annotation stays, or with a
        `spans_key` to `doc.spans`, where spans of other labels stay.

        docs (Iterable[Doc]): The docs.
        prediction (Prediction): What `predict` returned for them.
        """
        key = self.objective.spans_key
        annotate(list(docs), prediction, self.name, self.confidence, key)

    def posterior(self, docs: Iterable[Doc], *, preset: bool = False) -> Posterior:
        """Compute the probabilities of tags and entities.

        docs (Iterable[Doc]): The docs.
        preset (bool): Whether the entities of the docs are taken as given, or ignored.
        RETURNS (Posterior): The probabilities, with the tokens of all docs in one array.
        """
        return self._posterior(several(docs), preset=preset)[1]

    def _posterior(self, docs: list[Doc], *, preset: bool) -> tuple[TokenAttrs, Posterior]:
        """The tokens of docs with their presets, and the probabilities."""
        tokens = self.objective.read_presets(docs)
        given = tokens if preset else tokens.without_annotation()
        tags, untrained = self.chain_tags, self.cfg["untrained"]
        allowed = possible_paths(given, tags, self.vocab.strings, untrained=untrained)
        if len(tokens.iob):
            self._require_labels()
            scores = self.model.predict(docs)
        else:
            scores = no_scores(tokens.lengths, len(tags), "float32")
        # A preset entity across a border joins two sequences.
        borders = find_borders(docs, self.sentence_boundaries) & (given.iob != INSIDE)
        lengths, doc_of = cut(tokens.lengths, borders)
        posterior = Posterior(
            chain.constrain(scores._replace(lengths=lengths), allowed),
            tags,
            temperature=Temperature(**self.cfg["temperature"]),
            is_space=tokens.is_space,
            doc_of=doc_of,
        )
        return tokens, posterior

    def k_best(self, docs: Iterable[Doc], k: int = 5) -> list[list[Hypothesis]]:
        """Predict the k most probable analyses of docs. Preset entities are ignored.

        docs (Iterable[Doc]): The docs.
        k (int): The number of analyses, at least 1.
        RETURNS (list[list[Hypothesis]]): Up to k hypotheses for each doc, with their entities,
            their probability and its logarithm, the most probable first.
        RAISES (ValueError): If `docs` is a doc, or k less than 1.
        """
        docs = several(docs)
        tokens, posterior = self._posterior(docs, preset=False)
        tags, (paths, log_probs) = self.tags, posterior.best_paths(k)
        hypotheses: list[list[Hypothesis]] = [[] for _ in docs]
        for path, of_path in zip(paths, log_probs):
            entities = tags.decode(path, tokens.lengths).trim(tokens.is_space)
            by_doc = spans_by_doc(docs, entities, tags.labels, tokens.lengths)
            for of_doc, (spans, _), log_p in zip(hypotheses, by_doc, of_path.tolist()):
                if log_p > -inf:
                    of_doc.append(Hypothesis(spans, exp(log_p), log_p))
        return hypotheses

    def decode(self, posterior: Posterior) -> DecodedSpans:
        """Decode entities, with the current settings of decoding."""
        return self._decoding.decode(posterior, self.cfg["decoding"])

    @property
    def cost(self) -> Cost | None:
        """The cost of mistakes, if decoding is by cost."""
        decode = self._decoding.decode
        return decode.cost if isinstance(decode, MinCost) else None

    def expected_costs(self, posterior: Posterior) -> Floats1d:
        """The expected cost of the tag that is predicted for each token by decoding by cost. With
        another decoding, a wrong tag costs 1.

        posterior (Posterior): The probabilities.
        RETURNS (Floats1d): The costs. Shape: (N,)
        """
        decode = self._decoding.decode
        min_cost = decode if isinstance(decode, MinCost) else MinCost(hamming_cost, None)
        return min_cost.expected_costs(posterior)

    # Settings of prediction

    def set_decoding(self, decoding: Decoding) -> None:
        """Change the decoding, without training again. Its settings are in `cfg["decoding"]`.

        decoding (Decoding): The decoding.
        RAISES (ValueError): If its settings don't fit the labels of a trained model.
        """
        if self.labels and self.model.has_dim("nO"):
            decoding.check(self.tags, decoding.settings)
        self.drop_guarantee("another decoding", keep_shift=True)
        self._decoding = decoding
        self.cfg["decoding"] = deepcopy(decoding.settings)
        self._configured["decoding"] = deepcopy(decoding.settings)

    def check_decoding(self, tags: Tags) -> None:
        """Check that the settings of decoding fit the labels."""
        self._decoding.check(tags, self.cfg["decoding"])

    @property
    def confidence(self) -> Confidence | None:
        """Where the probabilities of entities are written."""
        settings = self.cfg["confidence"]
        if settings and not isinstance(settings, dict):
            raise ValueError(f"confidence: expected a block of settings, got {settings!r}")
        return Confidence(**settings) if settings else None

    def set_confidence(self, confidence: Confidence | None) -> None:
        """Change where the probabilities of entities are written. The settings are in
        `cfg["confidence"]`. With a `spans_key`, the name of the component precedes the default key
        "confidence", as several components may share their `spans_key`, but not this one.

        confidence (Confidence | None): The settings. None: they are not written.
        RAISES (ValueError): If another extension attribute of spans has that name, or the spans of
            entities have that key.
        """
        if confidence is not None:
            key = self.objective.spans_key
            if key is not None and confidence.spans_key == Confidence.spans_key:
                confidence = replace(confidence, spans_key=f"{self.name}_confidence")
            if confidence.spans_key == key:
                raise ValueError(
                    f"{self.name}: confidence.spans_key: expected another key than the spans_key "
                    f"of the component, got {key!r}"
                )
            register(confidence)
        else:
            register_default()
        self.cfg["confidence"] = confidence and asdict(confidence)
        self._configured["confidence"] = confidence and asdict(confidence)

    @property
    def guarantee(self) -> Cfg | None:
        """The promise of `doc.spans[spans_key + "_guaranteed"]`: the settings of
        `cli.guarantee.guarantee`, the thresholds and the calibration docs. None: there is none, or
        it doesn't hold for the current settings."""
        return None if self._changed_since_promise() else self.cfg["guarantee"]

    def set_guarantee(self, promise: Cfg) -> None:
        """Promise something of the component's sets, with its current settings. The promise is in
        `nlp.meta["guarantee"]`, too, by the name of the component.

        promise (Cfg): The promise, as JSON. In "groups", by group, "threshold" and "labels" are the
            least score of spans in the set, in all and by label.
        """
        promise = {**promise, "reading": self.cfg["reading"]}
        self.cfg["guarantee"] = {**promise, "holds_for": self._settings()}
        self.meta.setdefault("guarantee", {})[self.name] = promise

    def shift(
        self,
        docs: Iterable[Doc],
        *,
        earlier: Shift | Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> Shift:
        """Test without labels whether docs are still like the calibration docs, and compute the
        scores that are expected of them. Only text of which the model is less sure alarms.

        The same docs in the same batches have the same result, whatever threads and processes
        predicted them. In other batches some scores differ in their fourth digit, and their
        p-values with them.

        docs (Iterable[Doc]): Docs that this component has predicted, as `nlp.pipe` returns them, in
            random order. Those without tokens that it predicts are left out.
        earlier (Shift | Mapping[str, Any] | None): The result of docs before them, or what its
            `to_json` returned, to go on from. They are not tested again.
        seed (int): The seed of the test: that of the earlier docs.
        RETURNS (Shift): The test of all docs so far.
        RAISES (ValueError): If there are no scores of calibration docs, a doc was predicted
            without, `docs` is a doc, or the earlier docs had another seed or other calibration
            docs.
        """
        refuse_doc(docs)
        self.check_guarantee()
        calibration = self.cfg["shift"]
        if calibration is None or self.confidence is None:
            raise ValueError(
                f"{self.name}: shift: expected scores of calibration docs, got none: run `python "
                "-m spacy costner guarantee`, or `calibrate`"
            )
        if earlier is not None and not isinstance(earlier, Shift):
            earlier = restore(earlier, calibration, seed)
        counts = {} if earlier is None else {**earlier.counts}
        scores: list[float] = []
        for doc in docs:
            scores += add_measures(
                doc, self.confidence.spans_key, self.name, self.own_labels, counts
            )
        return find_shift(calibration, scores, counts, earlier=earlier, seed=seed)

    def set_shift(
        self, docs: Sequence[Doc], scores: Floats1d, source: str, *, approximate: bool
    ) -> None:
        """Keep the scores of calibration docs for `shift`, (B,), also by each value of their
        `user_data` that enough docs have. `approximate`: whether the temperature was fitted on
        them."""
        keys: dict[str, dict[str, list[float]]] = {}
        kept = sorted((a, i) for i, a in enumerate(rounded(scores).tolist()) if not isnan(a))
        for score, i in kept:
            for key, value in short_values(docs[i].user_data).items():
                keys.setdefault(key, {}).setdefault(str(value), []).append(score)
        enough = {k: {v: a for v, a in own.items() if len(a) >= ENOUGH} for k, own in keys.items()}
        self.cfg["shift"] = {
            "scores": [score for score, _ in kept],
            "digest": digest_of(scores),
            "keys": {key: own for key, own in enough.items() if own},
            "source": source,
            "approximate": approximate,
            "reading": self.cfg["reading"],
            "holds_for": self._settings("decoding"),
        }

    def set_reading(self, reading: Reading) -> None:
        """Keep how the docs were read that the component is calibrated, tuned or guaranteed on.
        Warn if they were read in the other way before.

        reading (Reading): See `reading.find_reading`.
        """
        before = read_reading(self.cfg["reading"])
        if before is not None and before.file_tokens != reading.file_tokens:
            warnings.warn(
                f"{self.name}: docs were read with {reading.describe()}, and for an earlier "
                f"`calibrate`, `tune` or `guarantee` with {before.describe()}: run all of them "
                "either with --file-tokens, or without",
                stacklevel=2,
            )
        self.cfg["reading"] = reading._asdict()
        self._n_compared = 0

    def compare_reading(self, docs: Sequence[Doc]) -> None:
        """Warn, once, if docs have other sentence starts or tokens than those that the component
        was measured on. Of a batch the longest doc is compared, in the first batches.

        docs (Sequence[Doc]): The docs, as the component gets them.
        """
        reading = read_reading(self.cfg["reading"])
        if reading is None or self._n_compared >= N_COMPARED:
            return
        self._n_compared += 1
        uses_starts = bool(self.sentence_boundaries)
        difference = find_difference(reading, docs, self._tokenizer, uses_starts=uses_starts)
        if difference is not None:
            self._n_compared = N_COMPARED
            warnings.warn(f"{self.name}: {difference}", stacklevel=3)

    def _settings(self, *but: str) -> Cfg:
        """The settings that promises depend on, as they are saved."""
        own = {} if self.objective.own_labels is None else {"own_labels": self.own_labels}
        settings = {name: self.cfg[name] for name in HOLDS_FOR if name not in but}
        return srsly.json_loads(srsly.json_dumps({**settings, **own}))

    def drop_guarantee(self, reason: str, *, keep_shift: bool = False) -> None:
        """Drop the promise, if there is one, with a warning, and the scores of calibration docs.
        `reason` is the change after which it doesn't hold."""
        if not keep_shift:
            self.cfg["shift"] = None
        if self.cfg.get("guarantee") is None:
            return
        self.cfg["guarantee"] = None
        self.meta.get("guarantee", {}).pop(self.name, None)
        warnings.warn(
            f"{self.name}: the guarantee is dropped, as it does not hold after {reason}. Run "
            "`python -m spacy costner guarantee` again",
            stacklevel=3,
        )

    def check_guarantee(self) -> None:
        """Drop the promise, with a warning, if a setting that it depends on was changed."""
        if changed := self._changed_since_promise():
            self.drop_guarantee(f"another setting of {changed}", keep_shift=True)
        shift = self.cfg["shift"]
        if shift is not None and shift["holds_for"] != self._settings("decoding"):
            self.cfg["shift"] = None

    def _changed_since_promise(self) -> str | None:
        """The first changed setting that the promise depends on."""
        if (promise := self.cfg["guarantee"]) is None:
            return None
        before, now = promise["holds_for"], self._settings()
        changed = (name for name in {**now, **before} if before.get(name) != now.get(name))
        return next(changed, "confidence" if self.cfg["confidence"] is None else None)

    # Saving

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the component.

        path (str | Path): A directory.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        """
        cfg, model = self._save(exclude)
        writers = {
            "cfg": lambda file: srsly.write_json(file, cfg),
            "vocab": lambda file: self.vocab.to_disk(file, exclude=exclude),
            "model": lambda file: file.write_bytes(model),
        }
        to_disk(path, writers, exclude)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Save the component.

        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (bytes): What `from_bytes` takes.
        """
        cfg, model = self._save(exclude)
        writers: dict[str, Callable[[], bytes]] = {
            "cfg": lambda: srsly.json_dumps(cfg),
            "vocab": lambda: self.vocab.to_bytes(exclude=exclude),
            "model": lambda: model,
        }
        return to_bytes(writers, exclude)

    def _save(self, exclude: Iterable[str]) -> tuple[Cfg, bytes]:
        """The contents of the files cfg and model."""
        tables = self._decoding.tables(self.tags) if self.labels and self._decoding.tables else None
        cfg = {**self.cfg, "configured": self._configured, "decoding_tables": tables}
        model = b"" if "model" in exclude else self.model.to_bytes()
        return sign(cfg, model) if model else cfg, model

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "CostSensitiveNER":
        """Load the component.

        path (str | Path): The directory that `to_disk` wrote.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (CostSensitiveNER): The component.
        RAISES (ValueError): If a file is missing, damaged, not of such a component, not from the
            same save as the other, or saved before 0.2.
        """
        readers: dict[str, Callable[[Path], Any]] = {
            "cfg": srsly.read_json,
            "vocab": lambda file: self.vocab.from_disk(file, exclude=exclude),
            "model": Path.read_bytes,
        }
        saved = {}
        for part in (part for part in readers if part not in exclude):
            with self._naming(part, f"{path}/"):
                saved[part] = readers[part](Path(path) / part)
        return self._load(saved, f"{path}/")

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "CostSensitiveNER":
        """Load the component.

        bytes_data (bytes): What `to_bytes` returned.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (CostSensitiveNER): The component.
        RAISES (ValueError): As `from_disk` does.
        """
        with self._naming("cfg and model", ""):
            parts = srsly.msgpack_loads(bytes_data)
            saved = {name: parts[name] for name in parts if name not in exclude}
            if "vocab" in saved:
                self.vocab.from_bytes(saved["vocab"], exclude=exclude)
            if "cfg" in saved:
                saved["cfg"] = srsly.json_loads(saved["cfg"])
        return self._load(saved, "")

    @contextmanager
    def _naming(self, part: str, where: str) -> Iterator[None]:
        """Turn any error into a ValueError that names a file and its expected contents."""
        try:
            yield
        except Exception as error:
            raise ValueError(
                f"{self.name}: {where}{part}: expected the {part} of a trained cost_sensitive_ner "
                f"with this config, could not read it: {error}"
            ) from error

    def _load(self, saved: dict[str, Any], where: str) -> "CostSensitiveNER":
        """Load the contents of the files "cfg" and "model", as far as they were read, if they fit
        each other and the config. `where` is the directory, for messages."""
        if {"cfg", "model"} <= saved.keys():
            check_digest(saved["cfg"], saved["model"], f"{self.name}: {where}model")
        with self._naming("cfg", where):
            if "cfg" in saved:
                self._load_cfg(upgrade_cfg(saved["cfg"], self.cfg))
        with self._naming("model", where):
            if "model" in saved:
                load_model(self.model, saved["model"])
            n_tags = self.model.maybe_get_dim("nO")
            if self.labels and n_tags not in (None, len(self.chain_tags)):
                raise ValueError(f"expected weights of {len(self.chain_tags)} tags, got {n_tags}")
        return self

    def _load_cfg(self, saved: Cfg) -> None:
        """Load a saved cfg. A setting that was changed on the component keeps its saved value,
        unless the config now differs from the config at the time of saving."""
        self.cfg.update({name: saved[name] for name in self.cfg})
        for name, settings in self._configured.items():
            if saved["configured"].get(name) != settings:
                self.cfg[name] = deepcopy(settings)
        self.objective.restore(self.cfg["cost_tables"], self.tags)
        if self._decoding.restore is not None and saved["decoding_tables"]:
            self._decoding.restore(saved["decoding_tables"])
        check_keys(self.cfg["decoding"], self._configured["decoding"], "decoding")
        if self.labels:
            self.check_decoding(self.tags)
            self._check_own_labels()
        for label in self.labels:
            self.vocab.strings.add(label)
        if self.confidence is not None:
            register(self.confidence)
        self.check_guarantee()


make_cost_sensitive_ner = Language.factory(
    "cost_sensitive_ner",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config=DEFAULT_CONFIG,
    default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
    func=CostSensitiveNER,
)


def refuse_doc(docs: Iterable[Doc]) -> None:
    """RAISES (ValueError): If docs are one doc, whose items are tokens."""
    if isinstance(docs, Doc):
        raise ValueError("docs: expected several docs, as [doc], got a Doc")


def several(docs: Iterable[Doc]) -> list[Doc]:
    """Docs as a list. RAISES (ValueError): If they are one doc."""
    refuse_doc(docs)
    return list(docs)


def rehearsal_targets(teacher: Potentials, n_tags: int, constraints: Constraints) -> SoftTargets:
    """The distribution of an earlier model's paths as a target over K tags. The teacher may have
    fewer tags, K', if labels were added since. Then only paths of its tags are compared, so that
    the probabilities of the other paths are free."""
    (n_tokens, n_known), xp = teacher.emissions.shape, get_array_module(teacher.start)
    possible = constraints.emissions
    possible = numpy.ones((n_tokens, n_tags), dtype=bool) if possible is None else possible
    possible = xp.asarray(possible) & (xp.arange(n_tags) < n_known)
    constraints = constraints._replace(emissions=possible)
    # No path has the other tags, whatever their scores are: those of the teacher's last tag.
    expanded = expand(teacher, numpy.minimum(numpy.arange(n_tags), n_known - 1))
    known = chain.constrain(expanded, constraints)
    weights = xp.ones(len(teacher.lengths))
    expected = chain.log_partition(known)[1](weights)
    entropy = float(chain.entropy(known)[0].sum())
    return SoftTargets(expected, entropy, weights, constraints)
