"""Compare the hidden layer over static vectors with the linear model with the same vectors: F and
CPU seconds of training.

    OMP_NUM_THREADS=1 python benchmarks/hidden.py FOLDER RAW_TEXTS [sentences ...]

The corpora are Spanish, GENIA and chunks of experiments/linear.cfg. Three seeds sample 100, 300 and
1,000 sentences of the training part; 0 means all. Docs are single sentences or articles, as in
few.py, and models have one pass or two. They are trained as by `costner fit` without a config.
Vectors are trained on the most raw text of raw_text.py, with the same RAW_TEXTS: the training part
without its annotation and, except for Spanish, other texts. Seconds include reading and training,
but not training vectors.

The vectors and `results.jsonl`, with a line for each training, are written to FOLDER. If you run
the script again, it continues where it stopped. At the end it prints the table. The development and
test parts are scored with the same model. Nothing was chosen on the test part: each setting was
scored on it once.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import NamedTuple

import raw_text
from few import Articles, as_sentences, draw, read, save
from raw_text import LANGS, PARTS, SEEDS, SIZES
from results import add_result, read_results
from thinc.api import Config
from vectors import PASSES, examples

from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.corpora import find_corpora
from spacy_costner.workflows.fitting.linear_training import load_linear, prepare, train_linear

DOCS = ("sentences", "articles")
WIDTHS = (0, 64)
"""The numbers of hidden units."""


class Setting(NamedTuple):
    """A training: a model with a number of hidden units, on a number of sentences from a corpus,
    sampled with a seed."""

    corpus: str
    docs: str  # of `DOCS`
    passes: str  # of `PASSES`
    sentences: int  # 0: all
    seed: int
    width: int


class Result(NamedTuple):
    """F in percent, and the CPU seconds of training."""

    dev: float
    test: float
    seconds: float


class Data(NamedTuple):
    """A corpus, with sentences or articles as docs."""

    train: Articles
    files: dict[str, Path]  # of each of `PARTS`
    vectors: Path  # a pipeline with the vectors


def load_data(corpus: str, docs: str, folder: Path, raw_texts: Path) -> Data:
    """Read a corpus, save the parts that are scored and train vectors, unless they exist."""
    articles = {part: read(corpus, part) for part in ("train", *PARTS)}
    if docs == "sentences":
        articles = {part: as_sentences(articles[part]) for part in articles}
    files = {part: save(articles[part], folder / f"{corpus}_{docs}_{part}.spacy") for part in PARTS}
    vectors = folder / f"{corpus}_vectors"
    if not vectors.exists():
        text = raw_text.most_text(corpus)
        data = raw_text.load_data(corpus, folder, raw_texts)
        setting = raw_text.Setting(corpus, 0, 0, "fit", text)
        raw_text.save_vectors(data, data.sentences["train"], setting, vectors)
    return Data(articles["train"], files, vectors)


def run(data: Data, setting: Setting) -> Result:
    """Train a model as `costner fit` does, and score it."""
    train = data.train
    if setting.sentences:
        train = draw(train, setting.sentences, setting.seed)
    with TemporaryDirectory() as folder:
        text = init(
            lang=LANGS[setting.corpus],
            train_path=save(train, Path(folder, "train.spacy")),
            dev_path=data.files["dev"],
            vectors=str(data.vectors),
        )
        overrides = {"system.seed": setting.seed, "components.ner.model.hidden": setting.width}
        config = Config().from_str(text, overrides=overrides, interpolate=False)
        config["components"]["ner"]["model"]["features"].update(PASSES[setting.passes])
        began = time.process_time()
        linear = load_linear(config)
        train_corpus, _ = find_corpora(linear.nlp)
        train_linear(linear, prepare(linear, train_corpus))
        seconds = time.process_time() - began
    scores: dict[str, float] = {}
    for part in PARTS:
        scores[part] = 100 * linear.nlp.evaluate(examples(linear.nlp, data.files[part]))["ents_f"]
    return Result(**scores, seconds=seconds)


def plan(sizes: Sequence[int]) -> Iterator[Setting]:
    """Yield the trainings, in order."""
    for seed, docs, passes, size, corpus in product(SEEDS, DOCS, PASSES, sizes, LANGS):
        # In single sentences, few words occur twice.
        if docs == "articles" or passes == "one pass":
            for width in WIDTHS:
                yield Setting(corpus, docs, passes, size, seed, width)


def print_table(results: dict[Setting, Result]) -> None:
    """Print a row for each kind of training: means without and with the layer, and the gain in each
    sample."""
    print("| corpus | docs | sentences | dev | gains | test | gains | seconds |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for corpus, docs, passes, size in product(LANGS, DOCS, PASSES, SIZES):
        pairs: list[tuple[Result, Result]] = []
        for seed in SEEDS:
            without = results.get(Setting(corpus, docs, passes, size, seed, WIDTHS[0]))
            with_layer = results.get(Setting(corpus, docs, passes, size, seed, WIDTHS[1]))
            if without is not None and with_layer is not None:
                pairs.append((without, with_layer))
        if pairs:
            cells: list[str] = []
            for field in PARTS:
                cells.append(describe_means(pairs, field))
                gains = [getattr(pair[1], field) - getattr(pair[0], field) for pair in pairs]
                cells.append(", ".join(f"{gain:+.2f}" for gain in gains))
            cells.append(describe_means(pairs, "seconds"))
            row = f"| {corpus} | {docs}, {passes} | {size or 'all'} |"
            print(f"{row} {' | '.join(cells)} |")


def describe_means(pairs: Sequence[tuple[Result, Result]], field: str) -> str:
    """Format the means of a field, without and with the layer."""
    without = mean(getattr(pair[0], field) for pair in pairs)
    with_layer = mean(getattr(pair[1], field) for pair in pairs)
    return f"{without:.1f} -> {with_layer:.1f}"


def main(folder: Path, raw_texts: Path, sizes: Sequence[int]) -> None:
    """Run the trainings without results, and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    data: dict[tuple[str, str], Data] = {}
    for setting in plan(sizes):
        if setting in read_results(path, Setting, Result):
            continue
        key = (setting.corpus, setting.docs)
        if key not in data:
            data[key] = load_data(*key, folder, raw_texts)
        result = run(data[key], setting)
        add_result(path, setting, result)
    print_table(read_results(path, Setting, Result))


if __name__ == "__main__":
    sentences = [int(size) for size in sys.argv[3:]]
    main(Path(sys.argv[1]), Path(sys.argv[2]), sentences or SIZES)
