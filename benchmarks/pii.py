"""Presidio with our pipelines and with spaCy's `ner`: leaks, false alarms, scores, time.

    python benchmarks/pii.py CORPUS WORKPLACE [en [sparse.cfg 600]]

The corpus of `scripts/make_pii_corpus.py` or one like it, the language, the config of the linear
model, the steps of the CNNs. Pipelines in WORKPLACE are not made again. Needs extra `presidio`.
leaks: share of a doc's entities that are not covered, mean over docs and standard error. wrong:
share of results that touch no entity. exact: share with its extent and label; AUC: area under the
ROC curve of scores against that. All of the NLP engine's results; the time is of all recognizers.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy
import spacy
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from spacy.tokens import Doc, DocBin

from spacy_costner.cli.tables import text_table
from spacy_costner.presidio import CostnerNlpEngine

CONFIGS = Path(__file__).parent.parent / "configs"
PEER, OURS, LINEAR = "spaCy ner", "ours, CNN", "ours, linear"
ENTITIES = NerModelConfiguration().model_to_presidio_entity_mapping


class Tally:
    """What an analyzer found in the test docs. Of results: score, whether exact, whether wrong."""

    def __init__(self, path: Path, engine: type, lang: str, labels: set[str]) -> None:
        entities = {label: ENTITIES.get(label, label) for label in labels}
        settings = NerModelConfiguration(model_to_presidio_entity_mapping=entities)
        nlp_engine = engine([{"lang_code": lang, "model_name": str(path)}], settings)
        analyzer = AnalyzerEngine(nlp_engine=nlp_engine, supported_languages=[lang])
        self.types = sorted(set(entities.values()))
        self.analyze = partial(analyzer.analyze, language=lang)
        self.leaks: list[float] = []
        self.seconds: list[float] = []
        self.results: list[tuple[float, bool, bool]] = []

    def add(self, doc: Doc) -> None:
        began = time.process_time()
        self.analyze(doc.text)
        self.seconds.append(time.process_time() - began)
        found = self.analyze(doc.text, entities=self.types)
        gold = [(e.start_char, e.end_char, ENTITIES.get(e.label_, e.label_)) for e in doc.ents]
        inside = {i for begin, end, _ in gold for i in range(begin, end)}
        for r in found:
            exact = (r.start, r.end, r.entity_type) in gold
            self.results.append((r.score, exact, inside.isdisjoint(range(r.start, r.end))))
        covered = {i for r in found for i in range(r.start, r.end)}
        leaked = [any(token.idx not in covered for token in ent) for ent in doc.ents]
        self.leaks += [float(numpy.mean(leaked))] if leaked else []

    def cells(self) -> list[str]:
        scores, exact, wrong = (numpy.asarray(column) for column in zip(*self.results))
        leaks, shares = 100 * numpy.asarray(self.leaks), (100 * wrong.mean(), 100 * exact.mean())
        numbers = f"{area(scores, exact):.3f}", f"{1000 * numpy.mean(self.seconds):.2f}"
        error = leaks.std() / len(leaks) ** 0.5
        return [f"{leaks.mean():.2f} ± {error:.2f}", *(f"{x:.1f}" for x in shares), *numbers]


def area(scores: numpy.ndarray, right: numpy.ndarray) -> float:
    """The probability that something right scores above something wrong; ties: half."""
    _, place, n = numpy.unique(scores, return_inverse=True, return_counts=True)
    rank = (numpy.cumsum(n) - (n - 1) / 2)[place]
    return float((rank[right].mean() - (right.sum() + 1) / 2) / (~right).sum())


def make(output: Path, *arguments: object) -> Path:
    """Run a command of spaCy, unless there is its output. Not every promise can be made."""
    words = ["-W", "ignore", "-m", "spacy", *map(str, arguments), "--output", str(output)]
    if not output.exists():
        check = "--miss" not in words
        subprocess.run([sys.executable, *words], check=check, stdout=sys.stderr)
    return output


def make_pipelines(corpus: Path, work: Path, lang: str, linear: str, steps: str) -> dict[str, Path]:
    """Train, calibrate, promise. RETURNS (dict[str, Path]): The pipelines, by title."""
    paths = ["--nlp.lang", lang, "--paths.train", corpus / "train.spacy"]
    paths += ["--paths.dev", corpus / "dev.spacy"]
    cnn = [*paths, "--training.max_steps", steps, "--training.eval_frequency", 200]
    fit = ["costner", "fit", CONFIGS / linear, *paths]
    pipelines = {
        PEER: make(work / "ner", "train", CONFIGS / "baseline_ner.cfg", *cnn) / "model-best",
        OURS: make(work / "cnn", "train", CONFIGS / "cnn.cfg", *cnn) / "model-best",
        LINEAR: make(work / "linear", *fit) / "model-best",
    }
    for title in (OURS, LINEAR):
        home, docs = pipelines[title].parent, [pipelines[title], corpus / "dev.spacy"]
        pipelines[title] = at = make(home / "calibrated", "costner", "calibrate", *docs)
        terms = [at, corpus / "calibration.spacy", "--found", "covered", "--miss"]
        for limit in (0.05, 0.02, 0.01):
            promised = make(home / f"miss_{limit}", "costner", "guarantee", *terms, limit)
            if promised.exists():
                pipelines[f"{title}, {100 * limit:g} % promised"] = promised
    return pipelines


def main(corpus: str, work: str, lang: str = "en", *settings: str) -> None:
    paths = make_pipelines(Path(corpus), Path(work), lang, *(settings or ("sparse.cfg", "600")))
    docs = list(DocBin().from_disk(f"{corpus}/test.spacy").get_docs(spacy.blank(lang).vocab))
    labels = {ent.label_ for doc in docs for ent in doc.ents}
    tallies = {
        title: Tally(path, SpacyNlpEngine if title == PEER else CostnerNlpEngine, lang, labels)
        for title, path in paths.items()
    }
    for doc in docs:
        for tally in tallies.values():
            tally.add(doc)
    header = ["", "leaks %", "wrong %", "exact %", "AUC", "CPU ms per text"]
    print(text_table([header, *([title, *tally.cells()] for title, tally in tallies.items())]))


if __name__ == "__main__":
    main(*sys.argv[1:])
