"""What a student keeps of its teachers: F, tokens per CPU second and size, by what it learns from.

    OMP_NUM_THREADS=1 python benchmarks/distill.py train.spacy dev.spacy test.spacy output \
        teacher [teacher ...]

The student is configs/sparse.cfg. It has gold for the first 2,000 sentences of the training corpus,
which has docs of sentences; the other docs are its unlabelled text. The teachers are pipelines;
several are averaged. The student has the language of the first one. Each setting is trained with
three seeds. Speed is the best of three turns of up to 40 docs of the test set, in seconds of the
processor.
"""

import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import mean, stdev

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

from spacy_costner.analysis.distillation import (
    Evaluation,
    evaluate_pipeline,
    evaluate_together,
    load_teacher,
    save_answers,
    save_corpus,
    save_gold,
)
from spacy_costner.analysis.fitting import train_pipeline
from spacy_costner.analysis.preparation import Corpus
from spacy_costner.readers import make_reader, read_docs

CONFIG = Path(__file__).parent.parent / "configs" / "sparse.cfg"
N_GOLD, N_SEEDS, N_TIMED, N_TURNS = 2000, 3, 40, 3
SETTINGS = {
    "best reading": (False, 0.0, 0.0),
    "best reading + gold": (False, 0.0, 1.0),
    "best reading above 0.5 + gold": (False, 0.5, 1.0),
    "best reading above 0.7 + gold": (False, 0.7, 1.0),
    "best reading above 0.9 + gold": (False, 0.9, 1.0),
    "soft": (True, 0.0, 0.0),
    "soft + gold": (True, 0.0, 1.0),
    "soft + gold of weight 3": (True, 0.0, 3.0),
}
"""Soft targets, least confidence, and weight of the gold docs; 0 for none."""

Parts = dict[str, Corpus]
Measured = dict[str, list[Evaluation]]
"""Rows on each part, one for each seed."""


def split(train: Path, output: Path, lang: str) -> tuple[Path, Path]:
    """Save the docs with the first sentences, and the others."""
    nlp, n_sents = spacy.blank(lang), 0
    parts: tuple[list[Doc], list[Doc]] = ([], [])
    for doc in DocBin().from_disk(train).get_docs(nlp.vocab):
        sents = list(doc.sents)
        n_here = min(max(N_GOLD - n_sents, 0), len(sents))
        border = sents[n_here].start if n_here < len(sents) else len(doc)
        for part, span in zip(parts, (doc[:border], doc[border:])):
            if len(span):
                part.append(doc if len(span) == len(doc) else span.as_doc())
                part[-1].has_unknown_spaces = doc.has_unknown_spaces
        n_sents += len(sents)
    paths = output / "gold.spacy", output / "raw.spacy"
    for path, docs in zip(paths, parts):
        DocBin(docs=docs).to_disk(path)
    return paths


def measure(pipelines: Sequence[Language], parts: Parts) -> Measured:
    rows = {
        part: [evaluate_pipeline("", nlp, read) for nlp in pipelines]
        for part, read in parts.items()
    }
    rates = [speed(nlp, parts["test"]) for nlp in pipelines]
    return {
        part: [row._replace(tokens_per_second=rate) for row, rate in zip(of_part, rates)]
        for part, of_part in rows.items()
    }


def speed(nlp: Language, read: Corpus) -> float:
    """Tokens per second of the processor."""
    rates = []
    for _ in range(N_TURNS):
        docs = [example.predicted for example in islice(read(nlp), N_TIMED)]
        began = time.process_time()
        n_tokens = sum(map(len, nlp.pipe(docs)))
        rates.append(n_tokens / (time.process_time() - began))
    return max(rates)


def together(teachers: Sequence[Language], each: list[Measured], parts: Parts) -> Measured:
    """The rows of the mean of several teachers."""
    rows = {part: [row for of_teacher in each for row in of_teacher[part]] for part in parts}
    return {part: [evaluate_together(teachers, rows[part], read)] for part, read in parts.items()}


def students(config: Config, corpus: Path, output: Path) -> list[Language]:
    """A student for each seed."""
    trained = []
    for seed in range(N_SEEDS):
        config = config.copy()
        config["paths"]["train"], config["system"]["seed"] = str(corpus), seed
        trained.append(spacy.load(train_pipeline(config, output, sys.stderr)))
    return trained


def report(name: str, rows: Measured, low: float = 0.0, high: float = 0.0) -> float:
    """Print a row of the table. RETURNS (float): F on the test set."""
    scores = [[100 * row.f_score for row in rows[part]] for part in ("dev", "test")]
    shown = [f"{mean(f):.1f}" + (f" ± {stdev(f):.1f}" if len(f) > 1 else "") for f in scores]
    test = mean(scores[1])
    kept = f"{100 * (test - low) / (high - low):.0f} %" if low else ""
    fastest = max(row.tokens_per_second for of_part in rows.values() for row in of_part)
    size = rows["dev"][0].megabytes
    print(
        f"| {name} | {shown[0]} | {shown[1]} | {kept} | {fastest:,.0f} | {size:.1f} |", flush=True
    )
    return test


def main() -> None:
    train, dev, test, output = map(Path, sys.argv[1:5])
    names = sys.argv[5:]
    output.mkdir(parents=True, exist_ok=True)
    teachers = [spacy.load(name) for name in names]
    lang = str(teachers[0].lang)
    gold, raw = split(train, output, lang)
    config = load_config(CONFIG, interpolate=False)
    config["nlp"]["lang"] = lang
    config["paths"]["dev"] = str(dev)
    nlp = load_model_from_config(config, auto_fill=True)
    parts: Parts = {"dev": make_reader(dev), "test": make_reader(test)}
    print("| | dev F | test F | gain kept | tokens/CPU s | MB |\n|---|---|---|---|---|---|")
    each = [measure([nlp], parts) for nlp in teachers]
    tops = [report(f"teacher: {Path(name).parent.name}", rows) for name, rows in zip(names, each)]
    teachers = [load_teacher(name) for name in names]
    if len(names) > 1:
        tops.append(report("teachers together", together(teachers, each, parts)))
    low = report("gold only", measure(students(config, gold, output), parts))
    corpus = output / "train"
    for name, (soft, least, weight) in SETTINGS.items():
        save_corpus(corpus, save_answers(teachers, nlp.vocab, [raw], output, soft=soft), least)
        if weight:
            save_gold(corpus, read_docs(nlp, gold), weight)
        report(name, measure(students(config, corpus, output), parts), low, tops[-1])


if __name__ == "__main__":
    main()
