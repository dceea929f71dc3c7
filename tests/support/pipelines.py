"""Small pipelines, what they are trained on, and what they answer."""

from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Optimizer

from spacy_costner.costs.tables import make_hierarchical_cost
from spacy_costner.decoding import make_min_cost
from spacy_costner.pipeline.promises import Promise, Thresholds

SMALL = {
    "model": {
        "@architectures": "spacy_costner.LinearChainCRF.v1",
        "tok2vec": {
            "@architectures": "spacy.HashEmbedCNN.v2",
            "pretrained_vectors": None,
            "width": 16,
            "depth": 1,
            "embed_size": 200,
            "window_size": 1,
            "maxout_pieces": 2,
            "subword_features": True,
        },
    }
}
LISTENING = {
    "@architectures": "spacy_costner.LinearChainCRF.v1",
    "tok2vec": {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"},
}
SOFTMAX_MARGIN = {
    "@losses": "spacy_costner.SoftmaxMargin.v1",
    "multiplier": 1.0,
    "cost": {"@misc": "spacy_costner.HammingCost.v1"},
}
TRAIN: list[tuple[str, dict[str, Any]]] = [
    ("Who is Shaka Khan?", {"entities": [(7, 17, "PERSON")]}),
    ("I like London and Berlin.", {"entities": [(7, 13, "LOC"), (18, 24, "LOC")]}),
    ("The Red Sox lost.", {"entities": [(4, 11, "sports-team")]}),
    ("", {"entities": []}),
]
TEXTS = [text for text, _ in TRAIN]


def promise_of(groups: dict[str, Thresholds], *, miss: float) -> Promise:
    """A guarantee without calibration docs."""
    return Promise(miss=miss, groups=groups, source="", docs=0, entities=0, not_counted={})


def pipeline(**settings: Any) -> Language:
    """A blank pipeline with our component on a small CNN, not initialized, with these settings."""
    nlp = spacy.blank("xx")
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={**SMALL, **settings})
    return nlp


def listening(**settings: Any) -> Language:
    """A tok2vec, and our component that listens to it."""
    nlp = spacy.blank("xx")
    nlp.add_pipe("tok2vec", config={"model": SMALL["model"]["tok2vec"]})
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": LISTENING, **settings})
    return nlp


def examples(nlp: Language) -> list[Example]:
    """The four texts of TRAIN, the last of which is empty, with their gold entities."""
    return [Example.from_dict(nlp.make_doc(text), gold) for text, gold in TRAIN]


def numbered_examples(nlp: Language, n: int) -> list[Example]:
    """The texts of TRAIN that have words, n times. They end with a number each, so that they are
    neither training docs nor copies of each other."""
    numbered: list[Example] = []
    for i in range(n):
        for text, gold in TRAIN[:3]:
            numbered.append(Example.from_dict(nlp.make_doc(f"{text} {i}"), gold))
    return numbered


def misaligned_examples(nlp: Language, n: int) -> list[Example]:
    """Docs such as "I like London and Berlin2024x 7". The entity Berlin is only a part of a token
    of the predicted doc."""
    misaligned: list[Example] = []
    for i in range(n):
        before = ["I", "like", "London", "and"]
        predicted = Doc(nlp.vocab, words=[*before, "Berlin2024x", str(i)])
        reference = Doc(
            nlp.vocab,
            words=[*before, "Berlin", "2024x", str(i)],
            spaces=[True] * 4 + [False, True, True],
            ents=["O", "O", "B-LOC", "O", "B-LOC", "O", "O"],
        )
        misaligned.append(Example(predicted, reference))
    return misaligned


def train(nlp: Language, steps: int = 60, optimizer: Optimizer | None = None) -> dict[str, float]:
    """Initialize and train a pipeline. After 60 steps it knows its four texts by heart.

    RETURNS (dict[str, float]): The losses of the last step.
    """
    batch = examples(nlp)
    default = nlp.initialize(lambda: batch)
    default.learn_rate = 0.01
    for _ in range(steps):
        losses = nlp.update(batch, sgd=optimizer or default, losses={})
    return losses


def predict_node_above_labels(nlp: Language, node: str) -> None:
    """Let the component predict an inner node, which is above all of its labels, for entities whose
    label it isn't sure of."""
    ner: Any = nlp.get_pipe("ner")
    tree: Any = {node: {label: {} for label in ner.labels}}
    ner.set_decoding(make_min_cost(cost=make_hierarchical_cost(tree=tree), tree=tree))


def ents(doc: Doc) -> list[tuple[int, int, str]]:
    """Start, end and label of the entities, in characters."""
    return [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]


def load(path: Path, **settings: Any) -> Language:
    """A saved pipeline, with other settings of our component."""
    return spacy.load(path, config={"components": {"ner": settings}})
