"""A tagger of the papers: made within a process, without files."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import spacy
from spacy.language import Language
from spacy.training import Example
from spacy.util import load_config
from thinc.api import Optimizer, fix_random_seed
from thinc.types import Floats2d, FloatsXd

from spacy_costner.ml import linear_part
from spacy_costner.pipeline.component import CostSensitiveNER

from .runner import ROOT

Block = Mapping[str, Any]

SEQUENTIAL: Block = {"@losses": "spacy_costner.Sequential.v1"}
FLAGS = ["is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen"]

TAG_ROWS = 500
UNIFORM: Block = {"average_power": 0.0}
"""Averages over all steps, as in the papers."""
"""Rows of the embedding of parts of speech, which configs/cnn.cfg hasn't."""


def loss_block(name: str, **settings: Any) -> Block:
    """The block of one of our losses."""
    return {"@losses": f"spacy_costner.{name}.v1", **settings}


def features_of(experiment: str) -> Dict[str, Any]:
    """What the config of an experiment, in configs/papers, says of features."""
    config = load_config(ROOT / "configs" / "papers" / f"{experiment}.cfg")
    return dict(config["components"]["ner"]["model"]["features"])


def features_block(**settings: Any) -> Block:
    """The block of a template of features."""
    return {"@misc": "spacy_costner.Features.v1", **settings}


def linear_block(features: Block, **settings: Any) -> Block:
    """The linear CRF of the papers.

    features (Block): What it sees of tokens.
    **settings (Any): Those of AdaGrad. Averages are over all steps, as in the papers.
    """
    architecture = {"@architectures": "spacy_costner.SparseCRF.v1", **UNIFORM, **settings}
    return {**architecture, "features": features}


def cnn_block(attributes: Sequence[str]) -> Block:
    """The CNN of configs/cnn.cfg.

    attributes (Sequence[str]): What it sees of tokens, those of configs/cnn.cfg and TAG.
    """
    return {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": _tok2vec(attributes)}


def hybrid_block(attributes: Sequence[str], features: Block, learn_rate: float) -> Block:
    """The hybrid of configs/hybrid.cfg.

    attributes (Sequence[str]): What the CNN sees of tokens, those of configs/cnn.cfg and TAG.
    features (Block): What the linear part sees.
    learn_rate (float): That of AdaGrad.
    """
    return {
        "@architectures": "spacy_costner.HybridCRF.v1",
        "tok2vec": _tok2vec(attributes),
        "features": features,
        "learn_rate": learn_rate,
        "part_dropout": 1.0,
        **UNIFORM,
    }


def _tok2vec(attributes: Sequence[str]) -> Block:
    model = load_config(ROOT / "configs" / "cnn.cfg")["components"]["tok2vec"]["model"]
    rows = {**dict(zip(model["embed"]["attrs"], model["embed"]["rows"])), "TAG": TAG_ROWS}
    sizes = {"attrs": list(attributes), "rows": [rows[name] for name in attributes]}
    return {**model, "embed": {**model["embed"], "width": model["encode"]["width"], **sizes}}


class Tagger(NamedTuple):
    """A trainable tagger. Those made of the same docs and model have weights that mean the same.

    nlp (Language): A pipeline of nothing else.
    ner (CostSensitiveNER): The component.
    """

    nlp: Language
    ner: CostSensitiveNER

    @property
    def rows(self) -> Floats2d:
        """The weights of a linear model, or of the linear part of a hybrid, to read and to
        write."""
        return linear_part(self.ner.model)[1].rows

    def read_weights(self, optimizer: Optional[Optimizer] = None) -> List[FloatsXd]:
        """Copies of all weights, or of the averages that an optimizer keeps of them."""
        if optimizer is not None:
            with self.nlp.use_params(optimizer.averages):
                return self.read_weights()
        return [weights.copy() for weights in self._weights()]

    def write_weights(self, values: Sequence[FloatsXd]) -> None:
        """Set all weights to what `read_weights` returned, of this or of another tagger."""
        for weights, value in zip(self._weights(), values):
            weights[...] = value

    def _weights(self) -> List[FloatsXd]:
        """All weights."""
        model = self.ner.model
        dense = [
            node.get_param(name)
            for node in model.walk()
            for name in node.param_names
            if node.has_param(name)
        ]
        is_sparse = model.name in ("sparse_crf", "hybrid_crf")
        return [self.rows, *dense] if is_sparse else dense


def make_tagger(
    examples: Sequence[Example],
    *,
    model: Block,
    loss: Block = SEQUENTIAL,
    seed: int = 0,
    scheme: str = "IOB2",
) -> Tagger:
    """Make a tagger that hasn't learned anything.

    examples (Sequence[Example]): What its features and labels are found in. Their docs have
        to have the vocab of a pipeline, such as `spacy.blank("xx").vocab`: in a bare `Vocab`
        words have no lower case, no shape and no flags.
    model (Block), loss (Block): The blocks of the config.
    seed (int): For all that is drawn by chance.
    scheme (str): The tag scheme.
    RETURNS (Tagger): The tagger.
    RAISES (ValueError): If the docs have a bare vocab.
    """
    vocab: Any = examples[0].reference.vocab
    if not vocab.lex_attr_getters:
        raise ValueError("make_tagger: examples: expected the vocab of a pipeline, got a bare one")
    fix_random_seed(seed)
    nlp = spacy.blank("xx", vocab=vocab)
    config = {"model": dict(model), "loss": dict(loss), "scheme": scheme}
    ner: Any = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    nlp.initialize(lambda: list(examples))
    return Tagger(nlp, ner)
