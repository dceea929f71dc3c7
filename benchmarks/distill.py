"""Compare students with their teachers: F, tokens per CPU second and size, for different training
data.

    OMP_NUM_THREADS=1 python benchmarks/distill.py train.spacy dev.spacy test.spacy output \
        teacher [teacher ...]

The student is configs/sparse.cfg. Gold annotations are available for the first 2,000 sentences of
the training corpus, whose docs contain sentences; the other docs are unlabelled text. The teachers
are pipelines; several teachers are averaged. The student uses the language of the first teacher.
Each setting is trained with three seeds. Speed is the best of three turns with up to 40 docs of the
test set, in CPU seconds.
"""

import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import mean

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

from spacy_costner.cli.tables import mean_and_deviation
from spacy_costner.readers import make_reader, read_docs
from spacy_costner.workflows.corpora import Corpus
from spacy_costner.workflows.fitting.trainers import train_pipeline
from spacy_costner.workflows.noisy_labels.student_corpus import save_corpus, save_gold
from spacy_costner.workflows.noisy_labels.student_evaluation import (
    Evaluation,
    evaluate_pipeline,
    evaluate_together,
)
from spacy_costner.workflows.noisy_labels.teachers import load_teacher, save_answers

CONFIG = Path(__file__).parent.parent / "configs" / "sparse.cfg"
N_GOLD = 2000
N_SEEDS = 3
N_TIMED = 40
N_TURNS = 3
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
"""Whether targets are soft, the minimum confidence, and the weight of the gold docs (0: none)."""

Parts = dict[str, Corpus]
"""The readers of the "dev" and "test" parts."""

Measured = dict[str, list[Evaluation]]
"""The evaluations on each part, one for each pipeline: a student of each seed, or a teacher."""


def split(train: Path, output: Path, lang: str) -> tuple[Path, Path]:
    """Save the docs of the first `N_GOLD` sentences, and the docs of the other sentences, whose
    annotation is never read. Returns the paths of both files."""
    vocab = spacy.blank(lang).vocab
    n_sents = 0
    gold_docs: list[Doc] = []
    raw_docs: list[Doc] = []
    for doc in DocBin().from_disk(train).get_docs(vocab):
        sents = list(doc.sents)
        # A doc may contain both the last sentence with gold and the first one without.
        n_gold_sents = min(max(N_GOLD - n_sents, 0), len(sents))
        border = len(doc)
        if n_gold_sents < len(sents):
            border = sents[n_gold_sents].start
        add_part(gold_docs, doc[:border])
        add_part(raw_docs, doc[border:])
        n_sents += len(sents)

    gold_path = output / "gold.spacy"
    raw_path = output / "raw.spacy"
    DocBin(docs=gold_docs).to_disk(gold_path)
    DocBin(docs=raw_docs).to_disk(raw_path)
    return gold_path, raw_path


def add_part(docs: list[Doc], span: Span) -> None:
    """Add part of a doc as a new doc, unless it is empty."""
    if len(span) == 0:
        return
    part = span.doc
    if len(span) < len(span.doc):
        part = span.as_doc()
        part.has_unknown_spaces = span.doc.has_unknown_spaces
    docs.append(part)


def measure(pipelines: Sequence[Language], parts: Parts) -> Measured:
    """Evaluate pipelines: their scores on each part, and their speed on the test part."""
    speeds = [speed(nlp, parts["test"]) for nlp in pipelines]
    measured: Measured = {}
    for part, read in parts.items():
        measured[part] = []
        for nlp, tokens_per_second in zip(pipelines, speeds):
            evaluation = evaluate_pipeline("", nlp, read)
            measured[part].append(evaluation._replace(tokens_per_second=tokens_per_second))
    return measured


