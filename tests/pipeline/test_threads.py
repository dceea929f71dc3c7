"""A pipeline that threads share answers what it answers in one."""

import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event, local
from typing import Any, NamedTuple

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.strings import get_string_id
from spacy.tokens import Doc, Span
from thinc.api import fix_random_seed

import spacy_costner
from spacy_costner import chain, sparse
from spacy_costner.caching import cached_property
from spacy_costner.decoding.posterior import Posterior
from spacy_costner.features import FeatureBatch, Features, Template, gazetteers
from spacy_costner.features.words import WordView
from spacy_costner.ml import linear_part
from spacy_costner.pipeline import confidence
from spacy_costner.sparse import AdaGrad
from spacy_costner.tags import Tags

from ..support.batches import random_potentials
from ..support.linear import HYBRID, SPARSE, crf
from ..support.pipelines import SMALL, pipeline, train
from ..support.threads import N_THREADS, in_threads

TEXTS = ["Who is Shaka Khan?", "I like London and Berlin."]
ID_MAP_IN_THREADS = Path(__file__).parents[1] / "id_map_in_threads.cpp"


@pytest.fixture(autouse=True)
def unruly_threads() -> Iterator[None]:
    """Threads take turns as often as they can, and the chain has two of its own."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    chain.set_threads(2)
    yield
    chain.set_threads(1)
    sys.setswitchinterval(before)


def texts_of_thread(thread: int) -> list[str]:
    """The training texts, and texts of words that no other thread has."""
    new_texts = []
    for i in range(12):
        new_texts.append(f"Who{thread} is{i} Shaka{thread}x{i} Khan? London{i}x{thread}.")
    return [*TEXTS, *new_texts]


class Predicted(NamedTuple):
    """Of the texts of a thread, one after another."""

    entities: list[list[tuple[int, int, str]]]
    emissions: list[numpy.ndarray]


def predict_texts_of_thread(nlp: Language, thread: int) -> Predicted:
    """Entities and scores of the texts of a thread, one by one."""
    docs = [nlp(text) for text in texts_of_thread(thread)]
    entities = [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in docs]
    model = nlp.get_pipe("ner").model
    return Predicted(entities, [model.predict([doc]).emissions for doc in docs])


@pytest.mark.slow
@pytest.mark.parametrize("model", [SPARSE, HYBRID, SMALL["model"]], ids=["sparse", "hybrid", "cnn"])
def test_threads_predict_what_one_thread_predicts(model: Any) -> None:
    """Afterwards one thread predicts the same, with what the threads have left in caches."""
    fix_random_seed(0)
    nlp = pipeline(model=model)
    train(nlp)
    alone = pipeline(model=model).from_bytes(nlp.to_bytes())
    shared = pipeline(model=model).from_bytes(nlp.to_bytes())

    expected = [predict_texts_of_thread(alone, thread) for thread in range(N_THREADS)]
    at_once = in_threads(lambda thread: predict_texts_of_thread(shared, thread))
    afterwards = [predict_texts_of_thread(shared, thread) for thread in range(N_THREADS)]

    assert any(expected[0].entities)
    for predicted_by_threads in (at_once, afterwards):
        for predicted, expected_of_thread in zip(predicted_by_threads, expected, strict=True):
            assert predicted.entities == expected_of_thread.entities
            numpy.testing.assert_allclose(
                numpy.concatenate(predicted.emissions),
                numpy.concatenate(expected_of_thread.emissions),
                rtol=1e-5,
                atol=1e-5,
            )


def test_threads_that_look_up_new_words_at_once_find_their_features() -> None:
    """Both have begun to look up their words before either writes one to the cache."""
    vocab = spacy.blank("xx").vocab
    docs = [Doc(vocab, words=["a", "b", "c"]), Doc(vocab, words=["d", "e", "f"])]
    features = Features(Template(windows={"ORTH": 0}))
    features.build_vocab(docs)
    expected = [features.find([doc]).rows.tolist() for doc in docs]

    # Loaded features have no words in their cache.
    features = Features(features.template).from_bytes(features.to_bytes())
    (column,) = features.lookup.word_columns
    value_of = column.view.value_of
    meeting = Barrier(2)
    of_thread = local()

    def slow_value_of(lexeme: Any, word: str) -> Any:
        if not hasattr(of_thread, "has_met"):
            of_thread.has_met = True
            meet(meeting)
        return value_of(lexeme, word)

    column.view = WordView(slow_value_of)
    assert in_threads(lambda i: features.find([docs[i]]).rows.tolist(), 2) == expected
    assert [features.find([doc]).rows.tolist() for doc in docs] == expected


def meet(barrier: Barrier) -> None:
    """Wait for the other thread, but not for long: it may have to wait for this one."""
    with suppress(BrokenBarrierError):
        barrier.wait(timeout=0.5)


def test_features_are_found_while_other_threads_empty_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has room for 10 of 350 words."""
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_CACHED_WORDS", 10)
    vocab = spacy.blank("xx").vocab
    features = Features(Template(windows={"ORTH": 0}))
    docs = [Doc(vocab, words=[f"{i}-{j}" for j in range(7)]) for i in range(50)]
    features.build_vocab(docs)
    expected = [features.find([doc]).rows.tolist() for doc in docs]
    rows_of_threads = in_threads(lambda _: [features.find([doc]).rows.tolist() for doc in docs])
    for rows in rows_of_threads:
        assert rows == expected


