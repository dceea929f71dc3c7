"""What an annotation session saves: F against the number of texts, chosen by the session or at
random.

    OMP_NUM_THREADS=1 python benchmarks/annotation_loop.py FOLDER [corpus ...]

Spanish, GENIA and chunks of experiments/linear.cfg. A seed draws 2,000 sentences of the training
part. They are the texts of a session of `costner serve`, and the annotator answers with gold. F is
the score of the session's model on 800 sentences of the development part, after 50, 100, 200 and
400 annotated texts. The evaluation texts of the session are annotated, too, but not counted. The
session trains after each 50 texts. At random, the model is trained on the same number of random
texts, without evaluation texts. With rules, for Spanish and GENIA, a session begins with a student
that rules.py trains on 700 of the texts. Its F is in the column of 0 texts, and the session chooses
its first texts with it.

FOLDER gets `results.jsonl`, a line for each session. If the script is called again, it continues
with the sessions that are missing. Then it prints the table.
"""

import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import NamedTuple

import spacy
from few import NAMES, read
from rules import N_TRAIN, SHARES, annotate, draw_rules, train_student
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from spacy_costner.readers import (
    Task,
    TaskSpan,
    examples_to_measure,
    make_reader,
    write_tasks,
)
from spacy_costner.serve.proposals import ProposedSpan
from spacy_costner.serve.session import AnnotationSession
from spacy_costner.serve.store import AnnotationStore

SEEDS = range(3)
SIZES = (50, 100, 200, 400)
STEP = 50  # texts between two trainings
N_TEXTS = 2_000
N_DEV = 800
ORDERS = ("loop", "random", "rules")
"""Who chooses the texts: the session; chance; a session that begins with a student of rules."""


class Setting(NamedTuple):
    """A session: a corpus, the seed that draws its texts, and who chooses the next text."""

    corpus: str
    seed: int
    order: str  # one of `ORDERS`


class Result(NamedTuple):
    """A model of a session: the texts and tokens that it was trained on, its F in percent, and the
    CPU seconds of `AnnotationSession.train`, which also measures it and chooses the next texts."""

    texts: int
    tokens: int
    f: float
    seconds: float


