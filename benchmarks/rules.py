"""Evaluate a student of rules: F if tokens without a matching rule are O, and if they are unknown.

    OMP_NUM_THREADS=1 python benchmarks/rules.py [corpus] [seed ...]

The corpora are Spanish and GENIA of experiments/linear.cfg. The rules are a list of names, such as
a domain expert would write. They are sampled with a seed from the entities of the training part, in
proportion to their frequency. Only strings that are an entity with their label in at least 7 of 10
occurrences are used. The student is trained on 700 sentences of this part, annotated by the rules.
F is computed on 400 sentences of the development part, with the best paths, and with a threshold
chosen by `tune` on 100 other sentences.
"""

import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import spacy
from few import NAMES, read
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config

from spacy_costner.metrics import f_beta
from spacy_costner.readers import Task, TaskSpan, examples_to_measure, make_reader, write_tasks
from spacy_costner.workflows import tune
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.noisy_labels.distillation import distill

SEEDS = range(3)
SHARES = {"spanish": 0.04, "genia": 0.2}
"""The proportion of distinct strings that are in the list."""

LEAST_PRECISION = 0.7
LONGEST = 6  # tokens in a string
N_TRAIN = 700
N_DEV = 500
N_TO_TUNE = 100

Rules = Mapping[tuple[str, ...], str]
"""The label of each string, which is a tuple of tokens."""


def words_of(doc: Doc) -> tuple[str, ...]:
    """Get the words of a sentence."""
    return tuple(token.text for token in doc)


def draw_rules(docs: Sequence[Doc], share: float, seed: int) -> Rules:
    """Sample the strings of the list: see the module's docstring."""
    labels: dict[tuple[str, ...], Counter[str]] = {}
    for doc in docs:
        for ent in doc.ents:
            labels.setdefault(words_of(ent.as_doc()), Counter())[ent.label_] += 1
    n_places: Counter[tuple[str, ...]] = Counter()
    for doc in docs:
        words = words_of(doc)
        for length, begin in product(range(1, LONGEST + 1), range(len(words))):
            string = words[begin : begin + length]
            if len(string) == length and string in labels:
                n_places[string] += 1

    generator = random.Random(seed)
    rules: dict[tuple[str, ...], str] = {}
    drawn: list[tuple[float, tuple[str, ...]]] = []
    for string in sorted(n_places):
        label, n_right = labels[string].most_common(1)[0]
        if n_right >= LEAST_PRECISION * n_places[string]:
            rules[string] = label
            # The smallest of these exponential numbers (with rate n) are a weighted sample.
            drawn.append((generator.expovariate(n_right), string))
    chosen = sorted(drawn)[: int(share * len(drawn))]
    return {string: rules[string] for _, string in chosen}


def annotate(doc: Doc, rules: Rules) -> Task:
    """Annotate a sentence by rules, with the longest matching string at each token."""
    words = words_of(doc)
    spans: list[TaskSpan] = []
    begin = 0
    while begin < len(words):
        end = begin + 1
        for length in range(LONGEST, 0, -1):
            label = rules.get(words[begin : begin + length])
            if label is not None:
                # At the end of a sentence, the slice may contain fewer words than `length`.
                end = min(begin + length, len(words))
                last_token = doc[end - 1]
                spans.append(TaskSpan(doc[begin].idx, last_token.idx + len(last_token), label))
                break
        begin = end
    return Task(doc.text, spans)


def score_rules(docs: Sequence[Doc], rules: Rules) -> tuple[float, float, float]:
    """Compute precision, recall and F of rules, in percent."""
    n_right = 0
    n_found = 0
    n_gold = 0
    for doc in docs:
        gold = {(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents}
        found = {(span.start, span.end, span.label) for span in annotate(doc, rules).spans or ()}
        n_right += len(gold & found)
        n_found += len(found)
        n_gold += len(gold)
    precision = n_right / n_found
    recall = n_right / n_gold
    return 100 * precision, 100 * recall, 100 * float(f_beta(precision, recall))


def gold_task(doc: Doc) -> Task:
    """Convert a sentence with its gold entities to a task."""
    spans = [TaskSpan(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    return Task(doc.text, spans)


def train_student(
    lang: str, answers: Path, dev_path: Path, folder: Path, *, incomplete: bool
) -> Language:
    """Train a student on the annotations of rules, as by `distill`."""
    text = init(train_path=answers, dev_path=dev_path, lang=lang)
    config = Config().from_str(text, interpolate=False)
    with redirect_stderr(StringIO()):
        distilled = distill([str(answers)], config, [], folder, incomplete=incomplete)
    return spacy.load(distilled.path)


def score_student(
    lang: str, answers: Path, dev_path: Path, folder: Path, *, incomplete: bool
) -> str:
    """Train a student on the annotations of rules. Returns cells of the table: precision, recall
    and F, and F with a threshold."""
    nlp = train_student(lang, answers, dev_path, folder, incomplete=incomplete)
    dev_corpus = make_reader(dev_path)
    scores = nlp.evaluate(list(examples_to_measure(nlp, dev_corpus))[N_TO_TUNE:])
    percent = [100 * scores[name] for name in ("ents_p", "ents_r", "ents_f")]
    tune(nlp, list(examples_to_measure(nlp, dev_corpus))[:N_TO_TUNE])
    tuned_scores = nlp.evaluate(list(examples_to_measure(nlp, dev_corpus))[N_TO_TUNE:])
    cells = [f"{value:.1f}" for value in (*percent, 100 * tuned_scores["ents_f"])]
    return " | ".join(cells)


def main(corpora: Sequence[str], seeds: Sequence[int]) -> None:
    """Print a row for the rules and for each student."""
    print("| corpus | seed | strings | | P | R | F | F, tuned |\n|---|--:|--:|---|--:|--:|--:|--:|")
    for seed, corpus in product(seeds, corpora):
        generator = numpy.random.default_rng(seed)
        parts = {part: list(chain.from_iterable(read(corpus, part))) for part in ("train", "dev")}
        rules = draw_rules(parts["train"], SHARES[corpus], seed)
        train = [parts["train"][i] for i in generator.permutation(len(parts["train"]))[:N_TRAIN]]
        dev = [parts["dev"][i] for i in generator.permutation(len(parts["dev"]))[:N_DEV]]
        row = f"| {corpus} | {seed} | {len(rules)}"
        precision, recall, f = score_rules(dev[N_TO_TUNE:], rules)
        print(f"{row} | rules | {precision:.1f} | {recall:.1f} | {f:.1f} | |", flush=True)
        for name, incomplete in (("all O", False), ("`--incomplete`", True)):
            with TemporaryDirectory() as temporary:
                folder = Path(temporary)
                write_tasks(folder / "answers.jsonl", [annotate(doc, rules) for doc in train])
                write_tasks(folder / "dev.jsonl", [gold_task(doc) for doc in dev])
                cells = score_student(
                    NAMES[corpus],
                    folder / "answers.jsonl",
                    folder / "dev.jsonl",
                    folder / "student",
                    incomplete=incomplete,
                )
            print(f"{row} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:2] or [*SHARES], [int(seed) for seed in sys.argv[2:]] or SEEDS)