def test_an_id_map_is_read_while_another_thread_writes() -> None:
    """Three threads find the value of a key or, before it is set, -1."""
    id_map = sparse.IdMap()
    is_over = Event()
    keys = numpy.random.default_rng(0).permutation(5000).astype("uint64") * 2**33
    values = numpy.arange(len(keys), dtype="int32")

    def write() -> None:
        for first in range(0, len(keys), 50):
            id_map.set(keys[first : first + 50], values[first : first + 50])
            assert (id_map.find(keys[: first + 50]) >= 0).all()
        is_over.set()

    def read() -> None:
        while not is_over.is_set():
            values_so_far = id_map.find(keys)
            assert ((values_so_far == values) | (values_so_far == -1)).all()

    in_threads(lambda thread: write() if thread == 0 else read(), 4)

    numpy.testing.assert_array_equal(id_map.find(keys), values)


def test_a_gazetteer_is_not_read_by_a_thread_before_another_has_built_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is built when it is first read: slowly here, and the second thread comes meanwhile."""
    vocab = spacy.blank("xx").vocab
    doc = Doc(vocab, words=["New", "York"])
    phrases = gazetteers.Gazetteer(["New York"])
    expected = gazetteers.Gazetteer(["New York"]).find([doc], get_string_id).tolist()
    meeting = Barrier(2)

    def slow_doc(*args: Any, **kwargs: Any) -> Doc:
        time.sleep(0.05)
        return Doc(*args, **kwargs)

    monkeypatch.setattr(gazetteers, "Doc", slow_doc)

    def find(thread: int) -> Any:
        meet(meeting)
        time.sleep(0.02 * thread)
        return phrases.find([doc], get_string_id).tolist()

    assert in_threads(find, 2) == [expected, expected] and any(expected)


def test_threads_that_predict_after_training_regularise_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows without a gradient are regularised when they are read, by one thread at a time."""
    calls_at_once: list[int] = []
    lazy_regularise = sparse.lazy_regularise

    def checked_regularise(*args: Any) -> None:
        calls_at_once.append(0)
        time.sleep(0.002)
        lazy_regularise(*args)
        assert calls_at_once == [0]
        calls_at_once.pop()

    weights = linear_part(crf(L2=0.1))[1]
    weights.step = 5  # as if after five updates without a gradient: rows are to be regularised
    monkeypatch.setattr(sparse, "lazy_regularise", checked_regularise)
    rows = numpy.arange(weights.n_features, dtype="int32")[:, None]
    batch = FeatureBatch(rows, numpy.asarray([len(rows)], dtype="int32"))
    first, *others = in_threads(lambda _: weights.potentials(batch))
    for potentials in others:
        numpy.testing.assert_array_equal(potentials.emissions, first.emissions)
    assert weights.settings == AdaGrad(L2=0.1)


def test_a_pipeline_that_threads_have_used_can_be_pickled() -> None:
    """Pipelines are pickled when they are given to processes."""
    nlp = pipeline(model=SPARSE)
    train(nlp)
    in_threads(lambda thread: predict_texts_of_thread(nlp, thread))
    expected = [[ent.text for ent in nlp(text).ents] for text in TEXTS]
    assert any(expected)

    in_processes = nlp.pipe(TEXTS, n_process=2)
    unpickled = pickle.loads(pickle.dumps(nlp))

    for docs in (in_processes, unpickled.pipe(TEXTS)):
        assert [[ent.text for ent in doc.ents] for doc in docs] == expected


