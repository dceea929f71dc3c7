"""Compare `cost_sensitive_ner` with spaCy's `ner`: words per second in training and annotation.

    OMP_NUM_THREADS=1 python benchmarks/components.py [turns]

The components are configured as in configs/cnn.cfg and configs/baseline_ner.cfg, with the same
Tok2Vec (width 96, depth 4), on CoNLL-2002 Spanish with one sentence per doc. They take turns at
training, with batches of about a thousand words, and then at annotating the test docs.
"""

import sys
from collections.abc import Callable
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from spacy.training.initialize import init_nlp
from spacy.util import load_config
from thinc.api import fix_random_seed, require_cpu
from timing import Comparison, compare

Task = Callable[..., object]

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "corpus" / "conll2002_es"
OURS = "cost_sensitive_ner"
PEER = "ner"
WITHOUT_ENCODER = "ours without the encoder"
CONFIGS = {OURS: "cnn.cfg", PEER: "baseline_ner.cfg", WITHOUT_ENCODER: "cnn.cfg"}
FOLDERS = {"paths.train": "train", "paths.dev": "testa"}
TRAINING_BATCHES = 60
SHORT_DOCS = 300


def load(name: str) -> Language:
    """Load a pipeline that is ready for training."""
    paths = {part: str(CORPUS / folder / "esp.spacy") for part, folder in FOLDERS.items()}
    config = load_config(ROOT / "configs" / CONFIGS[name], {**paths, "nlp.lang": "es"})
    fix_random_seed(0)
    return init_nlp(config)


def read(nlp: Language, path: Path) -> list[Doc]:
    """Read the annotated docs of a .spacy file, with the vocab of a pipeline."""
    return list(DocBin().from_disk(path).get_docs(nlp.vocab))


def unannotated(docs: list[Doc]) -> list[Doc]:
    """Copy docs without their annotation."""
    copies: list[Doc] = []
    for doc in docs:
        words = [token.text for token in doc]
        spaces = [bool(token.whitespace_) for token in doc]
        copies.append(Doc(doc.vocab, words, spaces))
    return copies


def encode(nlp: Language, batch: list[Example]) -> None:
    """Have the Tok2Vec pass the vectors of a batch to the component, as in `nlp.update`. It isn't
    trained, because it gets no gradient back."""
    docs = [eg.predicted for eg in batch]
    encoder: Any = nlp.get_pipe("tok2vec")
    vectors, _ = encoder.model.begin_update(docs)
    (listener,) = encoder.listeners
    listener.receive(listener.get_batch_id(docs), vectors, lambda d_vectors: None)


def learn(nlp: Language, batch: list[Example], sgd: Callable) -> None:
    """Update the component with a batch prepared by `encode`."""
    ner: Any = nlp.get_pipe("ner")
    ner.update(batch, drop=0.2)
    ner.finish_update(sgd)


def compare_training(pipelines: dict[str, Language], path: Path, turns: int) -> None:
    """Compare how fast pipelines are trained. Each turn is one batch."""
    batches: dict[str, list[list[Example]]] = {}
    for name, nlp in pipelines.items():
        docs = read(nlp, path)
        examples = [Example(doc, gold) for doc, gold in zip(unannotated(docs), docs)]
        batches[name] = list(islice(minibatch_by_words(examples, 1000), TRAINING_BATCHES))
    n_words = sum(len(eg) for eg in chain.from_iterable(batches[OURS]))
    words_of_batch = n_words / len(batches[OURS])

    sgd = {name: nlp.create_optimizer() for name, nlp in pipelines.items()}
    endless_batches = {name: cycle(batches[name]) for name in batches}
    tasks: dict[str, Task] = {}
    for name in (OURS, PEER):
        tasks[name] = partial(pipelines[name].update, sgd=sgd[name], drop=0.2)
    nlp_without_encoder = pipelines[WITHOUT_ENCODER]
    tasks[WITHOUT_ENCODER] = partial(learn, nlp_without_encoder, sgd=sgd[WITHOUT_ENCODER])

    def prepare(name: str) -> list[Example]:
        """Get the next batch. If the encoder isn't timed, it runs here."""
        batch = next(endless_batches[name])
        if name == WITHOUT_ENCODER:
            encode(nlp_without_encoder, batch)
        return batch

    timed = compare(tasks, OURS, turns, prepare=prepare)
    print_row("training, batches of 1,000 words", timed, words_of_batch)


