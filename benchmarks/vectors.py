"""Static vectors as inputs of the linear model, against clusters of the same vectors: F on
development data.

    OMP_NUM_THREADS=1 python benchmarks/vectors.py [seeds] [sentences ...]

Spanish and GENIA of experiments/linear.cfg, single sentences, drawn with each seed; 0 for all. The
vectors are learned from the text of the training corpus, without its annotation, in lower case, as
`costner vectors` does. By `costner fit` without a config, best path.
"""

import random
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import spacy
from spacy.tokens import Doc, DocBin
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
from spacy_costner.analysis.vectors import make_pipeline  # noqa: E402
from spacy_costner.training.word_vectors import learn_word_vectors  # noqa: E402

NAMES = {"spanish": "es", "genia": "en"}
SENTENCES = (100, 300)
SIZES = (64, 256, 1024)
VOCAB = spacy.blank("xx").vocab

SYSTEMS: dict[str, dict[str, Any]] = {
    "without": {},
    "clusters": {"vectors": [*SIZES]},
    "vectors": {"include_static_vectors": True},
    "both": {"vectors": [*SIZES], "include_static_vectors": True},
}
"""What the features of each system have besides those of `fit`."""


def read(name: str, part: str) -> list[Doc]:
    """The sentences of a part of a corpus."""
    file, *ends = SPEC["corpora"][name][part]
    return corpora.read_docs(ROOT / file, VOCAB, *ends)


def save_vectors(docs: list[Doc], lang: str, folder: Path) -> None:
    """Learn vectors from the text of docs, and save a pipeline that has them."""
    sentences = [[token.text for token in doc] for doc in docs]
    nlp = make_pipeline(learn_word_vectors(sentences), lang)
    nlp.to_disk(folder)


def fit(
    train: Path, dev: Path, vectors: Path, lang: str, seed: int, features: dict[str, Any]
) -> tuple[float, float]:
    """F of a model with these features, and the seconds of CPU that training takes."""
    text = init(train_path=train, dev_path=dev, lang=lang)
    config = Config().from_str(text, overrides={"system.seed": seed}, interpolate=False)
    config["components"]["ner"]["model"]["features"].update(features)
    if features:
        config["initialize"]["vectors"] = str(vectors)
    linear = load_linear(config)
    train_corpus, dev_corpus = find_corpora(linear.nlp)
    assert dev_corpus is not None
    examples = prepare(linear, train_corpus)
    start = time.process_time()
    train_linear(linear, examples)
    seconds = time.process_time() - start
    return 100 * linear.nlp.evaluate(list(dev_corpus(linear.nlp)))["ents_f"], seconds


def main(n_seeds: int = 3, *sizes: int) -> None:
    print("| corpus | sentences | seed | system | F | seconds |\n|---|---|---|---|---|---|")
    for name, lang in NAMES.items():
        with TemporaryDirectory() as folder:
            train = read(name, "train")
            save_vectors(train, lang, Path(folder, "vectors"))
            dev_path = Path(folder, "dev.spacy")
            DocBin(docs=read(name, "dev")).to_disk(dev_path)
            for size, seed in product(sizes or SENTENCES, range(n_seeds)):
                drawn = random.Random(seed).sample(train, size or len(train))
                train_path = Path(folder, "train.spacy")
                DocBin(docs=drawn).to_disk(train_path)
                for system, features in SYSTEMS.items():
                    vectors = Path(folder, "vectors")
                    f, seconds = fit(train_path, dev_path, vectors, lang, seed, features)
                    row = f"| {name} | {size or 'all'} | {seed} | {system} | {f:.2f}"
                    print(f"{row} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
