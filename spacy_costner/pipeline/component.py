"""The pipeline component `cost_sensitive_ner`: its settings, training and prediction.

The component delegates most of its work: `training.objective` computes the loss, `prediction`
computes entities and probabilities, and `doc_writer` writes them to docs. Its base classes
implement saving and loading (`saved_pipe`) and the storage of calibration results
(`calibrated_pipe`).

The model scores the tags of each token. The scores of a batch are called *potentials*. They define
a probability distribution over tags and entities, the *posterior*, and *decoding* selects entities
from it. A *preset* entity is an entity that is set on a doc before the component runs. A
*guarantee*, created by the command `guarantee`, is a statement such as "this set of spans misses at
most 5% of the entities".
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from itertools import islice
from math import exp, inf
from typing import Any

from spacy.attrs import ORTH
from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.pipeline.ner import DEFAULT_NER_MODEL, ner_score
from spacy.pipeline.spancat import spancat_score
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.util import check_lexeme_norms, minibatch
from thinc.api import Model, Optimizer, set_dropout_rate
from thinc.types import Array1d, Floats1d

from .. import chain
from ..annotation.borders import Boundaries
from ..annotation.doc_arguments import list_docs
from ..annotation.settings import Annotation
from ..annotation.tokens import TokenAttrs, possible_paths, read_token_attrs
from ..costs.tables import hamming_cost
from ..decoding import DecodedSpans, Decoding, MinCost, Posterior, Temperature
from ..features import FeatureBatch
from ..losses import LossSchedule
from ..ml import first_pass_of, is_linear
from ..tags import SINGLE, Tags
from ..training.folds import train_first_pass, train_linear_part
from ..training.known_text import Recurring, pack_ids, passage_ids, unpack_ids
from ..training.lbfgs import check_memory
from ..training.objective import Objective, check_finite
from ..training.soft_targets import has_soft_targets, labels_of_teacher
from ..training.stages import warn_of_schedule
from ..training.targets import NEGATED, Weights
from ..types import Cost, Loss, Potentials, Progress, zero_scores
from .calibration_state import CalibrationState
from .confidence import Confidence, register, register_default
from .doc_writer import annotate_docs, spans_by_doc
from .guaranteed_sets import group_of
from .learn_rate import check_factor, finish_update, warn_of_low_rate
from .prediction import Hypothesis, Prediction, make_prediction
from .rehearsal import rehearsal_loss
from .saved_pipe import SavedPipe
from .serialization import Cfg, check_keys, new_cfg
from .training_corpus import find_new_labels, pack_raw_text, read_training_corpus

DEFAULT_CONFIG: dict[str, Any] = {
    "model": {
        "@architectures": "spacy_costner.LinearChainCRF.v1",
        "nO": None,
        "tok2vec": DEFAULT_NER_MODEL["tok2vec"],
    },
    "loss": {"@losses": "spacy_costner.Sequential.v1"},
    "decoding": {"@misc": "spacy_costner.ViterbiDecoding.v1"},
    "confidence": {"@misc": "spacy_costner.Confidence.v1"},
    "scorer": {"@scorers": "spacy.ner_scorer.v1"},
}

SPACY_NAME: Any = vars(Pipe)["name"]
"""The attribute that spaCy's compiled methods read the name of a component from."""

EXAMPLES_PER_BATCH = 256
"""The number of examples whose labels `resume` reads together."""