def as_task(doc: Doc) -> Task:
    """A sentence as its text, with blanks between the tokens, and the characters of its
    entities."""
    spans = [TaskSpan(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    # A doc that was made of words has a blank after the last one, too.
    return Task(doc.text.rstrip(), spans)


def draw_sentences(corpus: str, part: str, n: int, seed: int) -> list[Doc]:
    """Draw sentences of a part of a corpus."""
    sentences = list(chain.from_iterable(read(corpus, part)))
    return random.Random(seed).sample(sentences, n)


def train_on_rules(
    setting: Setting, texts: Sequence[Doc], dev_path: Path, folder: Path
) -> Language:
    """Train a student of rules, which are drawn from the training part, on some texts."""
    train = list(chain.from_iterable(read(setting.corpus, "train")))
    rules = draw_rules(train, SHARES[setting.corpus], setting.seed)
    answers_path = folder / "answers.jsonl"
    write_tasks(answers_path, [annotate(doc, rules) for doc in texts])
    lang = NAMES[setting.corpus]
    return train_student(lang, answers_path, dev_path, folder / "student", incomplete=True)


def gold_spans(tokenizer: Language, task: Task) -> list[ProposedSpan]:
    """The entities of a text in tokens of the session: all tokens that an entity touches. Of two
    entities that touch the same token, the longer one counts."""
    doc = tokenizer.make_doc(task.text)
    spans: list[Span] = []
    for task_span in task.spans or ():
        label = task_span.label
        span = doc.char_span(task_span.start, task_span.end, label, alignment_mode="expand")
        assert span is not None
        spans.append(span)
    return [ProposedSpan(span.start, span.end, span.label_) for span in filter_spans(spans)]


class Annotator:
    """Answers the texts of a session with gold, in the simulation. The thread of the session isn't
    started. The tasks are its texts with gold."""

    def __init__(self, session: AnnotationSession, tasks: Sequence[Task]) -> None:
        self.session = session
        self.tokenizer = spacy.blank(session.lang)
        self.tasks: Mapping[str, Task] = {task.text: task for task in tasks}
        self.n_texts = 0  # answered ones to train on
        self.n_tokens = 0  # of these

    def annotate(self, key: str) -> None:
        """Answer a text."""
        stored = self.session.store.texts[key]
        task = self.tasks[stored.text]
        spans = gold_spans(self.tokenizer, task)
        # Version 0: the text had no answer before.
        self.session.answer(key, spans, is_left_out=False, seen_version=0)
        if not stored.is_evaluation:
            self.n_texts += 1
            self.n_tokens += len(self.tokenizer.make_doc(task.text))

    def annotate_chosen(self, n_texts: int) -> None:
        """Answer the texts that the session shows, until there are `n_texts` to train on."""
        while self.n_texts < n_texts:
            proposal = self.session.next_text()
            assert proposal is not None
            self.annotate(proposal.key)

    def annotate_random(self, n_texts: int) -> None:
        """Answer random texts, until there are `n_texts` to train on."""
        # The store has texts in random order.
        for key, stored in self.session.store.texts.items():
            is_answered = key in self.session.store.answers
            if self.n_texts < n_texts and not stored.is_evaluation and not is_answered:
                self.annotate(key)


def run_session(setting: Setting, folder: Path) -> Iterator[Result]:
    """Simulate a session. Yields a result for each of `SIZES`, and first for the student of rules,
    if the session begins with one."""
    sentences = draw_sentences(setting.corpus, "train", N_TEXTS, setting.seed)
    tasks = [as_task(doc) for doc in sentences]
    dev_sentences = draw_sentences(setting.corpus, "dev", N_DEV, setting.seed)
    dev_path = folder / "dev.jsonl"
    write_tasks(dev_path, [as_task(doc) for doc in dev_sentences])
    dev_corpus = make_reader(dev_path)

    def score(nlp: Language) -> float:
        """F of a pipeline on the sentences of the development part."""
        return 100 * nlp.evaluate(list(examples_to_measure(nlp, dev_corpus)))["ents_f"]

    labels: set[str] = set()
    for task in tasks:
        labels.update(span.label for span in task.spans or ())

    store = AnnotationStore(folder / "session")
    store.add_texts([task.text for task in tasks], seed=setting.seed)
    start_model: Language | None = None
    if setting.order == "rules":
        to_choose = texts_to_choose(store)
        texts = [doc for doc in sentences if doc.text.rstrip() in to_choose]
        start_model = train_on_rules(setting, texts[:N_TRAIN], dev_path, folder)
        yield Result(0, 0, score(start_model), 0)
    session = AnnotationSession(
        store,
        labels=sorted(labels),
        lang=NAMES[setting.corpus],
        start_model=start_model,
        seed=setting.seed,
    )
    annotator = Annotator(session, tasks)
    sizes: Sequence[int] = SIZES
    # What a session chooses depends on its last model, so it trains after each `STEP` texts.
    if setting.order != "random":
        sizes = range(SIZES[0], SIZES[-1] + 1, STEP)
    for n_texts in sizes:
        if setting.order == "random":
            annotator.annotate_random(n_texts)
        else:
            annotator.annotate_chosen(n_texts)
        began = time.process_time()
        trained = session.train()
        seconds = time.process_time() - began
        assert trained is not None
        if n_texts in SIZES:
            yield Result(n_texts, annotator.n_tokens, score(trained.nlp), seconds)


def texts_to_choose(store: AnnotationStore) -> set[str]:
    """The texts of a session that are not evaluation texts."""
    return {stored.text for stored in store.texts.values() if not stored.is_evaluation}


def read_results(path: Path) -> dict[Setting, list[Result]]:
    """Read the results so far, of complete sessions."""
    results: dict[Setting, list[Result]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf8").splitlines():
            fields = json.loads(line)
            setting = Setting(*fields["setting"])
            results[setting] = [Result(*fields_of_result) for fields_of_result in fields["results"]]
    return results


def print_table(results: Mapping[Setting, Sequence[Result]]) -> None:
    """Print the means over the seeds: F, and in brackets the tokens."""
    sizes = (0, *SIZES)
    print(f"| corpus | order | seeds | {' | '.join(map(str, sizes))} |")
    print(f"|---|---|--:|{'--:|' * len(sizes)}")
    for corpus, order in product(NAMES, ORDERS):
        sessions: list[Sequence[Result]] = []
        for seed in SEEDS:
            sessions.append(results.get(Setting(corpus, seed, order), ()))
        sessions = [session for session in sessions if session]
        cells: list[str] = []
        for size in sizes:
            models = [model for model in chain.from_iterable(sessions) if model.texts == size]
            if models:
                f = mean(model.f for model in models)
                cells.append(f"{f:.1f} ({mean(model.tokens for model in models):,.0f})")
            else:
                cells.append("")
        print(f"| {corpus} | {order} | {len(sessions)} | {' | '.join(cells)} |")


def main(folder: Path, corpora: Sequence[str]) -> None:
    """Run the sessions that have no results yet, and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    for seed, corpus, order in product(SEEDS, corpora, ORDERS):
        setting = Setting(corpus, seed, order)
        has_no_rules = order == "rules" and corpus not in SHARES
        if has_no_rules or setting in read_results(path):
            continue
        with TemporaryDirectory() as temporary:
            results = list(run_session(setting, Path(temporary)))
        with path.open("a", encoding="utf8") as file:
            file.write(json.dumps({"setting": setting, "results": results}) + "\n")
    print_table(read_results(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or [*NAMES])
