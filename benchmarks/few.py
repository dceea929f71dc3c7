"""The linear model on few sentences, against CRFsuite and spaCy's `ner`: F on development data.

    OMP_NUM_THREADS=1 python benchmarks/few.py [seeds] [steps of ner] [sentences ...]

Spanish, chunks and GENIA of experiments/linear.cfg. A seed draws the sentences, or the articles
until there are so many sentences. Chunks have no articles: these are 20 sentences that follow each
other. Ours by `costner fit` without a config, and by updates with Sequential; CRFsuite as in
linear.py, a sequence a sentence; spaCy's `ner` with the model of `nlp.add_pipe("ner")`, batches of
8 docs and a dropout of 0.2, on 300 sentences only, as single sentences, with the first seed.
"""

import random
import sys
from collections.abc import Callable
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory

import pycrfsuite
import spacy
from linear import CRFSUITE, ROOT, features, words_of
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example, iob_to_biluo, tags_to_entities
from spacy.util import fix_random_seed, minibatch
from thinc.api import Config

from experiments import corpora
from experiments.linear import SPEC
from spacy_costner.analysis.initial_config import init
from spacy_costner.analysis.preparation import find_corpora, load_linear, prepare, train_linear

NAMES = {"spanish": "es", "chunks": "en", "genia": "en"}
SIZES, N_ARTICLE, N_NER = (100, 300, 1_000), 20, 300
VOCAB = spacy.blank("xx").vocab

Articles = list[list[Doc]]


def read(name: str, part: str) -> Articles:
    """The sentences of each article."""
    file, *ends = SPEC["corpora"][name][part]
    docs = corpora.read_docs(ROOT / file, VOCAB, *ends)
    group = corpora.DOCUMENTS[SPEC["corpora"][name].get("documents")]
    groups = group(docs, *ends) if group else [i // N_ARTICLE for i in range(len(docs))]
    articles: dict[object, list[Doc]] = {}
    for doc, key in zip(docs, groups):
        articles.setdefault(key, []).append(doc)
    return list(articles.values())


def draw(articles: Articles, n: int, seed: int, *, whole: bool) -> Articles:
    """Sentences, or articles of so many sentences in all."""
    units = articles if whole else [[doc] for article in articles for doc in article]
    drawn: Articles = []
    for unit in random.Random(seed).sample(units, len(units)):
        if n > 0:
            drawn.append(unit[:n])
            n -= len(unit)
    return drawn


def save(articles: Articles, path: Path) -> Path:
    DocBin(docs=map(corpora.join, articles)).to_disk(path)
    return path


def fit(train: Path, dev: Path, lang: str, seed: int, is_small: bool | None = None) -> float:
    """F of our model: as `costner fit` trains it or, if `is_small` is False, by updates."""
    loss = None if is_small is None else "Sequential"
    text = init(train_path=train, dev_path=dev, lang=lang, loss=loss)
    config = Config().from_str(text, overrides={"system.seed": seed}, interpolate=False)
    linear = load_linear(config)
    train_corpus, dev_corpus = find_corpora(linear.nlp)
    assert dev_corpus is not None
    train_linear(linear, prepare(linear, train_corpus), is_small=is_small)
    return 100 * linear.nlp.evaluate(list(dev_corpus(linear.nlp)))["ents_f"]


def by_crfsuite(train: Articles, dev: Articles, path: Path) -> float:
    cache: dict[str, list[tuple[int, str]]] = {}
    trainer = pycrfsuite.Trainer(verbose=False)
    for doc in chain.from_iterable(train):
        trainer.append(features([token.text for token in doc], cache), corpora.tags_of(doc))
    trainer.select("lbfgs", "crf1d")
    trainer.set_params(CRFSUITE)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    gold = [*chain.from_iterable(dev)]
    found = [Doc(VOCAB, words) for words in words_of(gold)]
    for doc in found:
        tags = tagger.tag(features([token.text for token in doc], cache))
        spans = tags_to_entities(iob_to_biluo(tags))
        doc.set_ents([Span(doc, first, last + 1, label) for label, first, last in spans])
    return 100 * get_ner_prf([*map(Example, found, gold)])["ents_f"]


def by_ner(train: Articles, dev: Articles, lang: str, seed: int, n_steps: int) -> float:
    fix_random_seed(seed)
    nlp = spacy.blank(lang)
    nlp.add_pipe("ner")

    def examples(articles: Articles) -> list[Example]:
        docs = DocBin(docs=chain.from_iterable(articles)).get_docs(nlp.vocab)
        return [Example(Doc(nlp.vocab, [token.text for token in doc]), doc) for doc in docs]

    own, n_done = examples(train), 0
    optimizer = nlp.initialize(lambda: own)
    while n_done < n_steps:
        for batch in minibatch(random.sample(own, len(own)), 8):
            nlp.update(batch, sgd=optimizer, drop=0.2)
            n_done += 1
    return 100 * nlp.evaluate(examples(dev))["ents_f"]


def systems(
    train: Articles, dev: Articles, lang: str, seed: int, folder: Path
) -> dict[str, Callable[[], float]]:
    """What trains each system, and returns its F."""
    paths = save(train, folder / "train.spacy"), save(dev, folder / "dev.spacy")
    return {
        "`fit`": lambda: fit(*paths, lang, seed),
        "by updates": lambda: fit(*paths, lang, seed, is_small=False),
        "CRFsuite": lambda: by_crfsuite(train, dev, folder / "crfsuite"),
    }


def main(n_seeds: int = 3, n_steps: int = 1_000, *sizes: int) -> None:
    print("| corpus | docs | sentences | seed | system | F |\n|---|---|---|---|---|---|")
    parts = {name: (read(name, "train"), read(name, "dev")) for name in NAMES}
    wholes = {"sentences": False, "articles": True}
    for size, seed, name, docs in product(sizes or SIZES, range(n_seeds), NAMES, wholes):
        train, dev = parts[name]
        train = draw(train, size, seed, whole=wholes[docs])
        dev = dev if wholes[docs] else [[doc] for article in dev for doc in article]
        row = f"| {name} | {docs} | {size} | {seed}"
        with TemporaryDirectory() as folder:
            for system, score in systems(train, dev, NAMES[name], seed, Path(folder)).items():
                print(f"{row} | {system} | {score():.2f} |", flush=True)
    for name, (train, dev) in parts.items():
        drawn = draw(train, N_NER, 0, whole=False)
        f = by_ner(drawn, dev, NAMES[name], 0, n_steps)
        print(f"| {name} | sentences | {N_NER} | 0 | `ner` | {f:.2f} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