def annotate_at_once(pipe: Any, docs: list[Doc]) -> None:
    """Annotate docs in large batches, and discard them."""
    for _ in pipe.pipe(docs, batch_size=1000):
        pass


def annotate_singly(pipe: Any, docs: list[Doc]) -> None:
    """Annotate docs one at a time."""
    for doc in docs:
        pipe(doc)


def compare_pipes(pipelines: dict[str, Language], path: Path, turns: int) -> None:
    """Compare how fast pipelines annotate. Each turn is the whole test corpus, then short docs, one
    at a time."""
    docs = {name: read(nlp, path) for name, nlp in pipelines.items()}
    encoder: Any = pipelines[WITHOUT_ENCODER].get_pipe("tok2vec")
    ner: Any = pipelines[WITHOUT_ENCODER].get_pipe("ner")

    def prepare(name: str) -> list[Doc]:
        """Make new docs. If the encoder isn't timed, it runs here."""
        new_docs = unannotated(docs[name])
        if name == WITHOUT_ENCODER:
            return list(encoder.pipe(new_docs))
        return new_docs

    pipes: dict[str, Any] = {OURS: pipelines[OURS], PEER: pipelines[PEER], WITHOUT_ENCODER: ner}
    tasks: dict[str, Task] = {name: partial(annotate_at_once, pipe) for name, pipe in pipes.items()}
    timed = compare(tasks, OURS, turns, prepare=prepare)
    print_row("`nlp.pipe`", timed, sum(map(len, docs[OURS])))

    docs = {name: docs_of_pipeline[:SHORT_DOCS] for name, docs_of_pipeline in docs.items()}
    tasks = {name: partial(annotate_singly, pipe) for name, pipe in pipes.items()}
    timed = compare(tasks, OURS, turns, prepare=prepare)
    print_row("`nlp(doc)`, a sentence at a time", timed, sum(map(len, docs[OURS])))


def print_row(title: str, timed: dict[str, Comparison], words: float) -> None:
    """Print a row of the table. `words` is the number of words per turn."""
    peer = timed[PEER]
    component = timed[WITHOUT_ENCODER]
    cells = [
        title,
        f"{words / timed[OURS].seconds:,.0f}",
        f"{words / peer.seconds:,.0f}",
        f"{peer.ratio:.2f} ({peer.low:.2f} to {peer.high:.2f})",
        f"{100 * component.ratio:.0f} % ({100 * component.low:.0f} to {100 * component.high:.0f})",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def main(turns: int = 15) -> None:
    """Print the table of training and annotation."""
    print("\n## The component against spaCy's `ner`\n")
    print("Words per second on CoNLL-2002 Spanish, with the same Tok2Vec and one sentence per doc;")
    print("the time of `ner` as a multiple of ours, median and quartiles over turns; and the")
    print("percentage of our time that is spent outside the encoder.\n")
    if not CORPUS.exists():
        print(f"Not run: there is no {CORPUS.relative_to(ROOT)}. `python -m spacy project run` of")
        print("`conll2002-fetch` and `conll2002-convert` makes it.")
        return
    require_cpu()
    pipelines = {name: load(name) for name in CONFIGS}
    print(f"| | {OURS} | {PEER} | ratio | ours without encoder |")
    print("|---|---|---|---|---|")
    compare_training(pipelines, CORPUS / "train" / "esp.spacy", 4 * turns)
    compare_pipes(pipelines, CORPUS / "testb" / "esp.spacy", turns)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
