"""Compare the predictions of a page, in Node, with the predictions of the pipeline in Python.

    python scripts/compare_page.py MODEL CORPUS [--texts 2000] [--python-tokens] [--per-text 1]

It prints the number of texts with different entities, the largest difference in probability for
predicted entities and for all other entities with a probability of at least .01, and the speed of
Node.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc

from spacy_costner.export.model import make_web_model
from spacy_costner.pipeline.confidence import Confidence
from spacy_costner.readers import read_docs
from spacy_costner.readers.offsets import utf16_length
from spacy_costner.workflows.components import find_components
from spacy_costner.workflows.config.loading import load_pipeline

PREDICT = Path(__file__).parent.parent / "tests" / "javascript" / "predict.mjs"
FLOOR = 0.01
"""The minimum probability for comparing entities that are not predicted."""

Entity = tuple[int, int, str]
"""The start and end of an entity, in UTF-16 units, and its label."""


class Comparison(NamedTuple):
    """The differences between the predictions for texts.

    other_entities (list[str]): The texts with different entities.
    largest_difference (float): The largest difference in probability.
    n_entities (int): The number of entities predicted in Python.
    """

    other_entities: list[str]
    largest_difference: float
    n_entities: int


def predict_in_python(nlp: Language, docs: Sequence[Doc]) -> list[list[dict[str, Any]]]:
    """Predict the entities of docs with their probabilities, in the format of a page. Other
    entities with at least the probability `FLOOR` are included and marked as not predicted."""
    (ner,) = find_components(nlp).values()
    ner.set_confidence(Confidence(alternatives=FLOOR))
    results: list[list[dict[str, Any]]] = []
    for doc in docs:
        doc = ner(doc)
        spans: list[dict[str, Any]] = []
        for key in ("confidence", "confidence_alternatives"):
            group = doc.spans[key]
            for span, score in zip(group, group.attrs["scores"]):
                spans.append(
                    {
                        "start": utf16_length(doc.text[: span.start_char]),
                        "end": utf16_length(doc.text[: span.end_char]),
                        "label": span.label_,
                        "score": float(score),
                        "is_predicted": key == "confidence",
                    }
                )
        results.append(spans)
    return results


def utf16_tokens(doc: Doc) -> list[tuple[int, int]]:
    """Get the start and end of each token of a doc, in UTF-16 units."""
    tokens = []
    begin = 0
    for token in doc:
        end = begin + utf16_length(token.text)
        tokens.append((begin, end))
        begin = end + utf16_length(token.whitespace_)
    return tokens


def predict_in_node(model: bytes, docs: Sequence[Doc], *, give_tokens: bool) -> dict[str, Any]:
    """Predict the texts of docs in Node, with Python's tokens if `give_tokens`. Returns the output
    of predict.mjs: the "results" for the texts, their "words", and the CPU "seconds" for prediction
    and, as "load", for loading."""
    texts: list[dict[str, Any]] = []
    for doc in docs:
        texts.append({"text": doc.text})
        if give_tokens:
            texts[-1]["tokens"] = utf16_tokens(doc)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("model.bin", "texts.json", "results.json")]
        model_path, texts_path, results_path = paths
        model_path.write_bytes(model)
        texts_path.write_text(json.dumps({"texts": texts, "floor": FLOOR}), encoding="utf8")
        subprocess.run(["node", str(PREDICT), *map(str, paths)], check=True)
        return json.loads(results_path.read_text(encoding="utf8"))


def compare(
    docs: Sequence[Doc],
    in_python: Sequence[Sequence[dict[str, Any]]],
    in_node: Sequence[dict[str, Any]],
) -> Comparison:
    """Compare the entities of docs, and the probabilities of all possible entities. If only one
    side returns an entity, the difference is between its probability and `FLOOR`."""
    other_entities: list[str] = []
    largest_difference = 0.0
    n_entities = 0
    for doc, spans, result in zip(docs, in_python, in_node):
        predicted = {key_of(span) for span in spans if span["is_predicted"]}
        n_entities += len(predicted)
        if predicted != {key_of(span) for span in result["entities"]}:
            other_entities.append(doc.text)
        python_scores = {key_of(span): span["score"] for span in spans}
        node_scores = {key_of(span): span["score"] for span in result["likely"]}
        node_scores.update({key_of(span): span["score"] for span in result["entities"]})
        for key in python_scores.keys() | node_scores.keys():
            difference = abs(python_scores.get(key, FLOOR) - node_scores.get(key, FLOOR))
            largest_difference = max(largest_difference, difference)
    return Comparison(other_entities, largest_difference, n_entities)


def key_of(span: dict[str, Any]) -> Entity:
    """Get an entity without its probability."""
    return (span["start"], span["end"], span["label"])


def read_texts(nlp: Language, path: str, n_texts: int, n_per_text: int) -> list[Doc]:
    """Read the first texts of a corpus, tokenized by a pipeline. Each text consists of `n_per_text`
    docs of the corpus, separated by line breaks. Remaining docs at the end are left out."""
    texts: list[str] = []
    lines: list[str] = []
    for doc in read_docs(nlp, path):
        lines.append(doc.text)
        if len(lines) == n_per_text:
            texts.append("\n".join(lines))
            lines = []
        if len(texts) == n_texts:
            break
    return [nlp.make_doc(text) for text in texts]


def main() -> None:
    """Compare the predictions, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--per-text", type=int, default=1)
    parser.add_argument("--python-tokens", action="store_true")
    arguments = parser.parse_args()

    nlp = load_pipeline(arguments.model)
    model = make_web_model(nlp)
    print(f"model file: {len(model.data):,} bytes, {model.n_words:,} words")
    docs = read_texts(nlp, arguments.corpus, arguments.texts, arguments.per_text)
    in_node = predict_in_node(model.data, docs, give_tokens=arguments.python_tokens)
    words = in_node["words"]
    speed = words / in_node["seconds"]
    print(f"Node: loaded in {in_node['load']:.3f} s, {words:,} words, {speed:,.0f} a second")
    comparison = compare(docs, predict_in_python(nlp, docs), in_node["results"])
    print(f"{len(docs):,} texts, {comparison.n_entities:,} entities")
    print(f"{len(comparison.other_entities):,} texts with other entities")
    print(f"largest difference of a probability: {comparison.largest_difference:.2g}")
    for text in comparison.other_entities[:5]:
        print(f"  {text[:100]!r}")


if __name__ == "__main__":
    main()
