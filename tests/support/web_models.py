"""Linear pipelines with random weights, for comparisons of JavaScript with Python."""
# ruff: noqa: RUF001

from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from spacy_costner.export.features import PAGE_FLAGS
from spacy_costner.ml import first_pass_of, linear_part

from .node import Node
from .web import utf16_places

SENTENCES = [
    ("Ana Ruiz flew to Rome on 3 May 1990.", [(0, 8, "person"), (17, 21, "city")]),
    ("RUIZ said that Rome, not Oslo, was home.", [(0, 4, "person"), (15, 19, "city")]),
    ("The Rome Times wrote about John O'Neil-Smith.", [(4, 14, "paper"), (27, 44, "person")]),
    ("In Oslo the Oslo Post has 12 pages.", [(3, 7, "city"), (12, 21, "paper")]),
    ("nobody flew to oslo, wrote the post", []),
    ("New  York \n and New York are cities.", [(0, 9, "city"), (16, 24, "city")]),
]
TEXTS = [
    "",
    " ",
    "\n",
    "Rome",
    *(text for text, _ in SENTENCES),
    "Ana Ruiz met Ruiz in Rome. Rome Times\nRuiz, Rome, Ruiz Rome Ruiz\n\nRome was IV pages.",
    "Rome was Rome to Rome and Rome said Rome flew Rome on Rome",
    "Oslo and Oslo, Oslo or Oslo, not oslo",
    "ANA RUIZ FLEW TO NEW YORK AND TO OSLO",
    "  New   York  \r\n\r\n Oslo \t\t Post  ",
    "👩\u200d👩\u200d👧 Ana 😀 Rome😀 e\u0301 Zu\u0308rich 𝔘𝔫𝔦 𝟜𝟚 RUİZ ΣΟΦΟΣ ǅungla",
    "\u202eRome\u202c שָׁלוֹם (مرحبا) Oslo 中文。Ana",
    "alpha Beta ACGT p53 53p 3,000 - ... ( XIV Σ number agent NUM root",
    "x" * 130 + " " + "Ruiz " * 30,
]
FEATURES: dict[str, Any] = {
    "@misc": "spacy_costner.Features.v1",
    "windows": {
        "ORTH": 2,
        "LOWER": 1,
        "SHAPE": 2,
        "prefix": 1,
        "suffix": 1,
        "flags": 1,
        "PREFIX": 1,
        "SUFFIX": 0,
        "caseless": 1,
        "character_type": 1,
    },
    "flags": [*PAGE_FLAGS],
    "bigrams": {"LOWER": 1, "prefix": 1},
    "memory": {"LOWER": 1, "SHAPE": 0},
    "elsewhere": {"LOWER": 3},
}
TWO_PASSES = {**FEATURES, "document": {"LOWER": 1}}
TREE = {"named": {"person": {}, "place": {"city": {}, "paper": {}}}}


def make_pipeline(
    features: dict[str, Any] = FEATURES,
    *,
    spread: float = 0.4,
    n_copies: int = 1,
    lang: str = "xx",
    **settings: Any,
) -> Language:
    """A linear pipeline of random weights, as it is when it was saved and loaded.

    features: The block of the config.
    spread: The standard deviation of weights.
    n_copies: How often each sentence is in the training corpus.
    lang: The language of the tokenizer. That for many languages is made in the shortest time.
    settings: Other settings of the component. The entities are in `doc.spans["sc"]`, too.
    """
    model = {"@architectures": "spacy_costner.SparseCRF.v1", "features": features}
    nlp = spacy.blank(lang)
    config = {"model": model, "confidence": CONFIDENCE, **settings}
    nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    examples = [
        Example.from_dict(nlp.make_doc(text), {"entities": entities, "spans": {"sc": entities}})
        for text, entities in SENTENCES * n_copies
    ]
    nlp.initialize(lambda: examples)
    rng = numpy.random.default_rng(0)
    ner = nlp.get_pipe("ner")
    _, weights = linear_part(ner.model)
    first_pass = first_pass_of(ner.model)
    passes = [weights] if first_pass is None else [weights, first_pass.weights]
    for weights_of_pass in passes:
        rows = weights_of_pass.rows
        rows[:] = rng.normal(scale=spread, size=rows.shape)
        rows[rng.random(len(rows)) < 0.5] = 0  # features without weights aren't saved
    ner.from_bytes(ner.to_bytes())
    return nlp


CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01}


def predict_in_python(nlp: Language, text: str) -> dict[str, Any]:
    """The tokens of a text, its entities and the guaranteed set, as JavaScript returns them."""
    doc = nlp(text)
    places = utf16_places(text)
    key = nlp.get_pipe("ner").confidence.spans_key
    guaranteed = None
    if f"{key}_guaranteed" in doc.spans:
        guaranteed = _entities(doc, f"{key}_guaranteed", places)
    return {
        "tokens": [[places[token.idx], places[token.idx + len(token)]] for token in doc],
        "entities": _entities(doc, key, places),
        "guaranteed": guaranteed,
    }


def _entities(doc: Doc, key: str, places: list[int]) -> list[dict[str, Any]]:
    """The spans of a group, with their probabilities."""
    group = doc.spans[key]
    entities = []
    for span, score in zip(group, group.attrs["scores"]):
        entities.append(
            {
                "start": places[span.start_char],
                "end": places[span.end_char],
                "label": span.label_,
                "score": float(score),
            }
        )
    return entities


def check_same_entities(
    found: list[dict[str, Any]] | None, expected: list[dict[str, Any]] | None, text: str
) -> None:
    """Check that entities are the same, with probabilities within 1e-4, which are removed from
    them."""
    assert (found is None) == (expected is None), text
    if found is None or expected is None:
        return
    scores = [entity.pop("score") for entity in found]
    expected_scores = [entity.pop("score") for entity in expected]
    assert found == expected, text
    assert scores == pytest.approx(expected_scores, abs=1e-4), text


ANSWER = """
import { readFile } from "node:fs/promises";
import { load } from "${MODULES}/ner.js";
let ner;
async function answer({ model, text, options }) {
  try {
    if (model !== undefined) {
      ner = await load(await readFile(model));
      return { labels: ner.labels, info: ner.info };
    }
    const result = ner(text, options);
    return {
      entities: [...result],
      tokens: result.tokens?.map(({ start, end }) => [start, end]) ?? null,
      guaranteed: result.guaranteed ?? null,
    };
  } catch (error) {
    return { error: String(error) };
  }
}
"""
"""Loads a model file, or predicts the entities of a text."""


def load_in_node(node: Node, data: bytes, folder: Path) -> dict[str, Any]:
    """Load a model file in Node, and return its labels and its info, or the error."""
    path = folder / "model.bin"
    path.write_bytes(data)
    answer: dict[str, Any] = node.ask({"model": str(path)})
    return answer
