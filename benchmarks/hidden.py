"""The hidden layer over static vectors, against the linear model with the same vectors: F on
development data and CPU seconds of training.

    OMP_NUM_THREADS=1 python benchmarks/hidden.py ABSTRACTS [sentences ...]

Spanish and GENIA of experiments/linear.cfg, single sentences, drawn with each seed; 0 for all.
Spanish has vectors of its own training text, without its annotation. GENIA has those of ABSTRACTS,
a text file with a sentence on each line, tokens separated by blanks. Models are what `costner fit`
trains without a config. The test parts aren't read.
"""

import random
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import spacy
from spacy.tokens import Doc, DocBin
from spacy.vectors import Vectors
from thinc.api import Config

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))

from experiments import corpora  # noqa: E402
from experiments.linear import SPEC  # noqa: E402
from spacy_costner.analysis.initial_config import init  # noqa: E402
from spacy_costner.analysis.preparation import (  # noqa: E402
    find_corpora,
    load_linear,
    prepare,
    train_linear,
)
from spacy_costner.training.word_vectors import learn_word_vectors  # noqa: E402

LANGUAGES = {"spanish": "es", "genia": "en"}
SIZES = (100, 300, 1000, 0)
SEEDS = range(3)
WIDTHS = (0, 64)


def read(name: str, part: str) -> list[Doc]:
    """The sentences of a part of a corpus."""
    file, begin, end = SPEC["corpora"][name][part]
    return corpora.read_docs(ROOT / file, spacy.blank("xx").vocab, begin, end)


def save_vectors(sentences: Iterable[Sequence[str]], lang: str, folder: Path) -> None:
    """Learn vectors from text, and save a pipeline that has them."""
    learned = learn_word_vectors(sentences)
    nlp = spacy.blank(lang)
    keys = [nlp.vocab.strings.add(word) for word in learned.words]
    nlp.vocab.vectors = Vectors(strings=nlp.vocab.strings, data=learned.data, keys=keys, name=lang)
    nlp.to_disk(folder)


def fit(folder: Path, lang: str, seed: int, width: int) -> tuple[float, float]:
    """F of a model whose hidden layer has so many units, and the CPU seconds of its training."""
    text = init(
        lang=lang,
        train_path=folder / "train.spacy",
        dev_path=folder / "dev.spacy",
        vectors=str(folder / "vectors"),
    )
    overrides = {"system.seed": seed, "components.ner.model.hidden": width}
    linear = load_linear(Config().from_str(text, overrides=overrides, interpolate=False))
    train_corpus, dev_corpus = find_corpora(linear.nlp)
    assert dev_corpus is not None
    examples = prepare(linear, train_corpus)
    start = time.process_time()
    train_linear(linear, examples)
    seconds = time.process_time() - start
    return 100 * linear.nlp.evaluate(list(dev_corpus(linear.nlp)))["ents_f"], seconds


def main(abstracts: str, *sizes: str) -> None:
    print("| corpus | sentences | seed | units | F | seconds |\n|---|---|---|---|---|---|")
    for name, lang in LANGUAGES.items():
        with TemporaryDirectory() as path:
            folder = Path(path)
            train = read(name, "train")
            DocBin(docs=read(name, "dev")).to_disk(folder / "dev.spacy")
            if name == "spanish":
                sentences = [[token.lower_ for token in doc] for doc in train]
            else:
                lines = Path(abstracts).read_text(encoding="utf8").lower().splitlines()
                sentences = [line.split() for line in lines]
            save_vectors(sentences, lang, folder / "vectors")
            for size, seed in product(map(int, sizes or SIZES), SEEDS):
                drawn = random.Random(seed).sample(train, size or len(train))
                DocBin(docs=drawn).to_disk(folder / "train.spacy")
                for width in WIDTHS:
                    f, seconds = fit(folder, lang, seed, width)
                    row = f"| {name} | {size or 'all'} | {seed} | {width} | {f:.2f}"
                    print(f"{row} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
