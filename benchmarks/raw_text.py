"""Evaluate vectors trained on unannotated texts: F by the number of tokens of raw text.

    OMP_NUM_THREADS=1 python benchmarks/raw_text.py FOLDER RAW_TEXTS [system ...]

The corpora are Spanish, GENIA and chunks of experiments/linear.cfg. Three seeds sample 100, 300 and
1,000 single sentences of the training part; 0 means all. The raw text comes from the training part,
without its annotation: some of its sentences, including the sampled ones, or all. GENIA and chunks
also have other texts, abstracts.txt.xz and news.txt.xz in the folder RAW_TEXTS, with tokens
separated by spaces.

The systems are `fit`, trained as by `costner fit` without a config; `CRFsuite` with the features of
`windows`; `ner`, spaCy's component trained as in vectors.py; and `ner, accuracy`, the same with the
config of `spacy init config --optimize accuracy`. Both `ner` systems are trained without vectors
and with the vectors of the most raw text. Seconds are CPU seconds for reading and training, and for
training the vectors, without the evaluations of `ner`.

The results are written to `results.jsonl` in FOLDER, with a line for each training. If you run the
script again, it continues where it stopped. At the end it prints the tables and, if all results of
`fit` exist, saves raw_text.svg in the folder. The development and test parts are scored with the
same model. Nothing was chosen on the test part: each setting was scored on it once.
"""

import lzma
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeAlias

from few import (
    Articles,
    FindFeatures,
    as_sentences,
    draw,
    read,
    save,
    score_crfsuite,
    train_crfsuite,
)
from linear import features
from matplotlib.figure import Figure
from results import add_result, read_results
from spacy.language import Language
from thinc.api import Config
from vectors import configure_ner, examples, train_ner

from spacy_costner.training.word_vectors import learn_word_vectors
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.corpora import find_corpora
from spacy_costner.workflows.fitting.linear_training import load_linear, prepare, train_linear
from spacy_costner.workflows.vectors import make_pipeline

LANGS = {"spanish": "es", "genia": "en", "chunks": "en"}
OTHER_TEXTS = {"genia": "abstracts.txt.xz", "chunks": "news.txt.xz"}
TITLES = {"spanish": "Spanish", "genia": "GENIA", "chunks": "Chunks"}
FEW = (100, 300, 1_000)
SIZES = (*FEW, 0)
SEEDS = range(3)
PARTS = ("dev", "test")

NONE = "none"
OWN = "all own"
OTHER = "other"
BOTH = "own and other"
"""The kinds of raw text: none, the whole training part, other texts, and both."""

TOKENS = {"10,000": 10_000, "30,000": 30_000, "100,000": 100_000}
"""The sizes of raw text from the training part, as numbers of tokens."""


class Setting(NamedTuple):
    """A training: a system, on a number of sentences from a corpus, sampled with a seed, with
    vectors trained on some raw text."""

    corpus: str
    sentences: int  # 0: all
    seed: int
    system: str
    raw: str  # NONE, OWN, OTHER, BOTH or one of TOKENS


class Result(NamedTuple):
    """F in percent, the CPU seconds for the system and for its vectors, and the number of tokens of
    raw text."""

    dev: float
    test: float
    seconds: float
    tokens: int


class Data(NamedTuple):
    """A corpus."""

    lang: str
    sentences: dict[str, Articles]  # by part
    files: dict[str, Path]  # the saved files
    other_text: Path | None  # other raw text


Runner: TypeAlias = Callable[[Data, Articles, Setting, Path], Result]
"""Trains a system on some sentences of a corpus. Files are saved in a folder."""


def load_data(corpus: str, folder: Path, raw_texts: Path) -> Data:
    """Read a corpus, and save the parts that are scored. `raw_texts` is the folder with other
    texts."""
    sentences = {part: as_sentences(read(corpus, part)) for part in ("train", *PARTS)}
    files = {part: save(sentences[part], folder / f"{corpus}_{part}.spacy") for part in PARTS}
    other_text = None
    if corpus in OTHER_TEXTS:
        other_text = raw_texts / OTHER_TEXTS[corpus]
    return Data(LANGS[corpus], sentences, files, other_text)


