"""A pipeline that threads share answers what it answers in one: at length in
benchmarks/threads.py."""

import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event, local
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.strings import get_string_id
from spacy.tokens import Doc, Span
from thinc.api import fix_random_seed

from spacy_costner import chain, sparse
from spacy_costner.features import FeatureBatch, Features, Template, gazetteers
from spacy_costner.features.words import WordView
from spacy_costner.ml import linear_part
from spacy_costner.pipeline import annotations as annotate
from spacy_costner.sparse import AdaGrad

from .support.linear import HYBRID, SPARSE, crf
from .support.pipelines import SMALL, pipeline, train
from .support.threads import N_THREADS, in_threads

TEXTS = ["Who is Shaka Khan?", "I like London and Berlin."]
NUMBERS_IN_THREADS = Path(__file__).parent / "id_map_in_threads.cpp"
models = pytest.mark.parametrize(
    "model", [SPARSE, HYBRID, SMALL["model"]], ids=["sparse", "hybrid", "cnn"]
)


@pytest.fixture(autouse=True)
def unruly() -> Iterator[None]:
    """Threads take turns as often as they can, and the chain has two of its own."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    chain.set_threads(2)
    yield
    chain.set_threads(1)
    sys.setswitchinterval(before)


def fresh_texts(share: int) -> list[str]:
    """Texts of words that nobody else has, some as in training."""
    return [f"Who{share} is{i} Shaka{share}x{i} Khan? London{i}x{share}." for i in range(12)]


def read(nlp: Language, share: int) -> list[Any]:
    docs = [nlp(text) for text in [*TEXTS, *fresh_texts(share)]]
    scores = [nlp.get_pipe("ner").model.predict([doc]).emissions for doc in docs]
    return [([(e.start, e.end, e.label_) for e in doc.ents], doc.text) for doc in docs], scores


@models
def test_answers_are_those_of_one_thread(model: Any) -> None:
    fix_random_seed(0)
    nlp = pipeline(model=model)
    train(nlp)
    loaded = [pipeline(model=model).from_bytes(nlp.to_bytes()) for _ in range(2)]
    expected = [read(loaded[0], share) for share in range(N_THREADS)]
    together = in_threads(lambda share: read(loaded[1], share))
    afterwards = [read(loaded[1], share) for share in range(N_THREADS)]
    assert any(ents for ents, _ in expected[0][0])
    for found in (together, afterwards):
        for (answers, scores), (expected_answers, expected_scores) in zip(found, expected):
            assert answers == expected_answers
            for some, others in zip(scores, expected_scores):
                numpy.testing.assert_allclose(some, others, rtol=1e-5, atol=1e-5)


def test_words_that_threads_see_at_once() -> None:
    """Both are about to look at their words before either writes down what it sees."""
    vocab = spacy.blank("xx").vocab
    names = ["a", "b", "c", "d", "e", "f"]
    docs = [Doc(vocab, words=names[:3]), Doc(vocab, words=names[3:])]
    features = Features(Template(windows={"ORTH": 0}))
    features.build_vocab(docs)
    expected = [features.find([doc]).rows.tolist() for doc in docs]
    features = Features(features.template).from_bytes(features.to_bytes())
    [column], meeting, met = features.lookup.word_columns, Barrier(2), local()
    value_of = column.view.value_of

    def slow_value_of(lexeme: Any, word: str) -> Any:
        if not hasattr(met, "done"):
            met.done = True
            meet(meeting)
        return value_of(lexeme, word)

    column.view = WordView(slow_value_of)
    assert in_threads(lambda i: features.find([docs[i]]).rows.tolist(), 2) == expected
    assert [features.find([doc]).rows.tolist() for doc in docs] == expected


def meet(barrier: Barrier) -> None:
    """Wait for the other thread, but not for long: it may have to wait for this one."""
    with suppress(BrokenBarrierError):
        barrier.wait(timeout=0.5)


def test_words_are_forgotten_while_others_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_WORDS", 10)
    vocab = spacy.blank("xx").vocab
    features = Features(Template(windows={"ORTH": 0}))
    docs = [Doc(vocab, words=[f"{i}-{j}" for j in range(7)]) for i in range(50)]
    features.build_vocab(docs)
    expected = [features.find([doc]).rows.tolist() for doc in docs]
    for found in in_threads(lambda _: [features.find([doc]).rows.tolist() for doc in docs]):
        assert found == expected


def test_numbers_are_found_while_others_are_set() -> None:
    numbers, is_over = sparse.IdMap(), Event()
    keys = numpy.random.default_rng(0).permutation(5000).astype("uint64") * 2**33
    values = numpy.arange(len(keys), dtype="int32")

    def work(i: int) -> None:
        while i and not is_over.is_set():
            found = numbers.find(keys)
            assert ((found == values) | (found == -1)).all()
        for first in range(0, 0 if i else len(keys), 50):
            numbers.set(keys[first : first + 50], values[first : first + 50])
            assert (numbers.find(keys[: first + 50]) >= 0).all()
        is_over.set()

    in_threads(work, 4)
    numpy.testing.assert_array_equal(numbers.find(keys), values)


def test_a_gazetteer_is_asked_when_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    vocab = spacy.blank("xx").vocab
    doc = Doc(vocab, words=["New", "York"])
    phrases = gazetteers.Gazetteer(["New York"])
    expected = gazetteers.Gazetteer(["New York"]).find([doc], get_string_id).tolist()
    meeting, met = Barrier(2), local()

    def slow_doc(*args: Any, **kwargs: Any) -> Doc:
        met.done = True
        time.sleep(0.05)
        return Doc(*args, **kwargs)

    monkeypatch.setattr(gazetteers, "Doc", slow_doc)

    def find(i: int) -> Any:
        meet(meeting)
        time.sleep(0.02 * i)
        return phrases.find([doc], get_string_id).tolist()

    assert in_threads(find, 2) == [expected, expected] and any(expected)


def test_predictions_after_training_take_turns_to_catch_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regularisation leaves something to do in rows that had no gradient; once, not twice."""
    inside: list[int] = []
    lazy_regularise = sparse.lazy_regularise

    def alone(*args: Any) -> None:
        inside.append(0)
        time.sleep(0.002)
        lazy_regularise(*args)
        assert inside == [0]
        inside.pop()

    weights = linear_part(crf(L2=0.1))[1]
    weights.step = 5
    monkeypatch.setattr(sparse, "lazy_regularise", alone)
    rows = numpy.arange(weights.n_features, dtype="int32")[:, None]
    batch = FeatureBatch(rows, numpy.asarray([len(rows)], dtype="int32"))
    found = in_threads(lambda _: weights.potentials(batch))
    assert all((scores.emissions == found[0].emissions).all() for scores in found)
    assert weights.settings == AdaGrad(L2=0.1)


