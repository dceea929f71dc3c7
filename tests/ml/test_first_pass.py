"""Two passes: labels that a first pass predicts for a word's other occurrences in its doc."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Optimizer

from spacy_costner.annotation.equal_texts import text_id
from spacy_costner.annotation.settings import Annotation
from spacy_costner.annotation.spans import entities_as_spans
from spacy_costner.features.document import WIDTH, find_labels_elsewhere, number_groups
from spacy_costner.features.shares import BORDERS, share_names
from spacy_costner.ml import find_features, first_pass_of, linear_part
from spacy_costner.pipeline.warm_start import make_start_from
from spacy_costner.training.folds import divide_by_words, find_first_pass_folds
from spacy_costner.training.soft_targets import SOFT_TARGETS_KEY, expectations

from ..support.linear import HYBRID, SPARSE
from ..support.pipelines import pipeline

FEATURES = {"@misc": "spacy_costner.Features.v1", "document": {"LOWER": 1}}
NAMES = ["Alba", "Berta", "Cora", "Dora", "Emma", "Frida", "Greta", "Hanna"]


def with_first_pass(kind: dict[str, Any]) -> dict[str, Any]:
    """A model of a kind, with features of a first pass."""
    return {**kind, "features": FEATURES}


def examples(nlp: Language, n_docs: int = 24, seed: int = 0) -> list[Example]:
    """Docs that say once of a name what it is, and use it again where nothing shows it."""
    rng = random.Random(seed)
    clue_of_label = {"PERSON": "Mrs", "CITY": "in"}
    examples = []
    for _ in range(n_docs):
        words: list[str] = []
        tags: list[str] = []
        for name in rng.sample(NAMES, 2):
            label = rng.choice(["PERSON", "CITY"])
            for word_before in rng.sample([clue_of_label[label], "and"], 2):
                words += [word_before, name, "so", "it", "was", "."]
                tags += ["O", f"B-{label}", "O", "O", "O", "O"]
        doc = Doc(nlp.vocab, words=words)
        examples.append(Example(doc, Doc(nlp.vocab, words=words, ents=tags)))
    return examples


def trained(kind: dict[str, Any], n_steps: int = 30) -> Language:
    """A pipeline that has learned the docs of `examples`."""
    nlp = pipeline(model=kind)
    batch = examples(nlp)
    nlp.initialize(lambda: batch)
    optimizer = Optimizer(0.01)
    for _ in range(n_steps):
        nlp.update([Example(eg.predicted.copy(), eg.reference) for eg in batch], sgd=optimizer)
    return nlp


def f_score(nlp: Language) -> float:
    """F on other docs than those of training."""
    return float(nlp.evaluate(examples(nlp, 40, 7))["ents_f"])


def folds_of_linear_part(examples: list[Example], annotation: Annotation) -> dict[int, int]:
    """The fold of each text for the linear part of a hybrid model."""
    _, fold_of_text = divide_by_words(examples, annotation)
    return fold_of_text


class Words(NamedTuple):
    """The words of a batch of docs."""

    keys: numpy.ndarray  # the word of each token. (N,)
    takes_part: numpy.ndarray  # whether a token counts as an occurrence of its word. (N,)
    lengths: numpy.ndarray  # tokens of each doc. (B,)

    def others_of(self, t: int) -> list[int]:
        """By definition: the tokens of the same doc with the same word as token t."""
        doc_of_token = numpy.repeat(numpy.arange(len(self.lengths)), self.lengths)
        others = []
        for u in range(len(self.keys)):
            is_same_word = doc_of_token[u] == doc_of_token[t] and self.keys[u] == self.keys[t]
            if u != t and is_same_word and self.takes_part[u] and self.takes_part[t]:
                others.append(u)
        return others


@st.composite
def words_of_docs(draw: Any) -> Words:
    """Up to four docs of up to seven tokens, with three different words."""
    lengths = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    n_tokens = sum(lengths)
    keys = draw(st.lists(st.integers(1, 3), min_size=n_tokens, max_size=n_tokens))
    takes_part = draw(st.lists(st.booleans(), min_size=n_tokens, max_size=n_tokens))
    return Words(
        numpy.asarray(keys, dtype="uint64"),
        numpy.asarray(takes_part, dtype=bool),
        numpy.asarray(lengths, dtype="int32"),
    )


def expected_features(probs: numpy.ndarray) -> set[str]:
    """The features of a token whose other occurrences have these probabilities of labels, by
    definition."""
    if len(probs) == 0:
        return set()

    means = probs.mean(axis=0)
    edges = [0, *BORDERS, 1]
    names_of_ranges = [f"{low:g}-{high:g}" for low, high in pairwise(edges)]
    range_of_label = [sum(mean >= border for border in BORDERS) for mean in means]
    features = set()
    for label, i in enumerate(range_of_label):
        if i > 0:
            features.add(f"{label}:{names_of_ranges[i]}")

    best = int(means.argmax())
    n_times = {1: "1", 2: "2-3", 3: "2-3"}.get(len(probs), "4+")
    features.add(f"best:{best}:{names_of_ranges[range_of_label[best]]}:{n_times}")
    return features


@given(words_of_docs(), st.integers(1, 4), st.integers(0, 1000))
def test_features_say_the_mean_probabilities_of_other_occurrences_of_a_word(
    words: Words, n_labels: int, seed: int
):
    n_tokens = len(words.keys)
    probs = numpy.random.default_rng(seed).dirichlet(numpy.ones(n_labels), n_tokens)

    numbers = find_labels_elsewhere(probs, number_groups(*words))

    assert numbers.shape == (n_tokens, WIDTH)
    names = share_names([str(label) for label in range(n_labels)])
    for t in range(n_tokens):
        features = {names[number] for number in numbers[t] if number >= 0}
        assert features == expected_features(probs[words.others_of(t)])


@pytest.mark.parametrize("kind", [SPARSE, HYBRID], ids=["sparse", "hybrid"])
def test_a_first_pass_helps_where_another_occurrence_of_a_word_shows_its_label(
    kind: dict[str, Any],
) -> None:
    """A name after "Mrs" or "in" has the label of the one after "and", of which nothing else says
    what it is. That is half of all names: a single pass can only guess their labels, and half of
    its guesses are right, so its F is about 0.75."""
    f_of_one_pass = f_score(trained(kind))
    f_of_two_passes = f_score(trained(with_first_pass(kind)))
    assert f_of_one_pass < 0.85
    assert f_of_two_passes > 0.95


def with_soft_targets(teacher: Language, examples: Sequence[Example]) -> list[Example]:
    """Examples without annotation, with the distribution of a teacher as soft targets."""
    docs = list(teacher.pipe(eg.predicted.copy() for eg in examples))
    posterior = teacher.get_pipe("ner").posterior(docs)
    targets = expectations(posterior.potentials, posterior.tags, posterior.doc_of_sequence)
    soft_examples: list[Example] = []
    for eg, targets_of_doc in zip(examples, targets):
        reference = Doc(eg.predicted.vocab, words=[token.text for token in eg.predicted])
        reference.user_data[SOFT_TARGETS_KEY] = targets_of_doc
        soft_examples.append(Example(eg.predicted.copy(), reference))
    return soft_examples


def test_the_first_pass_is_trained_on_soft_targets() -> None:
    """Without soft targets the first pass would have no weights, as all docs are unannotated."""
    teacher = trained(SPARSE)
    nlp = pipeline(model=with_first_pass(SPARSE))
    batch = with_soft_targets(teacher, examples(nlp))
    nlp.initialize(lambda: batch)
    first_pass = first_pass_of(nlp.get_pipe("ner").model)
    assert first_pass is not None
    assert first_pass.weights.rows.any()


@pytest.mark.parametrize("spans_key", [None, "sc"])
@pytest.mark.parametrize("find_folds", [find_first_pass_folds, folds_of_linear_part])
def test_each_fold_has_docs_of_each_kind_of_targets(
    find_folds: Callable[[list[Example], Annotation], dict[int, int]], spans_key: str | None
) -> None:
    """In a corpus for distillation, all gold docs come after all docs with soft targets. Docs
    without annotation may come first or last, too. With a `spans_key`, all docs have the entities
    of another component."""
    nlp = pipeline()
    soft = with_soft_targets(trained(SPARSE, n_steps=1), examples(nlp, 24))
    gold = examples(nlp, 8, seed=1)
    unannotated: list[Example] = []
    for eg in examples(nlp, 8, seed=2):
        unannotated.append(Example(eg.predicted, eg.predicted.copy()))
    if spans_key is not None:
        for eg in gold:
            entities_as_spans(eg.reference, spans_key)
        for eg in unannotated:
            eg.reference.set_ents([])

    annotation = Annotation(spans_key=spans_key)
    fold_of_text = find_folds([*soft, *unannotated, *gold], annotation)
    n_folds = max(fold_of_text.values()) + 1
    for group in (soft, unannotated, gold):
        n_docs_of_fold = Counter(fold_of_text[text_id(eg.predicted)] for eg in group)
        assert sorted(n_docs_of_fold) == list(range(n_folds))
        assert max(n_docs_of_fold.values()) - min(n_docs_of_fold.values()) <= 1


def names_with_random_labels(nlp: Language, n_docs: int, labels: str = "XY") -> list[Example]:
    """Docs of three names, each of which occurs twice and in no other doc. Their labels are drawn
    by lot."""
    rng = random.Random(0)
    batch: list[Example] = []
    for i in range(n_docs):
        words: list[str] = []
        tags: list[str] = []
        for j in range(3):
            words += [f"Name{3 * i + j}"] * 2
            tags += [f"B-{rng.choice(labels)}"] * 2
        doc = Doc(nlp.vocab, words=words)
        batch.append(Example(doc, Doc(nlp.vocab, words=words, ents=tags)))
    return batch


def share_of_right_tokens(nlp: Language, examples: list[Example], is_train: bool) -> float:
    """How many tokens get the right label from the first pass. The labels are X and Y."""
    model = nlp.get_pipe("ner").model
    first_pass = first_pass_of(model)
    assert first_pass is not None
    features, _ = linear_part(model)
    labels: list[int] = []
    for eg in examples:
        labels += [["", "X", "Y"].index(token.ent_type_) for token in eg.reference]
    docs = [eg.predicted for eg in examples]
    probs = first_pass.predict(features.find(docs, is_train=is_train), docs)
    numpy.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-5)
    return float((probs.argmax(axis=1) == labels).mean())


def training_probabilities(nlp: Language, examples: list[Example]) -> numpy.ndarray:
    """The probabilities of labels that the second pass is trained with."""
    model = nlp.get_pipe("ner").model
    first_pass = first_pass_of(model)
    assert first_pass is not None
    features, _ = linear_part(model)
    docs = [eg.predicted for eg in examples]
    return first_pass.predict(features.find(docs, is_train=True), docs)


def test_the_first_pass_of_a_training_doc_was_not_trained_on_it() -> None:
    """With labels drawn by lot, a model that has seen a doc knows them. The labels that the second
    pass is trained with are right by chance, which is half of them. Half the docs have a copy at
    the other end of the corpus."""
    nlp = pipeline(model=with_first_pass(SPARSE))
    batch = names_with_random_labels(nlp, 40)
    batch += [Example(eg.predicted.copy(), eg.reference) for eg in batch[:20]]

    nlp.initialize(lambda: batch)

    with_copy = batch[:20]
    without_copy = batch[20:40]
    for examples_of_half in (with_copy, without_copy):
        assert share_of_right_tokens(nlp, examples_of_half, is_train=False) > 0.9
        assert 0.3 < share_of_right_tokens(nlp, examples_of_half, is_train=True) < 0.7


MEMORY = {**FEATURES, "memory": {"LOWER": 0}}


@pytest.mark.parametrize("n_other_docs", [0, 10], ids=["same_docs", "more_docs"])
@pytest.mark.parametrize(
    "model",
    [with_first_pass(SPARSE), with_first_pass(HYBRID), {**SPARSE, "features": MEMORY}],
    ids=["sparse", "hybrid", "memory"],
)
def test_the_first_pass_to_start_from_does_not_predict_its_own_training_docs(
    model: dict[str, Any], n_other_docs: int, tmp_path: Path
) -> None:
    """The trained pipeline knows the labels, which were drawn by lot. If it has seen more docs, its
    features have other weight rows, and its label memory has more counts."""
    trained = pipeline(model=model)
    batch = names_with_random_labels(trained, 40 + n_other_docs)
    batch.reverse()
    trained.initialize(lambda: batch)
    # With weights of 0, the features would not be saved.
    weights_of_second_pass = linear_part(trained.get_pipe("ner").model)[1]
    weights_of_second_pass.emissions[:] = 1
    trained.to_disk(tmp_path / "model")

    nlp = pipeline(model=model)
    batch = names_with_random_labels(nlp, 40)
    nlp.initialize(lambda: batch)
    expected = training_probabilities(nlp, batch)
    make_start_from(tmp_path / "model")(nlp)

    assert share_of_right_tokens(nlp, batch, is_train=False) > 0.9
    assert 0.3 < share_of_right_tokens(nlp, batch, is_train=True) < 0.7
    numpy.testing.assert_array_equal(training_probabilities(nlp, batch), expected)


def test_labels_that_the_first_pass_to_start_from_lacks_are_outside(tmp_path: Path) -> None:
    """A label that was added to the trained pipeline after its initialization. The folds know it,
    the first pass of the trained pipeline doesn't."""
    trained = pipeline(model=with_first_pass(SPARSE))
    x_and_y = names_with_random_labels(trained, 20)
    trained.initialize(lambda: x_and_y)
    trained.get_pipe("ner").add_label("Z")
    trained.to_disk(tmp_path / "model")

    nlp = pipeline(model=with_first_pass(SPARSE))
    batch = names_with_random_labels(nlp, 20, labels="XYZ")
    nlp.initialize(lambda: batch)
    with_z = training_probabilities(nlp, batch)
    make_start_from(tmp_path / "model")(nlp)

    expected = with_z[:, :3].copy()
    expected[:, 0] += with_z[:, 3]
    numpy.testing.assert_allclose(training_probabilities(nlp, batch), expected, atol=1e-6)


