"""Vectors that are learned from texts without annotation: F against the tokens of raw text.

    OMP_NUM_THREADS=1 python benchmarks/raw_text.py FOLDER RAW_TEXTS [system ...]

Spanish, GENIA and chunks of experiments/linear.cfg. Three seeds draw 100, 300 and 1,000 single
sentences of the training part; 0 are all. The raw text is of the training part, without its
annotation: some of its sentences, the drawn ones among them, or all. GENIA and chunks also have
texts from elsewhere, abstracts.txt.xz and news.txt.xz of the folder RAW_TEXTS, tokens separated by
blanks.

Systems are `fit`, as `costner fit` trains it without a config, `CRFsuite` with the features of
`windows`, and `ner`, spaCy's, with the config of `spacy init config --optimize accuracy` and its
patience, without vectors and with those of the most raw text. Seconds are those of CPU for reading
and training, and for learning the vectors; those of `ner` include its evaluations.

FOLDER gets `results.jsonl`, a line for each training. If it is called again, it goes on where it
stopped. Then it prints the tables. The development and the test part are scored with the same
model. Nothing was chosen on the latter: each setting has been looked at once.
"""

import json
import lzma
import random
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import NamedTuple

import spacy
from few import VOCAB, Articles, as_sentences, draw, read, save
from linear import CRFSUITE, features
from spacy.cli.init_config import init_config
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example, iob_to_biluo, tags_to_entities
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_by_spacy
from thinc.api import Config

from experiments import corpora
from spacy_costner.analysis.initial_config import init
from spacy_costner.analysis.preparation import find_corpora, load_linear, prepare, train_linear
from spacy_costner.analysis.vectors import make_pipeline
from spacy_costner.training.word_vectors import learn_word_vectors

LANGS = {"spanish": "es", "genia": "en", "chunks": "en"}
OTHER_TEXTS = {"genia": "abstracts.txt.xz", "chunks": "news.txt.xz"}
SIZES = (100, 300, 1_000, 0)
SEEDS = range(3)
PARTS = ("dev", "test")

NONE = "none"
OWN = "all own"
OTHER = "other"
BOTH = "own and other"
TOKENS = {"10,000": 10_000, "30,000": 30_000, "100,000": 100_000}
"""Raw text of the training part, up to so many tokens."""


class Setting(NamedTuple):
    """What is trained: a system, on so many sentences of a corpus, which a seed draws, with vectors
    of this raw text."""

    corpus: str
    sentences: int  # 0: all
    seed: int
    system: str
    raw: str


class Result(NamedTuple):
    """F in percent, the CPU seconds of training and of learning vectors, and the tokens of the raw
    text."""

    dev: float
    test: float
    seconds: float
    tokens: int


class Data(NamedTuple):
    """A corpus."""

    lang: str
    sentences: dict[str, Articles]  # by part
    files: dict[str, Path]  # the same, saved
    other_text: Path | None  # raw text from elsewhere


def load_data(corpus: str, folder: Path, raw_texts: Path) -> Data:
    """Read a corpus, and save the parts that are scored. `raw_texts` is the folder of texts from
    elsewhere."""
    sentences = {part: as_sentences(read(corpus, part)) for part in ("train", *PARTS)}
    files = {part: save(sentences[part], folder / f"{corpus}_{part}.spacy") for part in PARTS}
    other_text = None
    if corpus in OTHER_TEXTS:
        other_text = raw_texts / OTHER_TEXTS[corpus]
    return Data(LANGS[corpus], sentences, files, other_text)


def raw_sentences(data: Data, train: Articles, setting: Setting) -> Iterator[list[str]]:
    """The words of the raw text of a setting: first those of the sentences to train on, then others
    of the training part, then other texts."""
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
    """Learn vectors, and save a pipeline that has them. Returns the number of tokens."""
    vectors = learn_word_vectors(raw_sentences(data, train, setting))
    make_pipeline(vectors, data.lang).to_disk(folder)
    return vectors.n_tokens


def examples(nlp: Language, path: Path) -> list[Example]:
    """The examples of a file for a pipeline: it sees the words alone."""
    references = list(DocBin().from_disk(path).get_docs(nlp.vocab))
    return [Example(Doc(nlp.vocab, [token.text for token in doc]), doc) for doc in references]


def score_pipeline(nlp: Language, data: Data) -> dict[str, float]:
    """F of a pipeline on each of `PARTS`."""
    return {part: 100 * nlp.evaluate(examples(nlp, data.files[part]))["ents_f"] for part in PARTS}