def test_a_pipeline_that_threads_have_used_is_pickled(tmp_path: Path) -> None:
    nlp = pipeline(model=SPARSE)
    train(nlp)
    in_threads(lambda share: read(nlp, share))
    expected = [[ent.text for ent in nlp(text).ents] for text in TEXTS]
    assert any(expected)
    for docs in (nlp.pipe(TEXTS, n_process=2), pickle.loads(pickle.dumps(nlp)).pipe(TEXTS)):
        assert [[ent.text for ent in doc.ents] for doc in docs] == expected


def test_compiled_numbers_under_thread_sanitizer(tmp_path: Path) -> None:
    compiler, program = shutil.which("g++"), tmp_path / "numbers"
    build = [str(compiler), "-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread"]
    build += ["-I", str(Path(sparse.__file__).parent), str(NUMBERS_IN_THREADS), "-o", str(program)]
    if compiler is None or subprocess.run(build, capture_output=True).returncode:
        pytest.skip("no g++ with ThreadSanitizer")
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_system_without_threads_to_spare_is_no_end() -> None:
    """The chain does with the threads that it gets; the process went down with it before."""
    program = """
import resource
from pathlib import Path
import numpy
from spacy_costner import chain
from tests.support.batches import random_potentials
potentials = random_potentials([600] * 4, 17)
expected = chain.log_partition(potentials)[0]
chain.set_threads(2)
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + 6 * 2**20, resource.RLIM_INFINITY))
numpy.testing.assert_allclose(chain.log_partition(potentials)[0], expected)
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("limits of memory are set as on Linux")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pipelines_with_confidence_are_made_at_once() -> None:
    """Whoever comes second finds the extension attribute, or sets the same again."""
    meeting = Barrier(2)

    class Late:
        """Spans, of which both threads hear that there is no such attribute."""

        @staticmethod
        def has_extension(name: str) -> bool:
            known = Span.has_extension(name)
            meet(meeting)
            return known

        set_extension, get_extension = Span.set_extension, Span.get_extension

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annotate, "Span", Late)
        in_threads(lambda _: annotate.register(annotate.Confidence(extension="late")), 2)
    assert Span.get_extension("late")[2] is annotate.confidence_of
    Span.remove_extension("late")


# A fork while a thread works

FORK_WHILE_ADDING = """
import os, signal, threading, time, numpy
from spacy_costner.features import WordCache

class Slow:
    def __init__(self, numbers):
        self.numbers, self.find = numbers, numbers.find
        self.is_setting = threading.Event()

    def set(self, orth, numbers):
        self.is_setting.set()
        time.sleep(0.5)
        self.numbers.set(orth, numbers)

def add(*words):
    rows = numpy.asarray(words, dtype="int32")[:, None]
    cache.add(numpy.asarray(words, dtype="uint64"), rows)

cache = WordCache(1, {})
cache.word_ids = Slow(cache.word_ids)
thread = threading.Thread(target=add, args=(5, 6))
thread.start()
cache.word_ids.is_setting.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    add(7)
    words = numpy.asarray([5, 6, 7], dtype="uint64")
    os._exit(cache.table[cache.word_ids.find(words), 0].tolist() != words.tolist())
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""

FORK_WHILE_HELD = """
import os, signal, threading, time
from spacy_costner.ml.weights import _CATCHING_UP

def hold():
    with _CATCHING_UP:
        is_held.set()
        time.sleep(0.5)

is_held = threading.Event()
thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    with _CATCHING_UP:
        os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="expected a system that forks")
@pytest.mark.parametrize("script", [FORK_WHILE_ADDING, FORK_WHILE_HELD], ids=["words", "weights"])
def test_a_fork_waits_for_a_thread(script: str) -> None:
    """The child doesn't hang, and has what the thread has added. In a process of its own, as this
    one has threads of other tests."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
