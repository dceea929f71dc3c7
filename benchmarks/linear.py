"""Compare the linear model with CRFsuite and spaCy's `ner`: training from .spacy files, and
tagging.

    OMP_NUM_THREADS=1 python benchmarks/linear.py [steps of ner] [seeds]

The corpus is CoNLL-2002 Spanish, with a doc per article (by the datelines). For few sentences, see
few.py. Our model is trained by `costner fit` with configs/sparse.cfg and
configs/sparse_document.cfg, and by `spacy train` with configs/sparse.cfg. spaCy's `ner` is trained
by `spacy train` with configs/baseline_ner.cfg, for 2,000 steps by default. CRFsuite is trained by
L-BFGS with c1 = c2 = 0.1 and 100 iterations, on the features of `windows`, computed in Python as
its users do, and on these and the label memory, which our code computes. spaCy's commands run in a
separate process. Seconds are wall-clock time, including start-up, reading and saving. All systems
then take turns at tagging testb, from words to entities. Pipelines also tag from text, which they
tokenize.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pycrfsuite
import spacy
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example, iob_to_biluo, tags_to_entities
from timing import Comparison, compare

from spacy_costner.features import Features, Template

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))

from experiments import corpora  # noqa: E402

CONFIGS = ROOT / "configs"
PARTS = ("train", "testa", "testb")
CORPUS = ROOT / "assets" / "conll2002_es"
ARTICLES = TemporaryDirectory()
TURNS = 9
CRFSUITE = {"c1": 0.1, "c2": 0.1, "max_iterations": 100}
AFFIXES = 4  # the maximum length of a prefix or suffix
FLAGS: dict[str, Callable[[str], bool]] = {
    "first": lambda word: word[:1].isupper(),
    "upper": str.isupper,
    "number": str.isdigit,
    "digit": lambda word: any(map(str.isdigit, word)),
    "hyphen": lambda word: "-" in word,
}

Tagger = Callable[[list[Doc]], list[Doc]]
"""Predicts the entities of docs that contain only words."""

NLP = spacy.blank("es")

Trained = tuple[float, float, Tagger]
"""The result of a training: seconds, megabytes, and the function that predicts entities."""


def path_of(part: str) -> Path:
    """Get the path of the .spacy file for a part of the corpus."""
    return Path(ARTICLES.name) / f"{part}.spacy"


def write_articles() -> None:
    """Write the parts of the corpus as .spacy files, with a doc for each article."""
    for part in PARTS:
        sentences = corpora.read_docs(CORPUS / f"esp.{part}", NLP.vocab)
        docs = corpora.join_groups(sentences, corpora.by_dateline(sentences))
        DocBin(docs=docs).to_disk(path_of(part))


def read(part: str) -> list[Doc]:
    """Read the annotated docs of a part."""
    return list(DocBin().from_disk(path_of(part)).get_docs(NLP.vocab))


def words_of(docs: Sequence[Doc]) -> list[list[str]]:
    """Get the words of each doc."""
    return [[token.text for token in doc] for doc in docs]


def f_score(tag: Tagger, part: str) -> float:
    """Compute the F of a tagger on a part of the corpus, in percent."""
    gold_docs = read(part)
    docs = [Doc(doc.vocab, words) for doc, words in zip(gold_docs, words_of(gold_docs))]
    examples = [Example(doc, gold) for doc, gold in zip(tag(docs), gold_docs)]
    return 100 * get_ner_prf(examples)["ents_f"]


def pipe(nlp: Language, docs: list[Doc]) -> list[Doc]:
    """Predict the entities of docs by a pipeline, which has a different vocab."""
    return list(nlp.pipe(Doc(nlp.vocab, words) for words in words_of(docs)))


def pipe_texts(nlp: Language, texts: list[str]) -> list[Doc]:
    """Tokenize texts and predict their entities by a pipeline."""
    return list(nlp.pipe(texts))


def by_spacy(output: Path, *arguments: object) -> Trained:
    """Train with a spaCy command."""
    settings = ["--nlp.lang", "es"]
    settings += ["--paths.train", str(path_of("train")), "--paths.dev", str(path_of("testa"))]
    words = [str(argument) for argument in arguments]
    command = [sys.executable, "-W", "ignore", "-m", "spacy", *words]
    command += ["--output", str(output), *settings]
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    model = output / "model-best"
    if not model.exists():
        model = output / "model-last"
    n_bytes = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    return (seconds, n_bytes / 1e6, partial(pipe, spacy.load(model)))


def features_of_word(word: str, cache: dict[str, list[tuple[int, str]]]) -> list[tuple[int, str]]:
    """Compute the features of a word as in configs/sparse.cfg: for each, the maximum distance in
    tokens at which it is used, and its name. `cache` contains the features of previous words."""
    if word not in cache:
        lexeme = NLP.vocab[word]
        windows_and_names = [
            (2, f"word={word}"),
            (2, f"lower={lexeme.lower_}"),
            (2, f"shape={lexeme.shape_}"),
        ]
        for n in range(1, min(len(word), AFFIXES) + 1):
            windows_and_names.append((1, f"prefix{n}={word[:n]}"))
            windows_and_names.append((1, f"suffix{n}={word[-n:]}"))
        for name, has_flag in FLAGS.items():
            if has_flag(word):
                windows_and_names.append((1, name))
        cache[word] = windows_and_names
    return cache[word]


def features(words: list[str], cache: dict[str, list[tuple[int, str]]]) -> list[list[str]]:
    """Compute the features of each token for CRFsuite: the features of the surrounding words, with
    their offset."""
    features_of_words = [features_of_word(word, cache) for word in words]
    features_of_tokens: list[list[str]] = []
    for t in range(len(words)):
        names: list[str] = []
        for neighbour in range(max(t - 2, 0), min(t + 3, len(words))):
            offset = neighbour - t
            for window, name in features_of_words[neighbour]:
                if abs(offset) <= window:
                    names.append(f"{offset}:{name}")
        features_of_tokens.append(names)
    return features_of_tokens


def find_memory(memory: Features, docs: list[Doc], *, is_train: bool) -> Iterator[list[list[str]]]:
    """Yield the feature names of each token in each doc, from `memory`, which contains label memory
    and no other features."""
    names = memory.names()
    for doc in docs:
        rows_of_tokens = memory.find([doc], is_train=is_train).rows.tolist()
        # -1 stands for no feature.
        yield [[names[row] for row in rows if row >= 0] for rows in rows_of_tokens]


def by_crfsuite(path: Path, *, has_memory: bool) -> Trained:
    """Train CRFsuite on word features, and optionally on label memory features."""
    cache: dict[str, list[tuple[int, str]]] = {}
    memory = Features(Template(windows={}, memory={"LOWER": 1}, memory_unit=20))

    def features_by_doc(docs: list[Doc], *, is_train: bool = False) -> Iterator[list[list[str]]]:
        """Yield the features of each token in each doc."""
        memory_by_doc = find_memory(memory, docs, is_train=is_train)
        for words in words_of(docs):
            features_of_tokens = features(words, cache)
            if has_memory:
                for names, names_of_memory in zip(features_of_tokens, next(memory_by_doc)):
                    names += names_of_memory
            yield features_of_tokens

    began = time.perf_counter()
    trainer = pycrfsuite.Trainer(verbose=False)
    docs = read("train")
    memory.build_vocab(docs)
    for doc, features_of_doc in zip(docs, features_by_doc(docs, is_train=True)):
        trainer.append(features_of_doc, corpora.tags_of(doc))
    trainer.select("lbfgs", "crf1d")
    trainer.set_params(CRFSUITE)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    seconds = time.perf_counter() - began

    def tag(docs: list[Doc]) -> list[Doc]:
        for doc, features_of_doc in zip(docs, features_by_doc(docs)):
            tags = tagger.tag(features_of_doc)
            ents: list[Span] = []
            for label, first, last in tags_to_entities(iob_to_biluo(tags)):
                ents.append(Span(doc, first, last + 1, label))
            doc.set_ents(ents)
        return docs

    return (seconds, path.stat().st_size / 1e6, tag)


def train_all(folder: Path, n_steps: int, n_seeds: int) -> Iterator[tuple[str, Trained]]:
    """Train all systems, one after another. Yields the title and the result of each training."""
    for seed in range(n_seeds):
        seed_option = ("--system.seed", seed)
        for name in ("sparse", "sparse_document"):
            config = CONFIGS / f"{name}.cfg"
            output = folder / f"{name}{seed}"
            trained = by_spacy(output, "costner", "fit", config, *seed_option)
            yield f"`{name}.cfg`, `fit`, seed {seed}", trained
        trained = by_spacy(folder / f"train{seed}", "train", CONFIGS / "sparse.cfg", *seed_option)
        yield f"`sparse.cfg`, `spacy train`, seed {seed}", trained
    yield "CRFsuite", by_crfsuite(folder / "crfsuite", has_memory=False)
    yield "CRFsuite with label memory", by_crfsuite(folder / "crfsuite_memory", has_memory=True)
    ner = ("train", CONFIGS / "baseline_ner.cfg", "--training.max_steps", n_steps)
    limits = ("--training.patience", 0, "--training.eval_frequency", 500)
    yield f"`ner`, {n_steps:,} steps", by_spacy(folder / "ner", *ner, *limits)


def compare_tagging(taggers: dict[str, Tagger]) -> None:
    """Print how fast each tagger is. The first tagger is ours."""
    docs = read("testb")
    words_of_docs = words_of(docs)
    ours, *_ = taggers

    def new_docs(name: str) -> list[Doc]:
        """Make docs without annotation, the same for each tagger."""
        return [Doc(NLP.vocab, words) for words in words_of_docs]

    timed = compare({**taggers}, ours, TURNS, prepare=new_docs)
    n_tokens = sum(len(doc) for doc in docs)
    print_speeds("tagging, from words", timed, n_tokens)

    # Only pipelines have a tokenizer.
    pipelines = {name: tag.args[0] for name, tag in taggers.items() if isinstance(tag, partial)}
    texts = [" ".join(words) for words in words_of_docs]
    text_taggers: dict[str, Callable[..., object]] = {
        name: partial(pipe_texts, nlp) for name, nlp in pipelines.items()
    }
    timed = compare(text_taggers, ours, TURNS, prepare=lambda name: texts)
    n_tokens = sum(len(NLP.make_doc(text)) for text in texts)
    print_speeds("tagging, from text", timed, n_tokens)


def print_speeds(title: str, timed: dict[str, Comparison], n_tokens: int) -> None:
    """Print a table of the results of `compare`."""
    print(f"\n| {title} | tokens/s | time, ours being 1 |\n|---|---|---|")
    for name, (seconds, ratio, low, high) in timed.items():
        speed = n_tokens / seconds
        print(f"| {name} | {speed:,.0f} | {ratio:.2f} ({low:.2f} to {high:.2f}) |")


def main(n_steps: int = 2_000, n_seeds: int = 1) -> None:
    """Train all systems, and print their scores, sizes and speeds."""
    print("\n## The linear model against CRFsuite and spaCy's `ner`\n")
    if not CORPUS.exists():
        print(f"Not run: there is no {CORPUS.relative_to(ROOT)}. `python -m spacy project run")
        print("conll2002-fetch` makes it.")
        return
    write_articles()
    print("CoNLL-2002 Spanish, one article per doc: training from .spacy to a saved pipeline;")
    print("then tagging testb in turns, from words or text to entities: medians and quartiles.\n")
    print("| | seconds | F on testa | F on testb | MB |\n|---|---|---|---|---|", flush=True)

    taggers: dict[str, Tagger] = {}
    with TemporaryDirectory() as folder:
        for name, (seconds, megabytes, tag) in train_all(Path(folder), n_steps, n_seeds):
            scores = " | ".join(f"{f_score(tag, part):.2f}" for part in ("testa", "testb"))
            print(f"| {name} | {seconds:.1f} | {scores} | {megabytes:.1f} |", flush=True)
            # One seed, trained by `fit`, is enough for the speed.
            if "seed" not in name or name.endswith("`fit`, seed 0"):
                title = name.split(", ")[0]
                taggers[title] = tag
        compare_tagging(taggers)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