def raw_sentences(data: Data, train: Articles, setting: Setting) -> Iterator[list[str]]:
    """Yield the sentences of a setting's raw text, as words: first the sentences to train on, then
    other sentences of the training part, then other texts."""
    # The sentences to train on are the same objects as in the training part: see `draw`.
    drawn = {id(sentence) for (sentence,) in train}
    not_drawn = [article for article in data.sentences["train"] if id(article[0]) not in drawn]
    own_text = [*train, *random.Random(setting.seed).sample(not_drawn, len(not_drawn))]
    n_missing = TOKENS.get(setting.raw, sys.maxsize)  # tokens
    if setting.raw != OTHER:
        for (sentence,) in own_text:
            if n_missing <= 0:
                return
            n_missing -= len(sentence)
            yield [token.text for token in sentence]
    if setting.raw in (OTHER, BOTH):
        assert data.other_text is not None
        with lzma.open(data.other_text, "rt", encoding="utf8") as file:
            for line in file:
                yield line.split()


def save_vectors(data: Data, train: Articles, setting: Setting, folder: Path) -> int:
    """Train vectors, and save a pipeline with them. Returns the number of tokens."""
    vectors = learn_word_vectors(raw_sentences(data, train, setting))
    make_pipeline(vectors, data.lang).to_disk(folder)
    return vectors.n_tokens


def score_pipeline(nlp: Language, data: Data) -> dict[str, float]:
    """Compute the F of a pipeline on each of `PARTS`."""
    return {part: 100 * nlp.evaluate(examples(nlp, data.files[part]))["ents_f"] for part in PARTS}


