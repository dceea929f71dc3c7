"""Measure what an annotation session saves: F by the number of texts, chosen by the session or at
random.

    OMP_NUM_THREADS=1 python benchmarks/annotation_loop.py FOLDER [corpus ...]

The corpora are Spanish, GENIA and chunks of experiments/linear.cfg. Each seed samples 2,000
sentences of the training part. They are the texts of a session of `costner serve`, and the
simulated annotator gives gold annotations. F is the score of the session's model on 800 sentences
of the development part, after 50, 100, 200 and 400 annotated texts. The session's evaluation texts
are also annotated, but not counted. The session trains after every 50 texts. For comparison, a
model is trained on the same number of random texts, without evaluation texts. With rules, for
Spanish and GENIA, a session starts with a student that rules.py trains on 700 of the texts. The
student's F is in the column for 0 texts, and the session uses it to choose the first texts.

The results are written to `results.jsonl` in FOLDER, with a line for each session. If you run the
script again, it continues with the missing sessions. At the end it prints the table.
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
STEP = 50  # the number of texts between trainings
N_TEXTS = 2_000
N_DEV = 800
ORDERS = ("loop", "random", "rules")
"""How texts are chosen: by the session, at random, or by a session that starts with a student of
rules."""


class Setting(NamedTuple):
    """A session: a corpus, the seed for sampling its texts, and how the next text is chosen."""

    corpus: str
    seed: int
    order: str  # one of `ORDERS`


class Result(NamedTuple):
    """A model of a session: the number of texts and tokens that it was trained on, its F in
    percent, and the CPU seconds of `AnnotationSession.train`, which also evaluates the model and
    chooses the next texts."""

    texts: int
    tokens: int
    f: float
    seconds: float


def as_task(doc: Doc) -> Task:
    """Convert a sentence to its text, with spaces between the tokens, and the character offsets of
    its entities."""
    spans = [TaskSpan(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    # A doc made from words also has a space after the last word.
    return Task(doc.text.rstrip(), spans)


def draw_sentences(corpus: str, part: str, n: int, seed: int) -> list[Doc]:
    """Sample sentences from a part of a corpus."""
    sentences = list(chain.from_iterable(read(corpus, part)))
    return random.Random(seed).sample(sentences, n)


def train_on_rules(
    setting: Setting, texts: Sequence[Doc], dev_path: Path, folder: Path
) -> Language:
    """Train a student of rules on some texts. The rules are sampled from the training part."""
    train = list(chain.from_iterable(read(setting.corpus, "train")))
    rules = draw_rules(train, SHARES[setting.corpus], setting.seed)
    answers_path = folder / "answers.jsonl"
    write_tasks(answers_path, [annotate(doc, rules) for doc in texts])
    lang = NAMES[setting.corpus]
    return train_student(lang, answers_path, dev_path, folder / "student", incomplete=True)


def gold_spans(tokenizer: Language, task: Task) -> list[ProposedSpan]:
    """Align the entities of a text with the session's tokens: an entity gets all tokens that it
    overlaps. If two entities overlap the same token, the longer entity is kept."""
    doc = tokenizer.make_doc(task.text)
    spans: list[Span] = []
    for task_span in task.spans or ():
        label = task_span.label
        span = doc.char_span(task_span.start, task_span.end, label, alignment_mode="expand")
        assert span is not None
        spans.append(span)
    return [ProposedSpan(span.start, span.end, span.label_) for span in filter_spans(spans)]


class Annotator:
    """Simulates an annotator who gives gold annotations for the texts of a session. The tasks
    contain the texts and the gold annotations. The session's thread isn't started."""

    def __init__(self, session: AnnotationSession, tasks: Sequence[Task]) -> None:
        self.session = session
        self.tokenizer = spacy.blank(session.lang)
        self.tasks: Mapping[str, Task] = {task.text: task for task in tasks}
        self.n_texts = 0  # annotated texts to train on
        self.n_tokens = 0  # in these texts

    def annotate(self, key: str) -> None:
        """Annotate a text."""
        stored = self.session.store.texts[key]
        task = self.tasks[stored.text]
        spans = gold_spans(self.tokenizer, task)
        # Version 0: the text had no annotation before.
        self.session.answer(key, spans, is_left_out=False, seen_version=0)
        if not stored.is_evaluation:
            self.n_texts += 1
            self.n_tokens += len(self.tokenizer.make_doc(task.text))

    def annotate_chosen(self, n_texts: int) -> None:
        """Annotate the texts that the session shows, until there are `n_texts` to train on."""
        while self.n_texts < n_texts:
            proposal = self.session.next_text()
            assert proposal is not None
            self.annotate(proposal.key)

    def annotate_random(self, n_texts: int) -> None:
        """Annotate random texts, until there are `n_texts` to train on."""
        # The store contains texts in random order.
        for key, stored in self.session.store.texts.items():
            is_answered = key in self.session.store.answers
            if self.n_texts < n_texts and not stored.is_evaluation and not is_answered:
                self.annotate(key)


def run_session(setting: Setting, folder: Path) -> Iterator[Result]:
    """Simulate a session. Yields a result for the student of rules, if the session starts with one,
    and for each of `SIZES`."""
    sentences = draw_sentences(setting.corpus, "train", N_TEXTS, setting.seed)
    tasks = [as_task(doc) for doc in sentences]
    dev_sentences = draw_sentences(setting.corpus, "dev", N_DEV, setting.seed)
    dev_path = folder / "dev.jsonl"
    write_tasks(dev_path, [as_task(doc) for doc in dev_sentences])
    dev_corpus = make_reader(dev_path)

    def score(nlp: Language) -> float:
        """Compute the F of a pipeline on the development sentences."""
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
    # A session's choices depend on its latest model, so it trains after every `STEP` texts.
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
    """Get the texts of a session that are not evaluation texts."""
    return {stored.text for stored in store.texts.values() if not stored.is_evaluation}


def read_results(path: Path) -> dict[Setting, list[Result]]:
    """Read the existing results of complete sessions."""
    results: dict[Setting, list[Result]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf8").splitlines():
            fields = json.loads(line)
            setting = Setting(*fields["setting"])
            results[setting] = [Result(*fields_of_result) for fields_of_result in fields["results"]]
    return results


def print_table(results: Mapping[Setting, Sequence[Result]]) -> None:
    """Print the mean F over seeds, with the number of tokens in brackets."""
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
    """Run the sessions without results, and print the table."""
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
