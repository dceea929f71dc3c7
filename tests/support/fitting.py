"""A linear model and three sentences to fit it to; training with the parts of a component."""

from collections.abc import Sequence
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.ml import linear_part
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.training import online, pieces
from spacy_costner.training.lbfgs import TotalLoss
from spacy_costner.training.segmentations import Segmentations
from spacy_costner.workflows.fitting.variants import change_config

from .config import FEATURES
from .experiment import Experiment

TEXTS = [
    ("Ana saw Rome", "B-X O B-X"),
    ("Rome saw Rome saw", "B-X O B-X O"),
    ("Ana Lee", "B-X I-X"),
]
FEW_FEATURES = {**FEATURES, "windows": {"ORTH": 0, "LOWER": 0, "SHAPE": 0}}
SPARSE = {"@architectures": "spacy_costner.SparseCRF.v1", "features": FEW_FEATURES}
SPARSE_CONFIG: dict[str, Any] = {"components": {"ner": {"model": SPARSE}}}


def loss_block(name: str, **settings: Any) -> dict[str, Any]:
    """The block of a config for a loss. The name is without `spacy_costner.` and `.v1`."""
    return {"@losses": f"spacy_costner.{name}.v1", **settings}


def examples_of(nlp: Language, docs: Sequence[tuple[str, str]] = TEXTS) -> list[Example]:
    """Examples of words and IOB2 tags, both separated by spaces."""
    examples = []
    for text, tags in docs:
        words = text.split()
        reference = Doc(nlp.vocab, words=words, ents=tags.split())
        examples.append(Example(Doc(nlp.vocab, words=words), reference))
    return examples


def initialized(**settings: Any) -> tuple[Language, list[Example]]:
    """A pipeline of a sparse CRF, initialized with the three sentences; and their examples."""
    nlp = spacy.blank("xx")
    config = {"model": SPARSE, "scheme": "IOB2", **settings}
    nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    examples = examples_of(nlp)
    nlp.initialize(lambda: examples)
    return nlp, examples


def read_batches(ner: CostSensitiveNER, batches: Sequence[list[Example]]) -> list[online.Batch]:
    """What online training reads of batches of examples."""
    return online.read_batches(ner.model, ner.objective, ner.chain_tags, batches).by_doc


def read_pieces(
    ner: CostSensitiveNER, examples: Sequence[Example], most_words: int, **settings: Any
) -> list[pieces.Piece]:
    """What online training reads of docs that are cut into pieces of at most so many words."""
    parts = (ner.model, ner.objective, ner.chain_tags)
    return pieces.read_pieces(*parts, examples, most_words=most_words, **settings).by_doc


def train(
    ner: CostSensitiveNER, batches: Any, *args: Any, **settings: Any
) -> online.TrainingResult:
    """Train the weights of a component online, from the progress that it has on, and write down its
    new progress."""
    weights = linear_part(ner.model)[1]
    settings = {"progress": ner.progress, **settings}
    batches = Segmentations(list(batches))  # the same ones for all epochs
    trained = online.train(weights, ner.objective, batches, *args, **settings)
    ner.cfg["progress"] = trained.progress._asdict()
    return trained


def total_loss(ner: CostSensitiveNER, examples: Sequence[Example], c2: float) -> TotalLoss:
    """The function that L-BFGS minimises."""
    return TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=c2)


def sparse_config(experiment: Experiment, **changes: Any) -> Config:
    """The config of an experiment, with a sparse CRF and these changes."""
    base = load_config(experiment.config_path, interpolate=False)
    return change_config(change_config(base, SPARSE_CONFIG), changes)
