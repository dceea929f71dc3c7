"""A tagger of the papers: made and asked within a process, without files."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_config
from thinc.api import Optimizer, fix_random_seed
from thinc.types import Floats2d, FloatsXd

from spacy_costner.component import CostSensitiveNER
from spacy_costner.layers import linear_part

from .cells import ROOT
from .corpora import bare

Block = Mapping[str, Any]

SEQUENTIAL = {"@losses": "spacy_costner.Sequential.v1"}


def features_of(experiment: str) -> Dict[str, Any]:
    """What the config of an experiment, in configs/papers, says of features."""
    config = load_config(ROOT / "configs" / "papers" / f"{experiment}.cfg")
    return dict(config["components"]["ner"]["model"]["features"])


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
        raise ValueError("make_tagger: examples: expected the vocab of a pipeline, was: a bare one")
    fix_random_seed(seed)
    nlp = spacy.blank("xx", vocab=vocab)
    config = {"model": dict(model), "loss": dict(loss), "scheme": scheme}
    ner: Any = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    nlp.initialize(lambda: list(examples))
    return Tagger(nlp, ner)


def answers(tagger: Tagger, docs: Sequence[Doc]) -> List[Example]:
    """Predict docs: examples of the answers and of the gold."""
    predicted = tagger.nlp.pipe([bare(doc) for doc in docs], batch_size=256)
    return [Example(answer, doc) for answer, doc in zip(predicted, docs)]
