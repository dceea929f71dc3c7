"""One pipeline shared by threads answers what it answers in one.

    python benchmarks/threads.py CORPUS.spacy RUNS PIPELINE [PIPELINE ...]

Each run loads the pipeline anew. 8 threads read all texts of the corpus, each in an order of its
own, and among them 100,000 distinct made-up words; then one thread reads all of that again. Half
of the runs have `chain.set_threads(2)`, and batches that are large enough for it. Counts the docs
whose entities or scores differ from those of a pipeline that no thread has shared.
"""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Dict, List, NamedTuple, Tuple

import numpy
import spacy
from spacy.language import Language
from spacy.tokens import DocBin
from thinc.types import Floats2d

from spacy_costner import chain

N_THREADS, N_WORDS, WORDS_A_TEXT = 8, 100_000, 20
SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]


def made_up_texts(n_words: int = N_WORDS) -> List[str]:
    """Texts of distinct words, every other one with a capital."""
    rng = random.Random(0)
    words: List[str] = []
    known = set()
    while len(words) < n_words:
        word = "".join(rng.choices(SYLLABLES, k=rng.randint(2, 5)))
        if word not in known:
            known.add(word)
            words.append(word.title() if len(words) % 2 else word)
    return [" ".join(words[i : i + WORDS_A_TEXT]) for i in range(0, n_words, WORDS_A_TEXT)]


class Read(NamedTuple):
    """The entities of a text, and how the model scores the tags of its tokens."""

    ents: List[Tuple[int, int, str]]
    scores: Floats2d


def read(
    nlp: Language, texts: List[str], made_up: List[str], size: int, share: int, n_shares: int
) -> Dict[str, Read]:
    """What one of some threads does: read all texts, one by one, in an order of its own, and its
    share of the others, in batches.

    RETURNS (Dict[str, Read]): The answer to each text.
    """
    order = list(range(len(texts)))
    random.Random(share).shuffle(order)
    of_texts = {texts[i]: nlp(texts[i]) for i in order}
    mine = made_up[share::n_shares]
    docs = [*map(of_texts.__getitem__, texts), *nlp.pipe(mine, batch_size=size)]
    model = nlp.get_pipe("ner").model
    batches = [model.predict(docs[i : i + size]).emissions for i in range(0, len(docs), size)]
    scores = numpy.split(numpy.concatenate(batches), numpy.cumsum([len(doc) for doc in docs]))
    ents = [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in docs]
    return {doc.text: Read(*answer) for doc, *answer in zip(docs, ents, scores)}


def n_different(found: Dict[str, Read], expected: Dict[str, Read]) -> int:
    """The texts that were read otherwise. Scores may differ by what the order of a sum makes."""
    return sum(
        answer.ents != expected[text].ents
        or not numpy.allclose(answer.scores, expected[text].scores, rtol=1e-4, atol=1e-4)
        for text, answer in found.items()
    )


class Setting(NamedTuple):
    """How a run reads: texts of a batch, and threads of the compiled chain."""

    size: int
    chain_threads: int


SETTINGS = (Setting(8, 1), Setting(400, 2))


def differences(path: str, texts: List[str], made_up: List[str], runs: int) -> Tuple[int, int]:
    """Read everything in threads, then in one.

    RETURNS (Tuple[int, int]): The answers that differ, in threads and afterwards.
    """
    in_threads = afterwards = 0
    for i, (size, chain_threads) in enumerate(SETTINGS):
        chain.set_threads(chain_threads)
        expected = read(spacy.load(path), texts, made_up, size, 0, 1)
        for run in range(i, runs, len(SETTINGS)):
            nlp = spacy.load(path)
            work = partial(read, nlp, texts, made_up, size, n_shares=N_THREADS)
            with ThreadPoolExecutor(N_THREADS) as pool:
                found = list(pool.map(work, range(N_THREADS)))
            in_threads += sum(n_different(answers, expected) for answers in found)
            afterwards += n_different(read(nlp, texts, made_up, size, 0, 1), expected)
            print(
                f"{path}: run {run}: {in_threads}, {afterwards} so far", file=sys.stderr, flush=True
            )
    chain.set_threads(1)
    return in_threads, afterwards


def main(corpus: str, runs: str, *paths: str) -> None:
    vocab = spacy.blank("en").vocab
    texts = [doc.text for doc in DocBin().from_disk(corpus).get_docs(vocab)]
    made_up = made_up_texts()
    sys.setswitchinterval(1e-5)
    print("| pipeline | runs | docs a run | differ in threads | differ in one afterwards | s |")
    print("|---|---|---|---|---|---|")
    for path in paths:
        start = time.perf_counter()
        first, then = differences(path, texts, made_up, int(runs))
        n_docs = N_THREADS * len(texts) + len(made_up)
        seconds = time.perf_counter() - start
        print(f"| {path} | {runs} | {n_docs:,} | {first} | {then} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