def run_fit(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train our model as by `costner fit`, with vectors from the setting's raw text."""
    began = time.process_time()
    n_tokens = 0
    vectors: str | None = None
    if setting.raw != NONE:
        n_tokens = save_vectors(data, train, setting, folder / "vectors")
        vectors = str(folder / "vectors")
    train_path = save(train, folder / "train.spacy")
    text = init(train_path=train_path, dev_path=data.files["dev"], lang=data.lang, vectors=vectors)
    config = Config().from_str(text, overrides={"system.seed": setting.seed}, interpolate=False)
    linear = load_linear(config)
    train_corpus, _ = find_corpora(linear.nlp)
    train_linear(linear, prepare(linear, train_corpus))
    seconds = time.process_time() - began
    return Result(**score_pipeline(linear.nlp, data), seconds=seconds, tokens=n_tokens)


def run_ner(data: Data, train: Articles, setting: Setting, folder: Path, optimize: str) -> Result:
    """Train spaCy's `ner`, with vectors from the setting's raw text. `optimize` chooses the
    config."""
    began = time.process_time()
    n_tokens = 0
    vectors: Path | None = None
    if setting.raw != NONE:
        vectors = folder / "vectors"
        n_tokens = save_vectors(data, train, setting, vectors)
    seconds_of_vectors = time.process_time() - began

    train_path = save(train, folder / "train.spacy")
    dev_path = data.files["dev"]
    config = configure_ner(data.lang, train_path, dev_path, setting.seed, vectors, optimize)
    nlp, seconds_of_training = train_ner(config, folder)
    seconds = seconds_of_vectors + seconds_of_training
    return Result(**score_pipeline(nlp, data), seconds=seconds, tokens=n_tokens)


def run_crfsuite(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train CRFsuite on the features of `windows`."""
    began = time.process_time()
    find_features: FindFeatures = partial(features, cache={})
    tagger = train_crfsuite(train, folder / "crfsuite", find_features)
    seconds = time.process_time() - began
    scores = {part: score_crfsuite(tagger, data.sentences[part], find_features) for part in PARTS}
    return Result(**scores, seconds=seconds, tokens=0)


NER = "ner"
NER_ACCURACY = "ner, accuracy"
RUNNERS: dict[str, Runner] = {
    "fit": run_fit,
    "CRFsuite": run_crfsuite,
    NER: partial(run_ner, optimize="efficiency"),
    NER_ACCURACY: partial(run_ner, optimize="accuracy"),
}


def most_text(corpus: str) -> str:
    """Get the setting with the most raw text for a corpus."""
    return BOTH if corpus in OTHER_TEXTS else OWN


def texts_of(system: str, corpus: str, size: int) -> list[str]:
    """Get the raw texts that a system is trained with."""
    if system == "CRFsuite":
        return [NONE]
    if system in (NER, NER_ACCURACY) or size == 0:
        return [NONE, most_text(corpus)]
    others = [OTHER, BOTH] if corpus in OTHER_TEXTS else []
    return [NONE, *TOKENS, OWN, *others]


def plan(systems: list[str]) -> Iterator[Setting]:
    """Yield the trainings, in order."""
    for seed, system, size, corpus in product(SEEDS, systems, SIZES, LANGS):
        if size > 0:
            for raw in texts_of(system, corpus, size):
                yield Setting(corpus, size, seed, system, raw)
    for seed, system, corpus in product(SEEDS, systems, LANGS):
        if system not in (NER, NER_ACCURACY):  # these take hours
            for raw in texts_of(system, corpus, 0):
                yield Setting(corpus, 0, seed, system, raw)


def print_tables(results: dict[Setting, Result]) -> None:
    """Print the means over the draws: a table for each part, and one for the seconds."""
    columns = list(dict.fromkeys((s.system, s.raw) for s in results))
    for field in (*PARTS, "seconds"):
        print(f"\n{field}; in brackets the number of draws, if it isn't {len(SEEDS)}:\n")
        names = [f"`{system}`, {raw}" for system, raw in columns]
        print(f"| corpus | sentences | {' | '.join(names)} |\n|---|--:|{'--:|' * len(names)}")
        for corpus, size in product(LANGS, SIZES):
            cells: list[str] = []
            for system, raw in columns:
                values = [
                    getattr(result, field)
                    for setting, result in results.items()
                    if setting._replace(seed=0) == Setting(corpus, size, 0, system, raw)
                ]
                cell = f"{mean(values):.1f}" if values else ""
                if 0 < len(values) < len(SEEDS):
                    cell += f" ({len(values)})"
                cells.append(cell)
            print(f"| {corpus} | {size or 'all'} | {' | '.join(cells)} |")


def draw_figure(results: dict[Setting, Result], path: Path) -> None:
    """Plot the gain in F on development data against the number of tokens of the corpus's raw text:
    a panel for each corpus, a line for each number of sentences. Diamonds also use other texts."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    panels = figure.subplots(1, len(LANGS), sharey=True)
    for panel, corpus in zip(panels, LANGS):
        for size, color in zip(FEW, ("C0", "C1", "C2")):
            points = [find_point(results, corpus, size, raw) for raw in (NONE, *TOKENS, OWN)]
            base = points[0][1]
            tokens = [n_tokens for n_tokens, _ in points[1:]]
            gains = [f - base for _, f in points[1:]]
            panel.plot(tokens, gains, marker="o", color=color, label=f"{size:,} sentences")
            if corpus in OTHER_TEXTS:
                n_tokens, f = find_point(results, corpus, size, BOTH)
                panel.plot([tokens[-1], n_tokens], [gains[-1], f - base], ":", color=color)
                panel.plot([n_tokens], [f - base], marker="D", color=color)
        panel.axhline(0, color="grey", linewidth=0.5)
        panel.set(xscale="log", title=TITLES[corpus], xlabel="tokens of raw text")
    panels[0].set_ylabel("F gained")
    panels[0].legend(frameon=False)
    figure.savefig(path)


def find_point(
    results: dict[Setting, Result], corpus: str, size: int, raw: str
) -> tuple[float, float]:
    """Compute the means over draws of the number of raw text tokens, and of F on development
    data."""
    found = [results[Setting(corpus, size, seed, "fit", raw)] for seed in SEEDS]
    return mean(result.tokens for result in found), mean(result.dev for result in found)


def main(folder: Path, raw_texts: Path, systems: list[str]) -> None:
    """Run the trainings without results, and print the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    data = {corpus: load_data(corpus, folder, raw_texts) for corpus in LANGS}
    for setting in plan(systems):
        if setting in read_results(path, Setting, Result):
            continue
        corpus = data[setting.corpus]
        train = corpus.sentences["train"]
        if setting.sentences:
            train = draw(train, setting.sentences, setting.seed)
        with TemporaryDirectory() as temporary:
            result = RUNNERS[setting.system](corpus, train, setting, Path(temporary))
        add_result(path, setting, result)
    results = read_results(path, Setting, Result)
    print_tables(results)
    if all(setting in results for setting in plan(["fit"])):
        draw_figure(results, folder / "raw_text.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or [*RUNNERS])