@pytest.mark.slow
def test_the_id_map_passes_the_thread_sanitizer(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    program = tmp_path / "id_map_in_threads"
    build = [compiler, "-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread"]
    build += ["-I", str(Path(sparse.__file__).parent), str(ID_MAP_IN_THREADS), "-o", str(program)]
    if subprocess.run(build, capture_output=True).returncode != 0:
        pytest.skip("no g++ with ThreadSanitizer")

    process = subprocess.run([program], capture_output=True, text=True)

    assert process.returncode == 0, process.stderr


def test_the_chain_computes_with_fewer_threads_where_the_system_gives_no_more() -> None:
    """In a process whose memory is limited to 6 MiB more than it uses, less than the stack of a
    thread. Such a process once ended."""
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


def test_two_threads_may_register_the_same_extension_at_once() -> None:
    """The second one finds the extension attribute, or sets the same again."""
    meeting = Barrier(2)

    class SpanOfBoth:
        """A Span for both threads, which find no such attribute at the same time."""

        @staticmethod
        def has_extension(name: str) -> bool:
            is_registered = Span.has_extension(name)
            meet(meeting)
            return is_registered

        set_extension, get_extension = Span.set_extension, Span.get_extension

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confidence, "Span", SpanOfBoth)
        in_threads(lambda _: confidence.register(confidence.Confidence(extension="late")), 2)
    _, _, getter, _ = Span.get_extension("late")
    assert getter is confidence.confidence_of
    Span.remove_extension("late")


def test_a_posterior_is_computed_while_another_thread_computes_one() -> None:
    """The other thread stops inside of a property of its own posterior. On Python 3.10 and 3.11
    `functools.cached_property` has a lock that it would hold meanwhile."""
    has_begun, may_end = Event(), Event()

    class SlowTags(Tags):
        def collapse(self, table: numpy.ndarray) -> numpy.ndarray:
            has_begun.set()
            assert may_end.wait(timeout=10)
            return super().collapse(table)

    def compute_slowly() -> None:
        assert Posterior(random_potentials([3], 5), SlowTags(["A"])).marginals.shape == (3, 5)

    def compute() -> None:
        try:
            assert has_begun.wait(timeout=10)
            assert Posterior(random_potentials([3], 5), Tags(["A"])).marginals.shape == (3, 5)
            assert not may_end.is_set()
        finally:
            may_end.set()

    with ThreadPoolExecutor(2) as pool:
        slow, fast = pool.submit(compute_slowly), pool.submit(compute)
        fast.result(timeout=5)
        slow.result()


def test_threads_that_read_a_cached_property_at_once_get_the_same_object() -> None:
    meeting = Barrier(2)

    class Owner:
        @cached_property
        def value(self) -> object:
            meet(meeting)  # both threads compute a value
            return object()

    owner = Owner()
    first, second = in_threads(lambda _: owner.value, 2)
    assert first is second is owner.value


def test_no_module_has_the_cached_property_with_a_lock() -> None:
    for path in Path(spacy_costner.__file__).parent.rglob("*.py"):
        text = path.read_text("utf8")
        assert not re.search(r"(?m)^from functools import .*\bcached_property\b", text), path.name
        assert "functools.cached_property" not in text, path.name


# A fork while a thread works

FORK_WHILE_ADDING = """
import os, signal, threading, time, numpy
from spacy_costner.features import WordCache, WordSlots

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

no_slots = WordSlots({}, None)
cache = WordCache(1, no_slots, no_slots)
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
from spacy_costner.ml.weights import _REGULARISATION_LOCK

def hold():
    with _REGULARISATION_LOCK:
        is_held.set()
        time.sleep(0.5)

is_held = threading.Event()
thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    with _REGULARISATION_LOCK:
        os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="expected a system that forks")
def test_a_fork_waits_for_a_thread_that_holds_a_lock() -> None:
    """The lock of the words, then the lock of the weights. The child has what the thread has added,
    or else its exit status is 1. If it hangs, an alarm ends it after 10 seconds. In a process of
    its own, as this one has threads of other tests."""
    script = FORK_WHILE_ADDING + FORK_WHILE_HELD
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