def speed(nlp: Language, read: Corpus) -> float:
    """Measure the tokens per CPU second."""
    rates = []
    for _ in range(N_TURNS):
        docs = [example.predicted for example in islice(read(nlp), N_TIMED)]
        began = time.process_time()
        n_tokens = sum(len(doc) for doc in nlp.pipe(docs))
        rates.append(n_tokens / (time.process_time() - began))
    return max(rates)


def together(
    teachers: Sequence[Language], measured_teachers: list[Measured], parts: Parts
) -> Measured:
    """Evaluate the mean of several teachers on each part, given the evaluations of each teacher."""
    measured_together: Measured = {}
    for part, read in parts.items():
        evaluations: list[Evaluation] = []
        for measured in measured_teachers:
            evaluations += measured[part]
        measured_together[part] = [evaluate_together(teachers, evaluations, read)]
    return measured_together


def students(config: Config, corpus: Path, output: Path) -> list[Language]:
    """Train a student for each seed."""
    trained = []
    for seed in range(N_SEEDS):
        config = config.copy()
        config["paths"]["train"] = str(corpus)
        config["system"]["seed"] = seed
        trained.append(spacy.load(train_pipeline(config, output, sys.stderr)))
    return trained


def report(name: str, measured: Measured, gold_f: float = 0.0, teacher_f: float = 0.0) -> float:
    """Print a row of the table. Returns the mean F on the test set over seeds, in percent. Given
    the F with gold only and the F of the teacher, the row contains the percentage of the gain
    between them that the student keeps."""
    dev_scores = [100 * evaluation.f_score for evaluation in measured["dev"]]
    test_scores = [100 * evaluation.f_score for evaluation in measured["test"]]
    test_f = mean(test_scores)
    gain_kept = ""
    if gold_f > 0:
        gain_kept = f"{100 * (test_f - gold_f) / (teacher_f - gold_f):.0f} %"
    evaluations = measured["dev"] + measured["test"]
    fastest = max(evaluation.tokens_per_second for evaluation in evaluations)
    megabytes = measured["dev"][0].megabytes
    cells = [name, mean_and_deviation(dev_scores, 1), mean_and_deviation(test_scores, 1)]
    cells += [gain_kept, f"{fastest:,.0f}", f"{megabytes:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    return test_f


def main() -> None:
    """Train students with all settings, and print a row for each setting and for the teachers."""
    train, dev, test, output = map(Path, sys.argv[1:5])
    names = sys.argv[5:]
    output.mkdir(parents=True, exist_ok=True)
    pipelines = [spacy.load(name) for name in names]
    lang = str(pipelines[0].lang)
    gold, raw = split(train, output, lang)
    config = load_config(CONFIG, interpolate=False)
    config["nlp"]["lang"] = lang
    config["paths"]["dev"] = str(dev)
    nlp = load_model_from_config(config, auto_fill=True)
    parts: Parts = {"dev": make_reader(dev), "test": make_reader(test)}

    print("| | dev F | test F | gain kept | tokens/CPU s | MB |\n|---|---|---|---|---|---|")
    measured_teachers = [measure([pipeline], parts) for pipeline in pipelines]
    teacher_f = 0.0  # the F of the last teacher
    for name, measured in zip(names, measured_teachers):
        teacher_f = report(f"teacher: {Path(name).parent.name}", measured)
    # Loaded again, because writing the probabilities of likely entities takes time
    teachers = [load_teacher(name) for name in names]
    if len(names) > 1:
        teacher_f = report("teachers together", together(teachers, measured_teachers, parts))
    gold_f = report("gold only", measure(students(config, gold, output), parts))

    corpus = output / "train"
    for name, (soft, min_confidence, gold_weight) in SETTINGS.items():
        answers = save_answers(teachers, nlp.vocab, [raw], output, soft=soft)
        save_corpus(corpus, answers, min_confidence)
        if gold_weight > 0:
            save_gold(corpus, read_docs(nlp, gold), gold_weight)
        report(name, measure(students(config, corpus, output), parts), gold_f, teacher_f)


if __name__ == "__main__":
    main()
