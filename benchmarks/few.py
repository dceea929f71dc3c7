"""Compare the linear model on few sentences with CRFsuite and spaCy's `ner`: F on development data.

    OMP_NUM_THREADS=1 python benchmarks/few.py [seeds] [steps of ner] [sentences ...]

The corpora are Spanish, chunks and GENIA of experiments/linear.cfg. Each seed samples the
sentences, or articles with this number of sentences in total. Chunks have no articles: 20
consecutive sentences count as one. Our model is trained by `costner fit` without a config, and by
updates with Sequential. CRFsuite is trained as in linear.py, with a sequence per sentence. spaCy's
`ner` uses the model of `nlp.add_pipe("ner")`, batches of 8 docs and a dropout of 0.2. It is trained
only on 300 single sentences, with the first seed.
"""

import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory

import pycrfsuite
import spacy
from linear import CRFSUITE, ROOT, features
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example, iob_to_biluo, tags_to_entities
from spacy.util import fix_random_seed, minibatch
from thinc.api import Config

from experiments import corpora
from experiments.linear import SPEC
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.corpora import find_corpora
from spacy_costner.workflows.fitting.linear_training import load_linear, prepare, train_linear

NAMES = {"spanish": "es", "chunks": "en", "genia": "en"}
SIZES = (100, 300, 1_000)
N_ARTICLE = 20  # sentences per article, if the corpus has no articles
N_NER = 300  # sentences that spaCy's `ner` is trained on
VOCAB = spacy.blank("xx").vocab

Articles = list[list[Doc]]
"""The sentences of each article."""

FindFeatures = Callable[[list[str]], list[list[str]]]
"""Computes the features of each word of a sentence, for CRFsuite."""


