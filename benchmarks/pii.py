"""Presidio with our pipelines and with spaCy's `ner`: leaks, false alarms, scores, time.

    python benchmarks/pii.py CORPUS WORKPLACE [--lang en] [--document] [--steps 600]

CORPUS has train, dev, calibration and test.spacy, as `scripts/make_pii_corpus.py` writes them. Models
that are in WORKPLACE are not trained again. Needs the extra `presidio`.

A leak is an annotated entity of which some character is in no result: mean over docs of the share.
`wrong` is the share of results that share no character with an annotated entity. `exact` is the share
of results with extent and label of one, AUC the area under the ROC curve of their scores against
that. `leaks` and `wrong` count the NLP engine's results, the time those of all recognizers.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple

import numpy
import spacy
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from spacy.tokens import Doc, DocBin

from spacy_costner.metrics import text_table
from spacy_costner.presidio import CostnerNlpEngine

CONFIGS = Path(__file__).parent.parent / "configs"
PEER, OURS, LINEAR = "spaCy ner", "ours, CNN", "ours, linear"
LIMITS = (0.05, 0.02, 0.01)
ENTITIES = NerModelConfiguration().model_to_presidio_entity_mapping


class Result(NamedTuple):
    """A result of the NLP engine: its score, whether it is exact, whether it is wrong."""

    score: float
    exact: bool
    wrong: bool


class Tally:
    """What an analyzer found in the test docs."""

    def __init__(self, path: Path, engine: type, language: str) -> None:
        models = [{"lang_code": language, "model_name": str(path)}]
        self.engine, self.language = engine(models=models), language
        self.analyzer = AnalyzerEngine(nlp_engine=self.engine, supported_languages=[language])
        self.leaks: List[float] = []
        self.seconds: List[float] = []
        self.results: List[Result] = []

    def add(self, doc: Doc, types: List[str]) -> None:
        began = time.process_time()
        self.analyzer.analyze(doc.text, language=self.language)
        self.seconds.append(time.process_time() - began)
        found = self.analyzer.analyze(doc.text, language=self.language, entities=types)
        gold = {(e.start_char, e.end_char, ENTITIES.get(e.label_, e.label_)) for e in doc.ents}
        inside, covered = (
            {i for begin, end, _ in spans for i in range(begin, end) if not doc.text[i].isspace()}
            for spans in (gold, {(r.start, r.end, "") for r in found})
        )
        for r in found:
            exact = (r.start, r.end, r.entity_type) in gold
            self.results.append(Result(r.score, exact, inside.isdisjoint(range(r.start, r.end))))
        missed = [not inside.intersection(range(b, e)) <= covered for b, e, _ in gold]
        if gold:
            self.leaks.append(float(numpy.mean(missed)))

    def cells(self) -> List[str]:
        scores, exact, wrong = (numpy.asarray(column) for column in zip(*self.results))
        leak, error = numpy.mean(self.leaks), numpy.std(self.leaks) / len(self.leaks) ** 0.5
        numbers = f"{100 * leak:.2f} ± {100 * error:.2f}", f"{100 * wrong.mean():.1f}"
        share = f"{100 * exact.mean():.1f}"
        return [
            *numbers,
            share,
            f"{area(scores, exact):.3f}",
            f"{1e3 * numpy.mean(self.seconds):.2f}",
        ]


def area(scores: numpy.ndarray, right: numpy.ndarray) -> float:
    """The probability that something right has a higher score than something wrong; ties: half."""
    values, place, n = numpy.unique(scores, return_inverse=True, return_counts=True)
    rank = (numpy.cumsum(n) - (n - 1) / 2)[place]
    n_right = right.sum()
    return float((rank[right].sum() / n_right - (n_right + 1) / 2) / (~right).sum())


def spacy_command(*arguments: object) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "spacy", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def make_pipelines(corpus: Path, work: Path, options: argparse.Namespace) -> Dict[str, Path]:
    """Train, calibrate and guarantee. RETURNS (Dict[str, Path]): The pipelines of the table."""
    paths = ["--paths.train", corpus / "train.spacy", "--paths.dev", corpus / "dev.spacy"]
    paths += ["--nlp.lang", options.lang]
    steps = ["--training.max_steps", options.steps, "--training.eval_frequency", 200]
    linear = "sparse_document.cfg" if options.document else "sparse.cfg"
    ways = {
        PEER: ("train", CONFIGS / "baseline_ner.cfg", *steps),
        OURS: ("train", CONFIGS / "cnn.cfg", *steps),
        LINEAR: ("costner", "fit", CONFIGS / linear, "--online"),
    }
    pipelines = {}
    for title, way in ways.items():
        home = work / title.replace(", ", "_").replace(" ", "_")
        if not home.exists():
            spacy_command(*way, "--output", home, *paths)
        trained = home / "model-best" if way[0] == "train" else home / "model-last"
        pipelines[title] = trained
        if title == PEER:
            continue
        pipelines[title] = home / "calibrated"
        if not pipelines[title].exists():
            dev = corpus / "dev.spacy"
            spacy_command("costner", "calibrate", trained, dev, "--output", pipelines[title])
        for limit in LIMITS:
            promised = pipelines[f"{title}, {100 * limit:g} % promised"] = home / f"miss_{limit}"
            terms = ["--miss", limit, "--found", "covered", "--output", promised]
            docs = corpus / "calibration.spacy"
            if not promised.exists():
                spacy_command("costner", "guarantee", home / "calibrated", docs, *terms)
    return pipelines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("workplace", type=Path)
    parser.add_argument("--lang", default="en")
    parser.add_argument("--document", action="store_true")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    tallies = {
        title: Tally(path, SpacyNlpEngine if title == PEER else CostnerNlpEngine, options.lang)
        for title, path in make_pipelines(options.corpus, options.workplace, options).items()
    }
    vocab = spacy.blank(options.lang).vocab
    docs = list(DocBin().from_disk(options.corpus / "test.spacy").get_docs(vocab))
    types = sorted({ENTITIES.get(ent.label_, ent.label_) for doc in docs for ent in doc.ents})
    for doc in docs:
        for tally in tallies.values():
            tally.add(doc, types)
    header = ["", "leaks %", "wrong %", "exact %", "AUC", "CPU ms per text"]
    print(text_table([header, *([title, *tally.cells()] for title, tally in tallies.items())]))


if __name__ == "__main__":
    main()