def test_the_label_memory_of_the_first_pass_has_not_counted_the_docs_that_it_predicts() -> None:
    """Each name is in two docs that follow each other, with a label drawn by lot. A memory that has
    counted them knows the label. One that hasn't is right by chance: for half of the names."""
    features = {**FEATURES, "memory": {"LOWER": 0}}
    nlp = pipeline(model={**SPARSE, "features": features})
    rng = random.Random(0)
    batch: list[Example] = []
    labels: list[int] = []
    for i in range(60):
        label = rng.choice("XY")
        for verb in ("left", "came"):
            words = [f"Name{i}", verb]
            reference = Doc(nlp.vocab, words=words, ents=[f"B-{label}", "O"])
            batch.append(Example(Doc(nlp.vocab, words=words), reference))
            labels.append(["", "X", "Y"].index(label))

    nlp.initialize(lambda: batch)

    model = nlp.get_pipe("ner").model
    first_pass = first_pass_of(model)
    assert first_pass is not None
    found, _ = linear_part(model)
    docs = [eg.predicted for eg in batch]
    probs = first_pass.predict(found.find(docs, is_train=True), docs)
    probs_of_names = probs[::2]  # a doc has two tokens, and the first is the name
    assert 0.3 < (probs_of_names.argmax(axis=1) == labels).mean() < 0.7


def test_features_of_a_doc_are_the_same_alone_and_in_a_batch() -> None:
    """Other docs of the batch have the same names, with other labels."""
    nlp = trained(with_first_pass(SPARSE), n_steps=1)
    ner = nlp.get_pipe("ner")
    docs = [eg.predicted for eg in examples(nlp, 6, 3)]

    together = find_features(ner.model, docs).rows
    alone = [find_features(ner.model, [doc]).rows for doc in docs]

    numpy.testing.assert_array_equal(together, numpy.concatenate(alone))


def test_the_first_pass_is_asked_only_where_a_word_occurs_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nlp = trained(with_first_pass(SPARSE), n_steps=1)
    first_pass = first_pass_of(nlp.get_pipe("ner").model)
    assert first_pass is not None
    texts_asked: list[str] = []
    predict = first_pass.predict

    def recorded_predict(batch: Any, docs: Any = ()) -> Any:
        texts_asked.extend(doc.text for doc in docs)
        return predict(batch, docs)

    monkeypatch.setattr(first_pass, "predict", recorded_predict)
    nlp("and Name1 or name2")
    nlp("and Name1 or Name1")
    assert texts_asked == ["and Name1 or Name1"]