class CostSensitiveNER(SavedPipe):
    """A named entity recognizer with a linear-chain CRF and cost-sensitive training. It supports
    the same methods as spaCy's `ner`.

    `cfg` is saved with the component. It stores the labels, the tag scheme, the training progress
    and the prediction settings: decoding, confidence and temperature. The prediction settings can
    be changed without retraining, either in `cfg` or with `set_decoding` and `set_confidence`. The
    initial decoding and confidence are defined in the config. The temperature is set by
    `calibrate`.

    model (Model[list[Doc], Potentials]): The model that predicts the potentials of the chain.
    loss (Loss | LossSchedule): The training loss.
    weights (Weights | None): The weights of tokens and examples in training.
    scheme (str): The tag scheme, "BILUO" or "IOB2".
    outside (str): "single": all tokens outside of entities have the tag O. "before": a token
        directly before an entity has a special O tag for the entity's label.
    incorrect_spans_key (str | None): The key in `doc.spans` of reference docs for spans that
        are known not to be entities.
    spans_key (str | None): The key in `doc.spans` to learn from and to write to, instead of
        `doc.ents`, as in spaCy's `spancat`.
    own_labels (list[str] | None): The labels of the spans to write. Requires a `spans_key`. Spans
        with other labels may overlap with these. Those that don't overlap are also used for
        training, so that the labels compete. If None, spans with any label are written.
    filter_spans (bool): Whether to keep only the longest of overlapping spans in training docs. In
        evaluation, all of them count. Otherwise, overlapping spans raise an error. Only applies to
        spans with a label in `own_labels`. Requires a `spans_key`.
    sentence_boundaries (Boundaries): Where to split a doc into separate chains. False: nowhere.
        True: at sentence starts and line breaks. "sentences": at sentence starts.
    decoding (Decoding): How to predict entities.
    confidence (Confidence | None): Where to write the probabilities of entities.
    scorer (Callable | None): The scoring method.
    learn_rate_factor (float): The learning rate of the weights above the Tok2Vec, as a multiple of
        the learning rate of the Tok2Vec. Use 1 if the Tok2Vec is trained from scratch and about 20
        if it is pretrained.
    RAISES (ValueError): If `scheme` or `outside` is unknown, the loss doesn't support weights,
        `own_labels` or `filter_spans` is set without a `spans_key`, the extension name of the
        confidence is already in use (see `set_confidence`), `learn_rate_factor` isn't positive or
        isn't supported by the model, or the model has a fixed number of tags or doesn't score tags.
    """

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
        check_architecture(model, name)
        n_tags = model.maybe_get_dim("nO")
        if n_tags is not None:
            # A pipeline saved with a fixed number of tags couldn't be loaded.
            raise ValueError(
                f"{name}: model.nO: expected null, as the labels determine the number of tags, got "
                f"{n_tags!r}"
            )
        self.vocab = nlp.vocab
        self.meta = nlp.meta  # for `set_guarantee`
        self.model = model
        self.scorer = scorer
        self.annotation = Annotation(
            name,
            spans_key=spans_key,
            own_labels=own_labels,
            filter_spans=filter_spans,
            incorrect_spans_key=incorrect_spans_key,
            sentence_boundaries=sentence_boundaries,
        )
        first_pass = first_pass_of(model)
        if first_pass is not None:
            # The first pass of a linear model is also a chain, split at the same boundaries.
            first_pass.boundaries = sentence_boundaries
        self.learn_rate_factor = check_factor(learn_rate_factor, model, name)
        if weights is None:
            weights = Weights()
        self.objective = Objective(
            name,
            self.vocab.strings,
            loss,
            weights=weights,
            annotation=self.annotation,
            labels_are_given=False,  # until they are passed to `initialize`
        )
        self.name = name

        self.calibration = CalibrationState()
        self._tokenizer = nlp.tokenizer  # for `compare_reading`
        self._rehearsal_model: Model | None = None  # set by spaCy's `resume_training`
        self._refused_labels: set[str] = set()  # labels that `_add_labels_of` couldn't add
        # The docs that `update` has been called with, and their passages: see `_record_passages`.
        self._updated_docs: set[int] = set()
        self._passages_of_updates: set[int] = set()
        self.cfg = new_cfg(scheme, outside)
        # Both are updated if `cfg` is edited: see `chain_tags` and `confidence`.
        self._tags = Tags((), scheme, outside)
        self._confidence: Confidence | None = None
        # The settings of the config. When a component is loaded, `follow_config` uses them to
        # detect whether the config was edited after the component was saved.
        self._configured: Cfg = {}
        self.set_decoding(decoding)
        self.set_confidence(confidence)

    @property
    def name(self) -> str:
        """The name of the component. spaCy sets it if the component is renamed, or sourced under
        another name."""
        return str(SPACY_NAME.__get__(self))

    @name.setter
    def name(self, name: str) -> None:
        SPACY_NAME.__set__(self, name)
        # Messages about training docs and the loss also contain the name.
        self.annotation = replace(self.annotation, component=name)
        self.objective.name = name
        self.objective.annotation = self.annotation

    # Prediction settings

    def set_decoding(self, decoding: Decoding) -> None:
        """Change the decoding, without retraining. Its settings are stored in `cfg["decoding"]`. If
        there is a guarantee, it is dropped with a warning.

        If you save the pipeline, also change the block in `nlp.get_pipe_config(name)`: when the
        pipeline is loaded, the decoding is created from the config.

        decoding (Decoding): The new decoding.
        RAISES (ValueError): If the model is trained, and the settings or the cost of the decoding
            don't match the labels.
        """
        # Before initialization, some labels may still be missing.
        if self.labels and self.model.has_dim("nO"):
            decoding.check(self.tags, decoding.settings)
        # The shift test uses the model's probabilities, which don't depend on the decoding.
        self.drop_guarantee("another decoding", keep_scores=True)
        self._decoding = decoding
        self.cfg["decoding"] = deepcopy(decoding.settings)
        # If the config differs from these settings when the component is loaded, it was edited
        # after the component was saved: see `follow_config`.
        self._configured["decoding"] = deepcopy(decoding.settings)

    @property
    def decoding(self) -> Decoding:
        """The decoding. Its settings are stored in `cfg["decoding"]`."""
        return self._decoding

    def check_decoding(self, tags: Tags) -> None:
        """Check that the settings and the cost of the decoding match the labels.

        tags (Tags): The tags of the labels, with a single O.
        RAISES (ValueError): If the settings or the cost don't match the labels.
        """
        self._decoding.check(tags, self.cfg["decoding"])

    def check_settings(self) -> None:
        """Check that the settings in `cfg`, which may have been edited, are complete and match the
        labels. Raise a ValueError otherwise."""
        self._checked_decoding()
        if self.labels:
            self.check_decoding(self.tags)
            self._check_own_labels()

    def _checked_decoding(self) -> dict[str, Any]:
        """Return the decoding settings in `cfg`, which may have been edited. Raise a ValueError if
        a setting is missing or unknown."""
        settings = self.cfg["decoding"]
        # The settings that the decoding was created with contain all required keys.
        needed_keys = self._configured["decoding"].keys()
        check_keys(settings, needed_keys, where="decoding")
        return settings

    @property
    def confidence(self) -> Confidence | None:
        """Where the probabilities of entities are written. If None, they are not written.

        RAISES (ValueError): If the settings in `cfg` were edited and are invalid.
        """
        settings = self.cfg["confidence"]
        if settings is None:
            return None
        # `cfg` may have been edited since the last call. All settings are optional.
        if self._confidence is None or settings != vars(self._confidence):
            fields = Confidence.__dataclass_fields__
            check_keys(settings, names=(), where="confidence", optional=fields)
            self._confidence = Confidence(**settings)
        return self._confidence

    def set_confidence(self, confidence: Confidence | None) -> None:
        """Change where the probabilities of entities are written. The settings are stored in
        `cfg["confidence"]`.

        Several components may share a `spans_key`, but each needs a separate key for probabilities.
        If the component has a `spans_key`, the default key therefore starts with the name of the
        component: "ner_confidence" instead of "confidence".

        If you save the pipeline, also change the block in `nlp.get_pipe_config(name)`. When the
        pipeline is loaded, the config takes precedence if its settings differ from these.

        confidence (Confidence | None): The settings. If None, probabilities are not written, and
            the next prediction drops any guarantee, because guaranteed spans use the same settings.
        RAISES (ValueError): If another extension of `Span` already uses the name of the extension
            attribute, or the key of the probabilities equals the component's `spans_key`.
        """
        if confidence is None:
            # `span._.confidence` then returns None instead of raising an error.
            register_default()
            settings = None
        else:
            spans_key = self.annotation.spans_key
            is_default_key = confidence.spans_key == Confidence.spans_key
            if spans_key is not None and is_default_key:
                confidence = replace(confidence, spans_key=f"{self.name}_confidence")
            if confidence.spans_key == spans_key:
                raise ValueError(
                    f"{self.name}: confidence.spans_key: expected a key other than the spans_key "
                    f"of the component, got {spans_key!r}"
                )
            register(confidence)
            settings = asdict(confidence)
        self.cfg["confidence"] = settings
        # If the config differs from these settings when the component is loaded, it was edited
        # after the component was saved: see `follow_config`.
        self._configured["confidence"] = deepcopy(settings)

    # Labels and tags

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the component."""
        return tuple(self.cfg["labels"])

    label_data = labels  # in the format expected by `initialize`

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The labels of the entities that the component writes."""
        own_labels = self.annotation.own_labels
        if own_labels is None:
            return self.labels
        return tuple(label for label in self.labels if label in own_labels)

    @property
    def other_labels(self) -> tuple[int, ...]:
        """The labels that the component learns but doesn't write, as indices into `labels`."""
        if self.annotation.own_labels is None:
            return ()
        own_labels = self.own_labels
        return tuple(i for i, label in enumerate(self.labels) if label not in own_labels)

    @property
    def chain_tags(self) -> Tags:
        """The tags of the chain. If `outside` is "before", they include several O tags. See `tags`
        for the tags with a single O."""
        scheme = self.cfg["scheme"]
        outside = self.cfg["outside"]
        # Creating `Tags` is slow, so they are only recreated if `cfg` has been edited.
        tags = self._tags
        if (tags.labels, tags.scheme.name, tags.outside) != (self.labels, scheme, outside):
            self._tags = Tags(self.labels, scheme, outside)
        return self._tags

    @property
    def tags(self) -> Tags:
        """The tags used for annotation, costs and probabilities, with a single O."""
        return self.chain_tags.collapsed

    def add_label(self, label: str) -> int:
        """Add a label. A trained model can only predict it after an update with an entity that has
        this label, or with soft targets whose teacher knows it. If there is a guarantee, it is
        dropped with a warning.

        label (str): The new label.
        RETURNS (int): 0 if the label is already present, otherwise 1.
        RAISES (ValueError): If the label is not a string, is empty, or starts with "!", which marks
            spans that are not entities, or if the component is trained and one of its costs doesn't
            define the label. The component is not modified in this case.
        """
        if not isinstance(label, str) or not label or label.startswith(NEGATED):
            raise ValueError(
                f"{self.name}: label: expected a string that doesn't start with {NEGATED!r} (use "
                f"incorrect_spans_key for spans that are not entities), got {label!r}"
            )
        if label in self.labels:
            return 0

        has_weights = self.model.has_dim("nO")
        if has_weights:
            # If a cost doesn't define the label, this raises an error before anything is changed.
            new_tags = Tags((*self.labels, label), self.cfg["scheme"])
            cost_tables = self.objective.check_costs(new_tags)
            self.check_decoding(new_tags)
            self.cfg["cost_tables"] = cost_tables
        # The guarantee and the scores of calibration docs are only valid for the previous labels.
        self.drop_guarantee(f"add_label({label!r})")
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if has_weights:
            # Resize the model. The weights of the new tags are not trained yet.
            self.set_output(len(self.chain_tags))
            self.cfg["untrained"] = [*self.cfg["untrained"], label]
        return 1

    # Initialization

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        """Initialize the component for training. Existing labels are kept. The guarantee and the
        temperature are reset.

        get_examples (Callable[[], Iterable[Example]]): Function that returns the training examples.
        nlp (Language | None): The current `nlp` object.
        labels (Sequence[str] | None): The labels, as generated by `spacy init labels`. If None, the
            labels are collected from the examples, in alphabetical order.
        RAISES (ValueError): If there are no labels, `own_labels` contains any other label, spans in
            a training doc overlap (see `filter_spans`), the costs, weights or settings of the loss
            or the decoding don't match the labels, or the weights don't fit in memory.
        """

        def first_examples() -> list[Example]:
            # As in spaCy, ten examples are used to validate the data and infer dimensions.
            return list(islice(get_examples(), 10))

        validate_get_examples(first_examples, "CostSensitiveNER.initialize")
        check_lexeme_norms(self.vocab, self.name)
        warn_of_low_rate(nlp, self.model, self.learn_rate_factor, self.name)
        counted = None if is_linear(self.model) else get_examples
        warn_of_schedule(self.objective.loss, nlp, counted, self.name)

        corpus = read_training_corpus(
            get_examples(),
            self.model,
            self.annotation,
            self.vocab,
            expected_labels=self._expected(labels),
        )
        self.cfg.update(corpus.to_cfg(), raw_text=pack_raw_text(nlp))
        self._forget_updates()
        self.cfg["labels_are_given"] = labels is not None
        self.objective.labels_are_given = labels is not None
        if labels is None:
            labels = sorted(corpus.labels)
        for label in labels:
            self.add_label(label)
        self._check_own_labels()
        if not self.labels:
            raise ValueError(
                f"{self.name}: labels: expected at least one, from the entities of the training "
                f"data or from [initialize.components.{self.name}] labels, got none. To assemble "
                f"without training, set source in [components.{self.name}] to a trained pipeline"
            )

        # Check the settings against the labels before anything is trained.
        self.cfg["cost_tables"] = self.objective.check_costs(self.tags)
        self.check_decoding(self.tags)
        self._forget_calibration()

        self.set_output(len(self.chain_tags))
        check_memory(self.model, self.chain_tags, self.name)
        self.model.initialize(X=[eg.predicted for eg in first_examples()])
        # Some parts are trained during initialization (see `training.folds`): the first pass of a
        # two-pass linear model, and the linear part of a hybrid of a Tok2Vec and a linear model.
        train_first_pass(self.model, self.objective, self.chain_tags, get_examples)
        train_linear_part(self.model, self.objective, self.chain_tags, get_examples)
        # Reset stateful losses, in case the pipeline is initialized a second time.
        self.objective.forget()
        self.cfg["progress"] = Progress()._asdict()

    def _expected(self, labels: Sequence[str] | None) -> set[str] | None:
        """Return the given labels together with the component's existing labels: the labels of the
        entities to read. Return None if no labels are given."""
        if labels is None:
            return None
        return {*labels, *self.labels}

    def _forget_calibration(self) -> None:
        """Reset the results of earlier training and calibration, which are invalid for new
        weights."""
        self.drop_guarantee("training")
        self.cfg["temperature"] = Temperature()._asdict()
        self.cfg["untrained"] = []
        # `calibrate`, `tune` and `guarantee` have not been run with the new weights.
        self.reading = None

    def _check_own_labels(self) -> None:
        """Check that `own_labels` is a subset of the component's labels. Raise a ValueError
        otherwise, because an unknown label would never be predicted."""
        own_labels = self.annotation.own_labels or ()
        unknown = [label for label in own_labels if label not in self.labels]
        if unknown:
            raise ValueError(
                f"{self.name}: own_labels: expected a subset of {list(self.labels)}, got {unknown}"
            )

    # Training

    @property
    def raw_text(self) -> Array1d:
        """The sorted hashes of the long sentences (see `sentence_ids`) in the raw text that the
        pipeline's static vectors were trained on. Empty if there are no vectors or their raw text
        is unknown. Shape: (S,)"""
        return unpack_ids(self.cfg["raw_text"])

    @property
    def trained_on(self) -> Array1d:
        """The sorted hashes of the passages that the component was initialized or updated with (see
        `passage_ids`). With `start_from`, they include the hashes of the source pipeline. Empty for
        models saved by versions that didn't store hashes. Shape: (P,)"""
        self._save_passages()
        return unpack_ids(self.cfg["trained_on"])

    @property
    def recurring(self) -> Recurring:
        """The number of recurring passages and the total number of passages in the training corpus.
        Both are 0 for models saved by versions that didn't count them."""
        return Recurring(self.cfg["n_recurring"], self.cfg["n_passages"])

    @property
    def progress(self) -> Progress:
        """The progress of training: updates, epochs and examples."""
        return Progress(**self.cfg["progress"])

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Update the model with a batch of examples. New labels in the examples are added, unless
        the labels were passed to `initialize`. If there is a guarantee, it is dropped with a
        warning.

        examples (Iterable[Example]): A batch of examples with annotated references.
        drop (float): The dropout rate.
        sgd (Optimizer | None): The optimizer. If None, the gradients are kept for `finish_update`.
        losses (dict[str, float] | None): Optional record of the loss, updated in place and keyed by
            component name. The loss is the value of the objective divided by the number of
            annotated tokens, except for losses that are a single ratio: see `get_loss`.
        RETURNS (dict[str, float]): The updated losses dictionary.
        RAISES (ValueError): See `get_loss`. The model is not updated in this case.
        """
        examples, docs, losses = self._start_update(examples, losses, "update")
        self.drop_guarantee("training")
        if not any(len(doc) for doc in docs):
            return losses

        self._add_labels_of(examples)
        set_dropout_rate(self.model, drop)
        features = self._find_features(docs)
        if features is None:
            scores, backprop = self.model.begin_update(docs)
        else:
            # The scores are computed from the features that were looked up for the loss.
            scores, backprop = self.model.attrs["score_features"](self.model, features)
        loss, gradient = self.get_loss(examples, scores, features=features)
        backprop(gradient)
        self._apply_gradients(sgd)
        losses[self.name] += loss

        self._record_passages(examples)
        if self.cfg["untrained"]:
            self._mark_as_trained(examples)
        n_examples = max(self.cfg["n_examples"], 1)  # 0 before `initialize`
        progress = self.progress.after_update(len(examples), n_examples)
        self.cfg["progress"] = progress._asdict()
        return losses

    def resume(self, get_examples: Callable[[], Iterable[Example]]) -> None:
        """Prepare a trained component for further training by `fit`, which doesn't call `update`.
        New labels in the examples are added as in `update`, and the passages of the examples are
        added to `trained_on`. If there is a guarantee, it is dropped with a warning.

        get_examples (Callable[[], Iterable[Example]]): Function that returns the training examples.
        """
        self.drop_guarantee("training")
        passages: Counter[int] = Counter()
        for batch in minibatch(get_examples(), EXAMPLES_PER_BATCH):
            self._add_labels_of(batch)
            self._mark_as_trained(batch)  # `fit` trains all of them next
            for eg in batch:
                passages.update(passage_ids(eg.reference))
        recurring = Recurring.from_counts(passages.values())
        self.cfg["trained_on"] = pack_ids({*self.trained_on.tolist(), *passages})
        self.cfg["n_recurring"] += recurring.n_recurring
        self.cfg["n_passages"] += recurring.n_passages

    def _start_update(
        self, examples: Iterable[Example], losses: dict[str, float] | None, method: str
    ) -> tuple[list[Example], list[Doc], dict[str, float]]:
        """Prepare `update` or `rehearse`: validate the examples and add the component to the
        losses. Returns the examples, their predicted docs and the losses."""
        if losses is None:
            losses = {}
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, f"CostSensitiveNER.{method}")
        docs = [eg.predicted for eg in examples]
        return examples, docs, losses

    def _apply_gradients(self, sgd: Optimizer | None) -> None:
        """Update the weights at the end of `update` or `rehearse`. If `sgd` is None or False (spaCy
        may pass either), the gradients are kept for `finish_update`."""
        if sgd not in (None, False):
            self.finish_update(sgd)

    def _add_labels_of(self, examples: Sequence[Example]) -> None:
        """Add the new labels in a batch, unless labels were passed to `initialize`. This is needed
        with `max_epochs = -1`: the corpus is then streamed, and `initialize` only sees the first
        100 examples. spaCy's `ner` also adds labels during training.

        Labels that aren't defined by a cost can't be added. This only causes a warning, so that
        training can continue. Entities with these labels are treated as missing annotation.

        If it is unknown whether labels were passed to `initialize`, because the model was saved by
        an earlier version, new labels are added with a warning.
        """
        if self.objective.labels_are_given:
            return
        known_labels = {*self.labels, *self._refused_labels}
        for label in sorted(find_new_labels(examples, self.annotation, known_labels)):
            try:
                self.add_label(label)
            except ValueError as error:
                self._refused_labels.add(label)
                warnings.warn(
                    f"{self.name}: the label {label!r} is not added: {error}", stacklevel=3
                )
                continue
            if self.cfg["labels_are_given"] is None:
                warnings.warn(
                    f"{self.name}: the label {label!r} is added, as the model was saved by a "
                    "version that doesn't store whether the user chose the labels. To choose them, "
                    f"set [initialize.components.{self.name}] labels and train from the beginning",
                    stacklevel=3,
                )

    def _mark_as_trained(self, examples: Sequence[Example]) -> None:
        """Mark the labels of a batch as trained: the labels of entities and of soft targets. A
        label added to a trained model is untrained, and is not predicted until the model is updated
        with an entity that has this label, or with the soft targets of a teacher that knows it."""
        batch_labels: set[str] = set()
        for eg in examples:
            if has_soft_targets(eg):  # the entities of this doc aren't used
                batch_labels |= labels_of_teacher(eg.reference)
                continue
            reference = self.annotation.as_entities(eg, self.labels).reference
            batch_labels.update(ent.label_ for ent in reference.ents)
        untrained = self.cfg["untrained"]
        self.cfg["untrained"] = [label for label in untrained if label not in batch_labels]

    def _record_passages(self, examples: Sequence[Example]) -> None:
        """Record the passages of a batch for `trained_on`, because `initialize` may not have read
        them: a loaded component resumes training with other docs, and if a corpus is streamed,
        `initialize` only sees the first 100 examples.

        Hashing passages takes longer than comparing tokens, so a doc with the same tokens as an
        earlier one is skipped. Most docs recur in every epoch.
        """
        for eg in examples:
            tokens = hash(eg.reference.to_array(ORTH).tobytes())
            if tokens not in self._updated_docs:
                self._updated_docs.add(tokens)
                self._passages_of_updates.update(passage_ids(eg.reference))

    def _save_passages(self) -> None:
        """Add the passages of recent updates to `cfg`."""
        if not self._passages_of_updates:
            return
        ids = {*unpack_ids(self.cfg["trained_on"]).tolist(), *self._passages_of_updates}
        self.cfg["trained_on"] = pack_ids(ids)
        self._passages_of_updates.clear()

    def _load_cfg(self, saved: Cfg) -> None:
        """Load the settings and the calibration results: see `SavedPipe`."""
        super()._load_cfg(saved)
        self._forget_updates()

    def _make_contents(self, exclude: Iterable[str]) -> tuple[Cfg, bytes]:
        """Create the contents of the files: see `SavedPipe`."""
        self._save_passages()
        return super()._make_contents(exclude)

    def _forget_updates(self) -> None:
        """Forget the docs of earlier updates. The weights no longer depend on them."""
        self._updated_docs.clear()
        self._passages_of_updates.clear()

    def get_loss(
        self,
        examples: Iterable[Example],
        scores: Potentials,
        *,
        features: FeatureBatch | None = None,
    ) -> tuple[float, Potentials]:
        """Compute the loss of a batch and its gradient.

        examples (Iterable[Example]): A batch of examples with annotated references.
        scores (Potentials): The model's potentials for the predicted docs.
        features (FeatureBatch | None): The features of the predicted docs, looked up with
            `is_train=True`. If None, they are looked up here if the loss uses them.
        RETURNS (tuple[float, Potentials]): The loss per annotated token, and the gradient of the
            loss of the batch. If the loss is a single ratio for the batch, such as an expected F,
            the first value is this ratio.
        RAISES (ValueError): If a score is not finite, spans overlap (see `filter_spans`), or the
            docs have invalid soft targets (see `Objective.targets`).
        """
        examples = list(examples)
        validate_examples(examples, "CostSensitiveNER.get_loss")
        if features is None:
            features = self._find_features([eg.predicted for eg in examples])
        check_finite(scores, self.name)
        feature_rows = None
        if features is not None:
            feature_rows = features.rows
        # Targets depend on the epoch: docs are split at sentence boundaries in every other epoch.
        targets = self.objective.targets_in_epoch(
            examples, self.chain_tags, self.progress.epochs, feature_rows
        )
        # The divisor is the number of annotated tokens, or 1 if the loss is one ratio.
        result, divisor = self.objective.evaluate(targets, scores, self.progress)
        return result.value / divisor, result.gradient

    def _find_features(self, docs: Sequence[Doc]) -> FeatureBatch | None:
        """Look up the features of training docs. Return None if the model has no features or the
        current loss doesn't use them."""
        find_features = self.model.attrs.get("find_features")  # only set by linear models
        current_loss = self.objective.loss.stage_at(self.progress)
        if find_features is None or not current_loss.uses_features:
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
        """Perform a "rehearsal" update: train the model to preserve the predictions of an earlier
        model, saved by `nlp.resume_training`. If `nlp.resume_training` wasn't called, the model is
        not updated. The loss is the Kullback-Leibler divergence between the predictions of the two
        models. Labels added since then are ignored. If there is a guarantee, it is dropped with a
        warning.

        examples (Iterable[Example]): A batch of examples. Their annotation is not used.
        drop (float): The dropout rate of a Tok2Vec. Sparse features and vectors are not dropped.
        sgd (Optimizer | None): The optimizer. If None, the gradients are kept for `finish_update`.
        losses (dict[str, float] | None): Optional record of the loss, updated in place and keyed by
            component name. The loss is the divergence in nats per token.
        RETURNS (dict[str, float]): The updated losses dictionary.
        RAISES (ValueError): If a score is not finite.

        Li & Hoiem (2016): Learning without forgetting, eq. 2, for paths instead of classes.
        """
        _, docs, losses = self._start_update(examples, losses, "rehearse")
        self.drop_guarantee("training")
        if self._rehearsal_model is None or not any(len(doc) for doc in docs):
            return losses

        set_dropout_rate(self.model, drop)
        begin_rehearsal = self.model.attrs.get("begin_rehearsal")  # set by models with features
        if begin_rehearsal is None:
            scores, backprop = self.model.begin_update(docs)
        else:
            # The scores of training docs differ from those in prediction: see `find_features`.
            scores, backprop = begin_rehearsal(self.model, docs)
        check_finite(scores, self.name)
        # The targets are the predictions of the earlier model, not the annotation.
        tokens = read_token_attrs(docs).without_annotation()
        constraints = possible_paths(tokens, self.chain_tags, self.vocab.strings)
        sequence_lengths, _ = self.annotation.cut(docs, tokens)
        teacher = self._rehearsal_model.predict(docs)
        loss, gradient = rehearsal_loss(teacher, scores, sequence_lengths, constraints)
        backprop(gradient)
        self._apply_gradients(sgd)
        losses[self.name] += loss / len(scores.emissions)
        return losses

    def finish_update(self, sgd: Optimizer) -> None:
        """Update the weights with the current gradients: see `learn_rate.finish_update`."""
        finish_update(self.model, sgd, self.learn_rate_factor)

    def score(self, examples: Iterable[Example], **settings: Any) -> dict[str, Any]:
        """Score a batch of examples. If the component has a `spans_key`, spaCy's span scorer is
        used instead of spaCy's entity scorer. Other scorers receive the key as a setting.

        examples (Iterable[Example]): The examples to score, with predicted docs.
        **settings (Any): Additional settings for the scorer. The settings in `cfg` are passed to
            the scorer as well, except to spaCy's span scorer, which only receives the key.
        RETURNS (dict[str, Any]): The scores, keyed by name. For the `spans_key` "sc", the names
            are `spans_sc_f` etc.
        """
        spans_key = self.annotation.spans_key
        if spans_key is None:
            # Our scorers look up the probabilities by component name.
            settings["component"] = self.name
        elif self.scorer is ner_score:
            return spancat_score(examples, spans_key=spans_key)
        else:
            settings["spans_key"] = spans_key
        return super().score(examples, **settings)

    # Prediction

    def predict(self, docs: Iterable[Doc]) -> Prediction:
        """Predict the entities of a batch of docs, without modifying the docs.

        docs (Iterable[Doc]): The docs to predict. Preset entities are treated as certain.
        RETURNS (Prediction): The entities of the docs and their probabilities.
        RAISES (ValueError): If `docs` is a single doc or the component has no labels.
        """
        # A setting in `cfg` may have been edited since the last call.
        self.check_guarantee()
        docs = list_docs(docs)
        self.compare_reading(docs)
        tokens, posterior = self._posterior(docs, preset=True)

        promise = self.calibration.promise
        groups: list[str | None] = []  # one group per doc, if there is a guarantee
        if promise is not None:
            groups = [group_of(doc, promise.by_group) for doc in docs]
            self._warn_of_new_groups(promise, groups)
        return make_prediction(
            self.decode(posterior),
            posterior,
            tokens,
            self.confidence,
            promise=promise,
            groups=groups,
            other_labels=self.other_labels,
            # Spans in `doc.spans` have scores, as in spaCy's `spancat`.
            is_scored=self.annotation.spans_key is not None,
            # Only measured docs can be compared with the calibration docs: see `shift`.
            is_measured=self.calibration.scores is not None,
        )

    def set_annotations(self, docs: Iterable[Doc], prediction: Prediction) -> None:
        """Modify a batch of docs, using predicted entities. Without a `spans_key`, the entities are
        written to `doc.ents`, and preset annotation is kept. Otherwise they are written to
        `doc.spans`, and existing spans with other labels are kept.

        docs (Iterable[Doc]): The docs that were passed to `predict`.
        prediction (Prediction): The return value of `predict`.
        """
        spans_key = self.annotation.spans_key
        annotate_docs(list(docs), prediction, self.name, self.confidence, spans_key)

    def posterior(self, docs: Iterable[Doc], *, preset: bool = False) -> Posterior:
        """Compute the probabilities of tags and entities.

        docs (Iterable[Doc]): The docs, which are not modified.
        preset (bool): Whether to treat preset entities as certain. Otherwise, they are ignored.
        RETURNS (Posterior): The probabilities, with the tokens of all docs concatenated.
        RAISES (ValueError): If `docs` is a single doc or the component has no labels.
        """
        _, posterior = self._posterior(list_docs(docs), preset=preset)
        return posterior

    def _posterior(self, docs: list[Doc], *, preset: bool) -> tuple[TokenAttrs, Posterior]:
        """Compute the probabilities of tags and entities (see `posterior`). Also returns the tokens
        of the docs."""
        tokens = self.annotation.read_presets(docs)
        if not preset:
            tokens = tokens.without_annotation()

        tags = self.chain_tags
        constraints = possible_paths(
            tokens, tags, self.vocab.strings, untrained=self.cfg["untrained"]
        )
        # The model scores whole docs. Only the chain is split into B sequences. Shapes: (B,)
        sequence_lengths, doc_of_sequence = self.annotation.cut(docs, tokens)
        if len(tokens.orth):
            self._require_labels()
            scores = self.model.predict(docs)._replace(lengths=sequence_lengths)
        else:  # no tokens to score, and the weights may not be initialized yet
            scores = zero_scores(sequence_lengths, len(tags), "float32")

        posterior = Posterior(
            chain.constrain(scores, constraints),
            tags,
            temperature=Temperature(**self.cfg["temperature"]),
            is_space=tokens.is_space,
            doc_of_sequence=doc_of_sequence,
        )
        return tokens, posterior

    def k_best(self, docs: Iterable[Doc], k: int = 5) -> list[list[Hypothesis]]:
        """Predict the k most probable analyses of each doc. Preset entities are ignored.

        An analysis is a path of tags. Different analyses may have the same entities: in the IOB2
        scheme, the tags of an entity may also cover the whitespace after it.

        docs (Iterable[Doc]): The docs, which are not modified.
        k (int): The number of analyses, at least 1.
        RETURNS (list[list[Hypothesis]]): Up to k hypotheses for each doc, the most probable first.
            Each contains the entities, the probability of the analysis and its logarithm.
        RAISES (ValueError): If `docs` is a single doc, k is less than 1, or the component has no
            labels.
        """
        docs = list_docs(docs)
        tokens, posterior = self._posterior(docs, preset=False)
        tags = self.tags
        # Row i of the arrays contains the i-th best path of each of the D docs, and its log
        # probability, which is -inf if a doc has fewer paths. Shapes: (k, N) and (k, D)
        paths, log_probs = posterior.best_paths(k)
        hypotheses_of_docs: list[list[Hypothesis]] = [[] for _ in docs]
        for path, log_probs_of_docs in zip(paths, log_probs):
            entities = tags.decode(path, tokens.lengths).trim(tokens.is_space)
            spans_of_docs = spans_by_doc(docs, entities, tags.labels, tokens.lengths)
            # The second value of `spans_by_doc`, the probabilities of spans, is None here.
            rows = zip(hypotheses_of_docs, spans_of_docs, log_probs_of_docs.tolist())
            for hypotheses, (spans, _), log_prob in rows:
                if log_prob > -inf:
                    hypotheses.append(Hypothesis(spans, exp(log_prob), log_prob))
        return hypotheses_of_docs

    def decode(self, posterior: Posterior) -> DecodedSpans:
        """Decode entities with the current decoding settings. Leading and trailing whitespace is
        stripped from the entities.

        posterior (Posterior): The probabilities, as returned by `posterior`.
        RETURNS (DecodedSpans): The entities.
        RAISES (ValueError): If `cfg["decoding"]` was edited and a setting is missing or unknown.
        """
        settings = self._checked_decoding()
        decoded = self._decoding.decode(posterior, settings)
        return decoded._replace(entities=decoded.entities.trim(posterior.is_space))

    @property
    def cost(self) -> Cost | None:
        """The cost of mistakes if decoding minimises the expected cost, otherwise None."""
        decode = self._decoding.decode
        if isinstance(decode, MinCost):
            return decode.cost
        return None

    @property
    def inner_nodes(self) -> tuple[str, ...]:
        """The inner nodes of a label tree that can be predicted instead of labels. Empty if
        decoding only predicts labels.

        RAISES (ValueError): If the cost or the tree can't be read or doesn't match the labels.
        """
        decode = self._decoding.decode
        if isinstance(decode, MinCost):
            # The nodes follow the labels.
            return decode.choices(self.tags).labels[len(self.labels) :]
        return ()

    def expected_costs(self, posterior: Posterior) -> Floats1d:
        """Compute the expected cost of each token's tag under minimum-expected-cost decoding (see
        `MinCost`). With any other decoding, every wrong tag is assumed to have a cost of 1.

        posterior (Posterior): The probabilities, as returned by `posterior`.
        RETURNS (Floats1d): The expected cost of each token. Shape: (N,)
        """
        min_cost = self._decoding.decode
        if not isinstance(min_cost, MinCost):
            min_cost = MinCost(hamming_cost, tree=None)
        return min_cost.expected_costs(posterior)


make_cost_sensitive_ner = Language.factory(
    "cost_sensitive_ner",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config=DEFAULT_CONFIG,
    default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
    func=CostSensitiveNER,
)


def check_architecture(model: Model, name: str) -> None:
    """Check that a model can score tags. Raise a ValueError if its output can't be resized to the
    number of tags, or if it is the model of spaCy's `ner`, which scores parser moves."""
    if "resize_output" not in model.attrs or model.name == "parser_model":
        raise ValueError(
            f"{name}: model: expected an architecture that scores the tags of a chain, such as "
            f"spacy_costner.LinearChainCRF.v1, got the model {model.name!r}"
        )