def run_fit(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train our model as `costner fit` does, with vectors of the raw text of the setting."""
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


def run_ner(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train spaCy's `ner`, with vectors of the raw text of the setting."""
    began = time.process_time()
    n_tokens = 0
    # Its "efficiency" is the same model without vectors.
    optimize = "efficiency" if setting.raw == NONE else "accuracy"
    config = init_config(lang=data.lang, pipeline=["ner"], optimize=optimize)
    if setting.raw != NONE:
        n_tokens = save_vectors(data, train, setting, folder / "vectors")
        config["paths"]["vectors"] = str(folder / "vectors")
    config["paths"]["train"] = str(save(train, folder / "train.spacy"))
    config["paths"]["dev"] = str(data.files["dev"])
    config["system"]["seed"] = setting.seed
    with redirect_stdout(sys.stderr):
        nlp = init_nlp(config)
        train_by_spacy(nlp, folder / "ner")
    seconds = time.process_time() - began
    scores = score_pipeline(spacy.load(folder / "ner" / "model-best"), data)
    return Result(**scores, seconds=seconds, tokens=n_tokens)


def run_crfsuite(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train CRFsuite, which has no vectors."""
    import pycrfsuite

    began = time.process_time()
    cache: dict[str, list[tuple[int, str]]] = {}
    trainer = pycrfsuite.Trainer(verbose=False)
    for (doc,) in train:
        trainer.append(features([token.text for token in doc], cache), corpora.tags_of(doc))
    trainer.select("lbfgs", "crf1d")
    trainer.set_params(CRFSUITE)
    trainer.train(str(folder / "crfsuite"))
    seconds = time.process_time() - began
    tagger = pycrfsuite.Tagger()
    tagger.open(str(folder / "crfsuite"))
    scores: dict[str, float] = {}
    for part in PARTS:
        predicted_examples: list[Example] = []
        for (gold,) in data.sentences[part]:
            words = [token.text for token in gold]
            predicted = Doc(VOCAB, words)
            tags = iob_to_biluo(tagger.tag(features(words, cache)))
            ents: list[Span] = []
            for label, first, last in tags_to_entities(tags):
                ents.append(Span(predicted, first, last + 1, label))
            predicted.set_ents(ents)
            predicted_examples.append(Example(predicted, gold))
        scores[part] = 100 * get_ner_prf(predicted_examples)["ents_f"]
    return Result(**scores, seconds=seconds, tokens=0)


RUNNERS = {"fit": run_fit, "CRFsuite": run_crfsuite, "ner": run_ner}


def most_text(corpus: str) -> str:
    """The most raw text that there is for a corpus."""
    return BOTH if corpus in OTHER_TEXTS else OWN


def texts_of(system: str, corpus: str, size: int) -> list[str]:
    """The raw texts with which a system is trained."""
    if system == "CRFsuite":
        return [NONE]
    if system == "ner" or size == 0:
        return [NONE, most_text(corpus)]
    others = [OTHER, BOTH] if corpus in OTHER_TEXTS else []
    return [NONE, *TOKENS, OWN, *others]


def plan(systems: list[str]) -> Iterator[Setting]:
    """What is trained, in this order."""
    for seed, system, size, corpus in product(SEEDS, systems, SIZES, LANGS):
        if size > 0:
            for raw in texts_of(system, corpus, size):
                yield Setting(corpus, size, seed, system, raw)
    for seed, system, corpus in product(SEEDS, systems, LANGS):
        if system != "ner":  # it takes hours
            for raw in texts_of(system, corpus, 0):
                yield Setting(corpus, 0, seed, system, raw)


def read_results(path: Path) -> dict[Setting, Result]:
    """Read the results so far."""
    results: dict[Setting, Result] = {}
    if path.exists():
        for line in path.read_text(encoding="utf8").splitlines():
            fields = json.loads(line)
            setting = Setting(*(fields[name] for name in Setting._fields))
            results[setting] = Result(*(fields[name] for name in Result._fields))
    return results


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


def main(folder: Path, raw_texts: Path, systems: list[str]) -> None:
    """Train what has no result yet, and print the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    data = {corpus: load_data(corpus, folder, raw_texts) for corpus in LANGS}
    for setting in plan(systems):
        if setting in read_results(path):
            continue
        corpus = data[setting.corpus]
        train = corpus.sentences["train"]
        if setting.sentences:
            train = draw(train, setting.sentences, setting.seed)
        with TemporaryDirectory() as temporary:
            result = RUNNERS[setting.system](corpus, train, setting, Path(temporary))
        with path.open("a", encoding="utf8") as file:
            file.write(json.dumps({**setting._asdict(), **result._asdict()}) + "\n")
    print_tables(read_results(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or [*RUNNERS])