def read(name: str, part: str) -> Articles:
    """Read the sentences of each article."""
    file, begin, end = SPEC["corpora"][name][part]
    docs = corpora.read_docs(ROOT / file, VOCAB, begin, end)
    article_of_sentence = corpora.DOCUMENTS[SPEC["corpora"][name].get("documents")]
    keys: Sequence[object] = [i // N_ARTICLE for i in range(len(docs))]
    if article_of_sentence is not None:
        keys = article_of_sentence(docs, begin, end)
    articles: dict[object, list[Doc]] = {}
    for doc, key in zip(docs, keys):
        articles.setdefault(key, []).append(doc)
    return list(articles.values())


def as_sentences(articles: Articles) -> Articles:
    """Turn each sentence into a separate article."""
    return [[sentence] for sentence in chain.from_iterable(articles)]


def draw(articles: Articles, n: int, seed: int) -> Articles:
    """Sample articles with n sentences in total. The last article is truncated."""
    n_missing = n
    drawn: Articles = []
    for article in random.Random(seed).sample(articles, len(articles)):
        if n_missing > 0:
            drawn.append(article[:n_missing])
            n_missing -= len(article)
    return drawn


def save(articles: Articles, path: Path) -> Path:
    """Save a doc for each article. Returns the path of the file."""
    DocBin(docs=map(corpora.join, articles)).to_disk(path)
    return path


def fit(train: Path, dev: Path, lang: str, seed: int, is_small: bool | None = None) -> float:
    """Train our model, and compute its F in percent. It is trained as by `costner fit` or, if
    `is_small` is False, by updates with Sequential. None: `fit` decides."""
    loss = None  # the loss of `fit`
    if is_small is not None:
        loss = "Sequential"
    text = init(train_path=train, dev_path=dev, lang=lang, loss=loss)
    config = Config().from_str(text, overrides={"system.seed": seed}, interpolate=False)
    linear = load_linear(config)
    train_corpus, dev_corpus = find_corpora(linear.nlp)
    assert dev_corpus is not None
    train_linear(linear, prepare(linear, train_corpus), is_small=is_small)
    return 100 * linear.nlp.evaluate(list(dev_corpus(linear.nlp)))["ents_f"]


def train_crfsuite(train: Articles, path: Path, find_features: FindFeatures) -> pycrfsuite.Tagger:
    """Train CRFsuite on the sentences of some articles, and save it to a file."""
    trainer = pycrfsuite.Trainer(verbose=False)
    for doc in chain.from_iterable(train):
        trainer.append(find_features([token.text for token in doc]), corpora.tags_of(doc))
    trainer.select("lbfgs", "crf1d")
    trainer.set_params(CRFSUITE)
    trainer.train(str(path))

    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger


def score_crfsuite(
    tagger: pycrfsuite.Tagger, articles: Articles, find_features: FindFeatures
) -> float:
    """Compute the F of CRFsuite on the sentences of some articles, in percent."""
    examples: list[Example] = []
    for gold in chain.from_iterable(articles):
        words = [token.text for token in gold]
        predicted = Doc(VOCAB, words)
        tags = tagger.tag(find_features(words))
        ents: list[Span] = []
        for label, first, last in tags_to_entities(iob_to_biluo(tags)):
            ents.append(Span(predicted, first, last + 1, label))
        predicted.set_ents(ents)
        examples.append(Example(predicted, gold))
    return 100 * get_ner_prf(examples)["ents_f"]


def by_crfsuite(train: Articles, dev: Articles, path: Path) -> float:
    """Train CRFsuite on the features of `windows`. Returns its F in percent."""
    find_features = partial(features, cache={})
    return score_crfsuite(train_crfsuite(train, path, find_features), dev, find_features)


def by_ner(train: Articles, dev: Articles, lang: str, seed: int, n_steps: int) -> float:
    """Train spaCy's `ner` for at least `n_steps` steps. Returns its F in percent."""
    fix_random_seed(seed)
    nlp = spacy.blank(lang)
    nlp.add_pipe("ner")

    def to_examples(articles: Articles) -> list[Example]:
        """Make an example from each sentence, with the vocab of the pipeline."""
        examples: list[Example] = []
        for gold in DocBin(docs=chain.from_iterable(articles)).get_docs(nlp.vocab):
            predicted = Doc(nlp.vocab, [token.text for token in gold])
            examples.append(Example(predicted, gold))
        return examples

    train_examples = to_examples(train)
    optimizer = nlp.initialize(lambda: train_examples)
    n_done = 0
    # Training always completes a pass over the examples.
    while n_done < n_steps:
        shuffled = random.sample(train_examples, len(train_examples))
        for batch in minibatch(shuffled, 8):
            nlp.update(batch, sgd=optimizer, drop=0.2)
            n_done += 1
    return 100 * nlp.evaluate(to_examples(dev))["ents_f"]


def systems(
    train: Articles, dev: Articles, lang: str, seed: int, folder: Path
) -> dict[str, Callable[[], float]]:
    """Make the functions that train each system and return its F, by system name. Files are saved
    in the folder."""
    train_path = save(train, folder / "train.spacy")
    dev_path = save(dev, folder / "dev.spacy")
    return {
        "`fit`": lambda: fit(train_path, dev_path, lang, seed),
        "by updates": lambda: fit(train_path, dev_path, lang, seed, is_small=False),
        "CRFsuite": lambda: by_crfsuite(train, dev, folder / "crfsuite"),
    }


def main(n_seeds: int = 3, n_steps: int = 1_000, *sizes: int) -> None:
    """Train all systems on few sentences, and print a row for each."""
    print("| corpus | docs | sentences | seed | system | F |\n|---|---|---|---|---|---|")
    parts = {name: (read(name, "train"), read(name, "dev")) for name in NAMES}
    units = ("sentences", "articles")
    for size, seed, name, unit in product(sizes or SIZES, range(n_seeds), NAMES, units):
        train, dev = parts[name]
        if unit == "sentences":
            train = as_sentences(train)
            dev = as_sentences(dev)
        drawn = draw(train, size, seed)
        row = f"| {name} | {unit} | {size} | {seed}"
        with TemporaryDirectory() as folder:
            for system, score in systems(drawn, dev, NAMES[name], seed, Path(folder)).items():
                print(f"{row} | {system} | {score():.2f} |", flush=True)

    for name, (train, dev) in parts.items():
        drawn = draw(as_sentences(train), N_NER, seed=0)
        f = by_ner(drawn, dev, NAMES[name], 0, n_steps)
        print(f"| {name} | sentences | {N_NER} | 0 | `ner` | {f:.2f} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
