"""Write tests/javascript/golden.json: a small model file, and Python's predictions with it.

    python scripts/make_page_golden.py

The pipeline is trained on some sentences of the demo corpus, with two passes and most kinds of
features that a page supports without a file. Run it again if the format of model files changes, and
check what else has changed.
"""

import base64
import json
from pathlib import Path
from typing import Any

import spacy
from make_demo_corpus import make_corpus
from spacy.language import Language
from spacy.training import Example
from thinc.api import Optimizer

from spacy_costner.export.model import make_web_model
from spacy_costner.readers.offsets import utf16_length

GOLDEN = Path(__file__).parent.parent / "tests" / "javascript" / "golden.json"
N_SENTENCES = 60
N_STEPS = 15
N_TEXTS = 30
MODEL: dict[str, Any] = {
    "@architectures": "spacy_costner.SparseCRF.v1",
    "features": {
        "@misc": "spacy_costner.Features.v1",
        "windows": {
            "ORTH": 1,
            "LOWER": 1,
            "SHAPE": 1,
            "prefix": 0,
            "suffix": 0,
            "flags": 1,
            "caseless": 0,
            "character_type": 1,
        },
        "affixes": [2, 3],
        "min_count": 2,
        "bigrams": {"SHAPE": 1},
        "memory": {"LOWER": 1},
        "elsewhere": {"LOWER": 2},
        "document": {"LOWER": 1},
    },
}
HARD_TEXTS = [
    "",
    " \n ",
    "DR LINCOLN FLEW TO LINCOLN",
    "Lincoln met Jordan in Lincoln.\n\nJordan,  said Dr. Lincoln \U0001f600, is Lincoln\u2019s.",
]


def make_pipeline() -> Language:
    """Train the pipeline."""
    nlp = spacy.blank("en")
    config = {
        "model": MODEL,
        "outside": "before",
        "sentence_boundaries": True,
        "decoding": {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.4},
        "confidence": {"@misc": "spacy_costner.Confidence.v1"},
    }
    ner: Any = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    examples: list[Example] = []
    for doc in list(make_corpus("train").get_docs(nlp.vocab))[:N_SENTENCES]:
        examples.append(Example(nlp.make_doc(doc.text), doc))
    nlp.initialize(lambda: examples)
    optimizer = Optimizer(0.01)
    for _ in range(N_STEPS):
        nlp.update(examples, sgd=optimizer)
    # Use the weights as saved, as integers.
    ner.from_bytes(ner.to_bytes())
    return nlp


def predict(nlp: Language, text: str) -> dict[str, Any]:
    """Get the expected results for a text: its tokens, its entities and their probabilities."""
    doc = nlp(text)
    group = doc.spans["confidence"]
    entities: list[dict[str, Any]] = []
    for span, score in zip(group, group.attrs["scores"]):
        entities.append(
            {
                "start": utf16_length(text[: span.start_char]),
                "end": utf16_length(text[: span.end_char]),
                "label": span.label_,
                "score": float(score),
            }
        )
    return {"text": text, "tokens": [token.text for token in doc], "entities": entities}


def main() -> None:
    """Write the file."""
    nlp = make_pipeline()
    model = base64.b64encode(make_web_model(nlp).data).decode()
    docs = list(make_corpus("test").get_docs(nlp.vocab))[: 2 * N_TEXTS]
    # Two sentences per text, so that words recur.
    texts = [f"{first.text}\n{second.text}" for first, second in zip(docs[::2], docs[1::2])]
    cases = [predict(nlp, text) for text in [*HARD_TEXTS, *texts]]
    golden = {"model": model, "cases": cases}
    GOLDEN.write_text(json.dumps(golden, ensure_ascii=False, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
