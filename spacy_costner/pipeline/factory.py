"""The factory of the component and its default config."""

from typing import Callable, List, Optional, Union

from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config, Model

from ..decoding import Decoding
from ..losses import LossSchedule
from ..training.targets import Weights
from ..types import Loss, Potentials
from .annotations import Confidence
from .component import CostSensitiveNER

DEFAULT_CONFIG = Config().from_str(
    """
[cost_sensitive_ner]
scheme = "BILUO"
outside = "single"
weights = null
incorrect_spans_key = null
sentence_boundaries = false
confidence = null
learn_rate_factor = 1.0

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

[cost_sensitive_ner.decoding]
@misc = "spacy_costner.ViterbiDecoding.v1"

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
    loss: Union[Loss, LossSchedule],
    weights: Optional[Weights],
    scheme: str,
    outside: str,
    incorrect_spans_key: Optional[str],
    sentence_boundaries: bool,
    decoding: Decoding,
    confidence: Optional[Confidence],
    scorer: Optional[Callable],
    learn_rate_factor: float,
) -> CostSensitiveNER:
    """Build a named entity recognizer that is trained for the costs of mistakes.

    model (Model[List[Doc], Potentials]): Predicts the potentials of the chain.
    loss (Union[Loss, LossSchedule]): The training loss.
    weights (Optional[Weights]): The weights of tokens and examples in training.
    scheme (str): The tag scheme, "BILUO" or "IOB2".
    outside (str): "single", or "before": O directly before an entity is a tag of its own, by the
        label of the entity.
    incorrect_spans_key (Optional[str]): The key in `doc.spans` of reference docs for spans that
        are known not to be entities.
    sentence_boundaries (bool): Whether entities end where sentences do.
    decoding (Decoding): How entities are predicted.
    confidence (Optional[Confidence]): Where to write the probabilities of entities.
    scorer (Optional[Callable]): The scoring method.
    learn_rate_factor (float): The factor of the learning rate of the weights that stand on the
        Tok2Vec: 1 if it is trained from scratch, about 20 if it is pretrained.
    """
    ner = CostSensitiveNER(
        nlp.vocab,
        model,
        name,
        loss=loss,
        weights=weights,
        scheme=scheme,
        outside=outside,
        incorrect_spans_key=incorrect_spans_key,
        sentence_boundaries=sentence_boundaries,
        decoding=decoding,
        confidence=confidence,
        scorer=scorer,
        learn_rate_factor=learn_rate_factor,
    )
    ner.meta = nlp.meta
    return ner
