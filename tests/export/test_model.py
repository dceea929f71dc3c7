"""Model files for pages: JavaScript predicts what Python predicts; what a page can't have."""
# ruff: noqa: RUF001, RUF002

import gzip
import json
import random
import re
import struct
import subprocess
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.attrs import LOWER
from spacy.lang.lex_attrs import word_shape
from spacy.language import Language
from spacy.strings import get_string_id
from spacy.tokens import Doc, Token
from spacy.training import Example

from spacy_costner.decoding import Decoding, make_threshold, make_viterbi
from spacy_costner.export.features import spacy_symbols
from spacy_costner.export.model import WebModel, make_web_model
from spacy_costner.export.model_file import MAGIC, VERSION, pack_file
from spacy_costner.features.words import CHARACTER_TYPES, character_type
from spacy_costner.ml import first_pass_of, linear_part
from spacy_costner.pipeline.promises import Promise, Thresholds

from ..support.node import NODE, Node, needs_node, node
from ..support.pipelines import pipeline, promise_of, train
from ..support.vocabs import blank_vocab
from ..support.web_models import (
    ANSWER,
    FEATURES,
    SENTENCES,
    TEXTS,
    TREE,
    TWO_PASSES,
    check_same_entities,
    load_in_node,
    make_pipeline,
    predict_in_python,
)

HIERARCHICAL = {
    "@misc": "spacy_costner.MinCostDecoding.v1",
    "tree": TREE,
    "cost": {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE},
}
THRESHOLD = {"@misc": "spacy_costner.ThresholdDecoding.v1"}
VITERBI = {"@misc": "spacy_costner.ViterbiDecoding.v1"}
HAMMING = {
    "@misc": "spacy_costner.MinCostDecoding.v1",
    "cost": {"@misc": "spacy_costner.HammingCost.v1"},
}

PIPELINES: dict[str, dict[str, Any]] = {
    "IOB2": {"scheme": "IOB2"},
    "BILUO": {"scheme": "BILUO"},
    "lines": {"scheme": "IOB2", "outside": "before", "sentence_boundaries": True},
    "BILUO, split O": {"scheme": "BILUO", "outside": "before", "sentence_boundaries": True},
    "two passes": {"features": TWO_PASSES, "outside": "before", "sentence_boundaries": True},
    "bias": {"decoding": {**VITERBI, "bias": -0.7, "labels": {"city": 1.5}}},
    "threshold": {"decoding": {**THRESHOLD, "threshold": 0.3, "labels": {"city": 0.1}}},
    "low threshold": {"features": TWO_PASSES, "decoding": {**THRESHOLD, "threshold": 0.02}},
    "tree": {"decoding": HIERARCHICAL, "outside": "before", "sentence_boundaries": True},
    "cost": {"decoding": HAMMING, "scheme": "IOB2"},
    "large scores": {"spread": 30.0},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Node]:
    """Node with our module."""
    with node(ANSWER) as process:
        yield process


def check_same(nlp: Language, browser: Node, texts: list[str], **options: Any) -> None:
    """Check that JavaScript finds the tokens and the entities of Python, with their
    probabilities."""
    for text in texts:
        expected = predict_in_python(nlp, text)
        found = browser.ask({"text": text, "options": {"tokens": True, **options}})
        assert "error" not in found, (text, found)
        assert found["tokens"] == expected["tokens"], text
        for name in ("entities", "guaranteed"):
            check_same_entities(found[name], expected[name], text)


@pytest.mark.slow
@needs_node
def test_in_node() -> None:
    """The tests of Node's own runner: the chain against all paths, and the golden file."""
    assert NODE is not None
    files = sorted((Path(__file__).parents[1] / "javascript").glob("*.test.mjs"))
    assert files  # without any, Node would find nothing to test, and succeed
    result = subprocess.run(
        [NODE, "--test", *map(str, files)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout[-3000:]


@needs_node
@pytest.mark.parametrize("name", PIPELINES)
def test_entities_are_those_of_python(name: str, browser: Node, tmp_path: Path) -> None:
    nlp = make_pipeline(**PIPELINES[name])
    load_in_node(browser, make_web_model(nlp).data, tmp_path)
    check_same(nlp, browser, TEXTS)


@needs_node
def test_temperatures_of_labels(browser: Node, tmp_path: Path) -> None:
    nlp = make_pipeline(features=TWO_PASSES, decoding={**THRESHOLD, "threshold": 0.2})
    nlp.get_pipe("ner").cfg["temperature"] = {"overall": 1.7, "labels": {"city": 0.6}}
    load_in_node(browser, make_web_model(nlp).data, tmp_path)
    check_same(nlp, browser, TEXTS)


@needs_node
def test_clusters_and_gazetteers(browser: Node, tmp_path: Path) -> None:
    clusters = tmp_path / "brown.txt"
    words = {"Rome": "0010", "rome": "0111", "oslo": "00111", "flew": "11", "number": "01"}
    clusters.write_text("".join(f"{path}\t{word}\t1\n" for word, path in words.items()))
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("New York\nthe rome times\nRome Times\nRome\nYork and\n")
    features = {**FEATURES, "clusters": [str(clusters)], "gazetteers": {"places": str(phrases)}}
    nlp = make_pipeline(features=features)
    load_in_node(browser, make_web_model(nlp).data, tmp_path)
    check_same(nlp, browser, [*TEXTS, "The Rome Times, the New York Rome times and New york and"])


@pytest.mark.slow
@needs_node
@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([word for text, _ in SENTENCES for word in text.split()]),
            st.sampled_from([" ", "\n", "\r\n", ".", "😀", "Σ", "İ", "ß", "e\u0301", "\u00a0"]),
            st.text(st.characters(exclude_categories=["Cs", "Cn"]), min_size=1, max_size=4),
        ),
        max_size=14,
    )
)
def test_texts_of_hypothesis(words_pipeline: Language, browser_of: Node, words: list[str]) -> None:
    check_same(words_pipeline, browser_of, [" ".join(words)])


@pytest.fixture(scope="module")
def words_pipeline() -> Language:
    """An English pipeline of two passes."""
    return make_pipeline(features=TWO_PASSES, outside="before", sentence_boundaries=True, lang="en")


@pytest.fixture(scope="module")
def words_model(words_pipeline: Language) -> WebModel:
    """The model file of this pipeline."""
    return make_web_model(words_pipeline)


@pytest.fixture(scope="module")
def browser_of(words_model: WebModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Node with this model file."""
    with node(ANSWER) as process:
        load_in_node(process, words_model.data, tmp_path_factory.mktemp("words"))
        yield process


PROMISES = {
    "exact": {},
    "covered": {"found": "covered"},
    "any": {"by": "any"},
    "per label": {"per_label": True},
    "false alarms": {"miss": None, "false_alarm": 0.1},
}


@needs_node
@pytest.mark.parametrize("terms", PROMISES)
def test_guaranteed_set(terms: str, browser: Node, tmp_path: Path) -> None:
    nlp = make_pipeline(decoding={**THRESHOLD, "threshold": 0.4})
    promise = Promise(
        **{"miss": 0.1, **PROMISES[terms]},
        groups={"": Thresholds(0.05, {"city": 0.02})},
        source="dev",
        docs=10,
        entities=20,
        not_counted={},
    )
    nlp.get_pipe("ner").set_guarantee(promise)
    info = load_in_node(browser, make_web_model(nlp).data, tmp_path)["info"]
    assert info["promise"]["docs"] == 10
    check_same(nlp, browser, TEXTS, guaranteed=True)


@needs_node
def test_nodes_of_a_label_tree_in_a_guaranteed_set(browser: Node, tmp_path: Path) -> None:
    """Predicted entities are in the set, so some of its spans have a node as label."""
    nlp = make_pipeline(**PIPELINES["tree"])
    promise = promise_of({"": Thresholds(0.05, {})}, miss=0.1)
    nlp.get_pipe("ner").set_guarantee(promise)
    load_in_node(browser, make_web_model(nlp).data, tmp_path)
    spans = [span for text in TEXTS for span in predict_in_python(nlp, text)["guaranteed"]]
    assert "place" in {span["label"] for span in spans}
    check_same(nlp, browser, TEXTS, guaranteed=True)


@needs_node
def test_options_are_other_decodings(browser: Node, tmp_path: Path) -> None:
    """Costs are a threshold, falseAlarmCost / (falseAlarmCost + missCost), where a cost is 1 by
    default: 1 / (1 + 3) and 2 / (2 + 6) are both 0.25."""
    nlp = make_pipeline()
    ner = nlp.get_pipe("ner")
    load_in_node(browser, make_web_model(nlp).data, tmp_path)
    ner.set_decoding(make_threshold(threshold=0.2, labels={"city": 0.1}))
    check_same(nlp, browser, TEXTS, threshold=0.2, labels={"city": 0.1})
    ner.set_decoding(make_threshold(threshold=0.25))
    check_same(nlp, browser, TEXTS, missCost=3)
    check_same(nlp, browser, TEXTS, missCost=6, falseAlarmCost=2)
    check_same(nlp, browser, TEXTS, decoding="threshold", threshold=0.25)
    ner.set_decoding(make_viterbi(bias=1.5))
    check_same(nlp, browser, TEXTS, bias=1.5)


@needs_node
@pytest.mark.parametrize(
    "make", [partial(make_threshold, threshold=0.2), partial(make_viterbi, bias=1.5)]
)
def test_other_labels_keep_the_setting_of_the_pipeline(
    make: Callable[..., Decoding], browser: Node, tmp_path: Path
) -> None:
    """Options for one label replace the options of all single labels."""
    nlp = make_pipeline()
    ner = nlp.get_pipe("ner")
    ner.set_decoding(make(labels={"city": 0.9}))
    load_in_node(browser, make_web_model(nlp).data, tmp_path)
    ner.set_decoding(make(labels={"person": 0.7}))
    check_same(nlp, browser, TEXTS, labels={"person": 0.7})


@needs_node
@pytest.mark.parametrize(
    "options, message",
    [
        ({"treshold": 0.5}, "treshold: expected one of the options"),
        ({"threshold": 1.5}, "threshold: expected a finite number from 0 to 1, got 1.5"),
        ({"threshold": "0.5"}, "threshold: expected a finite number"),
        ({"threshold": 0.5, "missCost": 1}, "expected either a threshold or costs"),
        ({"threshold": 0.5, "bias": 1}, "bias: expected the decoding viterbi with a bias"),
        ({"missCost": -1}, "missCost: expected a finite number of at least 0, got -1"),
        ({"missCost": 0, "falseAlarmCost": 0}, "missCost, falseAlarmCost: expected one above 0"),
        ({"decoding": "beam"}, "decoding: expected viterbi, threshold or min-cost, got beam"),
        ({"decoding": "min-cost"}, "min-cost is for pipelines that decode by cost"),
        ({"decoding": "viterbi", "threshold": 0.5}, "expected threshold with a threshold"),
        ({"labels": {"town": 0.5}, "threshold": 0.5}, "labels: expected labels of the model"),
        ({"labels": {"city": 2}, "threshold": 0.5}, "labels.city: expected a finite number from"),
        ({"guaranteed": True}, "guaranteed: expected a pipeline with a guarantee"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str, browser_of: Node) -> None:
    assert message in browser_of.ask({"text": "Rome", "options": options})["error"]


def test_info(words_model: WebModel) -> None:
    info = words_model.info
    assert info["lang"] == "en"
    assert info["passes"] == 2
    assert info["labels"] == ["city", "paper", "person"]
    assert info["decoding"] == "viterbi"
    assert info["promise"] is None
    json.dumps(info)


@needs_node
def test_untrained_labels_are_not_predicted(browser: Node, tmp_path: Path) -> None:
    """The label "team" was added after the weights were set. Its own are 0, so it would be likely
    where the weights of other labels are negative. The threshold is so low that they are found."""
    nlp = make_pipeline(decoding={**THRESHOLD, "threshold": 0.1})
    ner = nlp.get_pipe("ner")
    ner.add_label("team")
    ner.from_bytes(ner.to_bytes())
    load_in_node(browser, make_web_model(nlp).data, tmp_path)
    check_same(nlp, browser, TEXTS)


@needs_node
def test_labels_that_the_component_does_not_write_are_hidden(browser: Node, tmp_path: Path) -> None:
    """Of the labels city, paper and person, which all compete, only city is its own. The others are
    in neither the labels nor the entities nor the guaranteed set."""
    nlp = make_pipeline(
        decoding={**THRESHOLD, "threshold": 0.1}, spans_key="sc", own_labels=["city"]
    )
    promise = promise_of({"": Thresholds(0.05, {})}, miss=0.1)
    nlp.get_pipe("ner").set_guarantee(promise)

    loaded = load_in_node(browser, make_web_model(nlp).data, tmp_path)

    assert loaded["labels"] == ["city"]
    check_same(nlp, browser, TEXTS, guaranteed=True)


# What a page can't have


def with_features(**features: Any) -> Callable[[], Language]:
    return lambda: make_pipeline({"@misc": "spacy_costner.Features.v1", **features})


def with_pipe(name: str, **settings: Any) -> Callable[[], Language]:
    def make() -> Language:
        nlp = make_pipeline(**settings)
        nlp.add_pipe(name, first=True)
        return nlp

    return make


def with_span_ruler() -> Language:
    """It sets entities only by its setting."""
    nlp = make_pipeline()
    nlp.add_pipe("span_ruler", config={"annotate_ents": True})
    return nlp


def with_two_components() -> Language:
    nlp = make_pipeline()
    nlp.add_pipe("cost_sensitive_ner", name="other")
    return nlp


def with_lower_of_language() -> Language:
    nlp = make_pipeline()
    nlp.vocab.lex_attr_getters[LOWER] = lambda text: text.casefold()
    return nlp


def with_japanese_tokenizer() -> Language:
    """A tokenizer of another class than spaCy's rule tokenizer, as for Japanese."""
    nlp = make_pipeline()

    class Words:
        def __call__(self, text: str) -> Doc:
            return Doc(nlp.vocab, words=text.split())

    nlp.tokenizer = Words()
    return nlp


def without_training() -> Language:
    nlp = spacy.blank("xx")
    model = {"@architectures": "spacy_costner.SparseCRF.v1"}
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": model})
    return nlp


def with_own_decoding() -> Language:
    nlp = make_pipeline()
    ner = nlp.get_pipe("ner")
    ner.set_decoding(make_viterbi())

    def nothing(posterior: Any, settings: Any) -> None:
        return None

    object.__setattr__(ner.decoding, "decode", nothing)
    return nlp


def with_cnn() -> Language:
    nlp = pipeline()
    train(nlp, steps=1)
    return nlp


def with_vectors(hidden: int) -> Callable[[], Language]:
    def make() -> Language:
        nlp = spacy.blank("xx")
        nlp.vocab.set_vector("Rome", numpy.ones(2, dtype="float32"))
        nlp.vocab.set_vector("Ana", numpy.asarray([1, -1], dtype="float32"))
        features = {"@misc": "spacy_costner.Features.v1", "include_static_vectors": True}
        architecture = "spacy_costner.SparseCRF.v1"
        model = {"@architectures": architecture, "features": features, "hidden": hidden}
        nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": model})
        text, entities = SENTENCES[0]
        nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(text), {"entities": entities})])
        return nlp

    return make


def with_weight(value: float, *, in_first_pass: bool = False) -> Callable[[], Language]:
    def make() -> Language:
        nlp = make_pipeline(features=TWO_PASSES)
        model = nlp.get_pipe("ner").model
        weights = linear_part(model)[1]
        if in_first_pass:
            first_pass = first_pass_of(model)
            assert first_pass is not None
            weights = first_pass.weights
        weights.rows[-1, 0] = value  # the score of the first tag at the end
        return nlp

    return make


@Language.component("silent")
def silent(doc: Doc) -> Doc:
    """A component whose factory doesn't declare what it sets."""
    return doc


REFUSED: dict[str, tuple[Callable[[], Language], str]] = {
    "another component's attribute": (with_features(windows={"POS": 1}), "the attribute POS"),
    "norm": (with_features(windows={"NORM": 1}), "the attribute NORM"),
    "stop words": (with_features(flags=["IS_STOP"]), "the flag IS_STOP"),
    "numbers": (with_features(flags=["LIKE_NUM"]), "the flag LIKE_NUM"),
    "memory of tags": (with_features(memory={"TAG": 0}), "the attribute TAG"),
    "an extension": (with_features(windows={"_.page_source": 0}), "the attribute _.page_source"),
    "pairs of positions": (
        with_features(windows={"caseless": 1}, bigrams={"caseless": 1}),
        "pairs of caseless",
    ),
    "Tok2Vec": (with_cnn, "a model with a Tok2Vec"),
    "no component": (lambda: spacy.blank("xx"), "with a component of factory 'cost_sensitive_ner'"),
    "two components": (with_two_components, "several components, ner, other"),
    "no training": (without_training, "expected a trained pipeline"),
    "static vectors": (with_vectors(hidden=0), "static word vectors as inputs"),
    "a hidden layer": (
        with_vectors(hidden=3),
        "got a hidden layer over static vectors in ner, hidden = 3",
    ),
    "an infinite weight": (
        with_weight(numpy.inf),
        "weights of ner, pass 2: expected finite numbers, got inf",
    ),
    "no number in the first pass": (
        with_weight(numpy.nan, in_first_pass=True),
        "weights of ner, pass 1: expected finite numbers, got nan",
    ),
    "a ruler": (with_pipe("entity_ruler"), "entity_ruler, which sets entities"),
    "a span ruler": (with_span_ruler, "span_ruler, which sets entities"),
    "a merger": (with_pipe("merge_entities"), "merge_entities, which changes tokens"),
    "a silent component": (
        with_pipe("silent"),
        "expected no component next to ner that changes tokens, entities or sentence starts, got "
        "silent, whose factory silent doesn't declare in `assigns` what it sets",
    ),
    "sentences": (with_pipe("sentencizer", sentence_boundaries=True), "that sets sentence starts"),
    "its own decoding": (with_own_decoding, "the decoding nothing"),
    "its own lower case": (with_lower_of_language, "LOWER by the rules of this language"),
    "another tokenizer": (with_japanese_tokenizer, "tokenizer: expected spaCy's rule tokenizer"),
}


@pytest.fixture(autouse=True)
def extension() -> Iterator[None]:
    Token.set_extension("page_source", default="x", force=True)
    yield
    Token.remove_extension("page_source")


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_page_cannot_have(case: str) -> None:
    make, message = REFUSED[case]
    nlp = make()
    with pytest.raises(ValueError) as error:
        make_web_model(nlp)
    assert message in str(error.value)


def test_harmless_components() -> None:
    nlp = make_pipeline(sentence_boundaries=True)
    nlp.add_pipe("sentencizer")  # after ours
    nlp.add_pipe("tagger")
    nlp.add_pipe("attribute_ruler")
    assert make_web_model(nlp).n_words


# What a page publishes


def test_without_memory_rare_words_are_left_out() -> None:
    nlp = make_pipeline(features=TWO_PASSES)
    with_memory = make_web_model(nlp)
    without = make_web_model(nlp, keep_memory=False)
    assert with_memory.n_words > 20
    assert with_memory.n_remembered > 20
    assert without.n_words == without.n_remembered == 0  # all words are rare
    for name in (b"Ruiz", b"ruiz", b"Neil"):
        assert name in gzip.decompress(with_memory.data)
        assert name not in content_without_affixes(without.data)


def test_long_prefixes_and_suffixes_are_published_like_words() -> None:
    """Five characters may be a name, such as "Smith". Four characters stay without memory."""
    nlp = make_pipeline(features={**FEATURES, "affixes": [4, 5]})
    with_memory = make_web_model(nlp)
    without = make_web_model(nlp, keep_memory=False)

    words = values_of(with_memory.data, "ORTH", "LOWER", "caseless")
    long_affixes = values_of(with_memory.data, "prefix5", "suffix5")
    assert "Smith" in long_affixes and long_affixes - words
    assert with_memory.n_words == len(words | long_affixes)
    assert values_of(without.data, "prefix4", "suffix4")
    assert not values_of(without.data, "prefix5", "suffix5")
    assert without.n_words == 0


def values_of(data: bytes, *names: str) -> set[str]:
    """The values of columns of a model file."""
    header, _ = take_apart(data)
    return {v for column in header["columns"] if column["name"] in names for v in column["values"]}


def content_without_affixes(data: bytes) -> bytes:
    """The header of a model file without its tokenizer and the values of prefixes and suffixes."""
    header, _ = take_apart(data)
    del header["tokenizer"], header["symbols"]
    columns = []
    for column in header["columns"]:
        if column["kind"] not in ("prefix", "suffix"):
            columns.append(column)
    header["columns"] = columns
    return json.dumps(header, ensure_ascii=False).encode("utf8")


@needs_node
def test_frequent_words_stay_without_memory(browser: Node, tmp_path: Path) -> None:
    """With every word ten times in training, none is rare."""
    nlp = make_pipeline(n_copies=10)
    kept = make_web_model(nlp)
    without = make_web_model(nlp, keep_memory=False)
    assert without.n_words == kept.n_words
    assert without.n_remembered == 0
    # Node has read the file: its answer would have an error otherwise.
    assert "labels" in load_in_node(browser, without.data, tmp_path)


# Characters and hashes

WORDS_IN_NODE = """
import * as characters from "${MODULES}/characters.js";
import { hashString } from "${MODULES}/hashing.js";
import { ATTRIBUTES, makeWord, WORD_COLUMNS } from "${MODULES}/words.js";
async function answer({ method, codes, strings, symbols, types = [] }) {
  if (method !== undefined) {
    return codes.filter((code) => characters[method](String.fromCodePoint(code)));
  }
  const numbers = new Map(Object.entries(symbols));
  const findTypeIds = WORD_COLUMNS.character_type({ values: types }, numbers);
  return strings.map((string) => {
    const word = makeWord(string);
    const { isAllUpper, isAllLower, isTitle, isSpace } = characters;
    return {
      hash: hashString(string, numbers),
      types: [...findTypeIds(word)].map((id) => types[id]),
      ...Object.fromEntries(Object.entries(ATTRIBUTES).map(([name, of]) => [name, of(word)])),
      isAll: [isAllUpper, isAllLower, isTitle, isSpace].map((is) => is(string)),
    };
  });
}
"""

CHANGED = "\u0295\u10fc\ua7f2\ua7f3\ua7f4\uab69"
"""The characters whose case Unicode changed between its versions 14, of Python 3.11, and 17."""

CHARACTER_METHODS: dict[str, Callable[[str], bool]] = {
    "isAlpha": str.isalpha,
    "isDigit": str.isdigit,
    "isUpper": lambda character: character.isupper(),
    "isLower": lambda character: character.islower(),
    "isTitleLetter": lambda character: unicodedata.category(character) == "Lt",
    "isPunctuation": lambda character: unicodedata.category(character).startswith("P"),
    "isSpace": str.isspace,
}


@pytest.fixture(scope="module")
def words_in_node() -> Iterator[Node]:
    with node(WORDS_IN_NODE) as process:
        yield process


@needs_node
@pytest.mark.parametrize("method", CHARACTER_METHODS)
def test_characters_are_those_of_python(method: str, words_in_node: Node) -> None:
    """All characters that the Unicode of Python has, up to the second plane."""
    codes = []
    for code in range(0x20000):
        is_assigned = unicodedata.category(chr(code)) not in ("Cn", "Cs")
        if is_assigned and chr(code) not in CHANGED:
            codes.append(code)
    expected = [code for code in codes if CHARACTER_METHODS[method](chr(code))]
    assert words_in_node.ask({"method": method, "codes": codes}) == expected


VOCAB = blank_vocab()


def check_words(words_in_node: Node, words: list[str]) -> None:
    """Check the hashes, the attributes and the types of words."""
    question = {"strings": words, "symbols": spacy_symbols(), "types": CHARACTER_TYPES}
    answers = words_in_node.ask(question)
    for word, answer in zip(words, answers):
        lexeme = VOCAB[word]
        assert answer == {
            "hash": get_string_id(word) & 0xFFFFFFFF,
            "types": [character_type(word)],
            "ORTH": word,
            "LOWER": lexeme.lower_,
            "SHAPE": lexeme.shape_,
            "PREFIX": lexeme.prefix_,
            "SUFFIX": lexeme.suffix_,
            "isAll": [lexeme.is_upper, lexeme.is_lower, lexeme.is_title, lexeme.is_space],
        }, word


@needs_node
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(
                st.characters(exclude_categories=["Cs", "Cn"], exclude_characters=CHANGED),
                min_size=1,
                max_size=20,
            ),
            st.text("aAΑΣσςİıßǅǆ.’\u0301\u00ad 1", min_size=1, max_size=20),
        ),
        max_size=10,
    )
)
def test_words_are_those_of_spacy(words_in_node: Node, words: list[str]) -> None:
    check_words(words_in_node, words)


@needs_node
def test_types_of_words_are_those_of_python(words_in_node: Node) -> None:
    """Python takes the Turkish letters İ and ı for i, and ſ for s, where case doesn't matter."""
    greek = ["pi", "PI", "Pİ", "psı", "İota", "ſigma", "Σ", "ω"]
    others = ["IV", "ACGT", ",", "...", "…", "[(", "-;", "7", "42", "-3,5", "İ", "DNA", "Ana"]
    others += ["ana", "anA", "p53", "53-p", "a-b"]
    check_words(words_in_node, [*greek, *others])


@needs_node
def test_lower_case_of_all_characters(words_in_node: Node) -> None:
    """Each letter alone, and with a letter on both sides, as a final sigma depends on them."""
    letters = []
    for code in range(0x3000):
        if unicodedata.category(chr(code))[0] in "LMN" and chr(code) not in CHANGED:
            letters.append(chr(code))
    words = [*letters, "agent", "number", "NOUN", *(f"A{letter}Σ" for letter in letters)]
    answers = words_in_node.ask({"strings": words, "symbols": spacy_symbols()})
    assert [answer["LOWER"] for answer in answers] == [word.lower() for word in words]
    assert [answer["SHAPE"] for answer in answers] == [word_shape(word) for word in words]


# Damaged files


def take_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a model file, and its arrays."""
    content = without_checksum(data)
    begin = len(MAGIC) + 8
    (length,) = struct.unpack("<I", content[begin - 4 : begin])
    return json.loads(content[begin : begin + length]), content[begin + length :]


def put_together(header: bytes, arrays: bytes) -> bytes:
    """A model file with a header and arrays."""
    return with_checksum(MAGIC + struct.pack("<II", VERSION, len(header)) + header + arrays)


def without_checksum(data: bytes) -> bytes:
    """What a model file has below gzip, without the checksum at its end."""
    return gzip.decompress(data)[:-4]


def with_checksum(content: bytes) -> bytes:
    """A model file with this content, and its checksum."""
    return gzip.compress(content + struct.pack("<I", zlib.crc32(content)), 1)


@needs_node
@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda content: b"", "expected one that `costner page` has written"),
        (lambda content: b"<html></html>" * 9, "expected one that `costner page` has written"),
        (lambda content: content[:-100], "the file is shorter"),
        (lambda content: content[:200], "the file is shorter"),
        (lambda content: content[: len(MAGIC)], "expected one that `costner page` has written"),
        (
            lambda content: MAGIC + struct.pack("<I", VERSION + 1) + content[len(MAGIC) + 4 :],
            f"expected version {VERSION}, got {VERSION + 1}",
        ),
        (lambda content: content.replace(b'"columns"', b'"c\xfflumns"'), "a JSON header"),
        (lambda content: content.replace(b'"int32"', b'"int99"'), "unknown type int99"),
        (lambda content: content.replace(b'"suffix"', b'"suffex"'), "unknown kind of feature"),
    ],
)
def test_damaged_files(
    damage: Callable[[bytes], bytes],
    message: str,
    browser: Node,
    words_model: WebModel,
    tmp_path: Path,
) -> None:
    """They have the right checksum."""
    damaged = with_checksum(damage(without_checksum(words_model.data)))
    assert message in load_in_node(browser, damaged, tmp_path)["error"]


@needs_node
def test_a_checksum_that_does_not_fit(browser: Node, words_model: WebModel, tmp_path: Path) -> None:
    """See tests/javascript/model_file.test.mjs for more damages."""
    damaged = bytearray(gzip.decompress(words_model.data))
    damaged[-100] ^= 1
    for content in (damaged, damaged[:-1]):
        error = load_in_node(browser, gzip.compress(content), tmp_path)["error"]
        assert re.search(r"expected the checksum \d+, got \d+: it is damaged or cut off", error)


@needs_node
def test_more_features_than_memory_has(
    browser: Node, words_model: WebModel, tmp_path: Path
) -> None:
    header, arrays = take_apart(words_model.data)
    header["columns"][0]["n_values"] = 1e12
    data = put_together(json.dumps(header).encode("utf8"), arrays)
    answer = load_in_node(browser, data, tmp_path)
    assert "expected at most 67108864 features" in answer["error"]  # 2 to the power of 26


@needs_node
def test_broken_gzip(browser: Node, words_model: WebModel, tmp_path: Path) -> None:
    data = words_model.data
    for damaged in (data[: len(data) // 2], data[:500] + b"12345" + data[505:]):
        assert "a gzip file" in load_in_node(browser, damaged, tmp_path)["error"]


@pytest.mark.slow
@needs_node
def test_fuzzed_files_give_errors_or_entities(
    browser: Node, words_model: WebModel, tmp_path: Path
) -> None:
    """With any content of the file, loading and predicting end."""
    header, arrays = take_apart(words_model.data)
    del header["tokenizer"]["rules"][5:]  # shorter, so that other parts are hit
    header["symbols"] = {}
    for column in header["columns"]:
        column["values"] = column.get("values", [])[:3]
    rng = random.Random(0)
    n_errors = 0
    for _ in range(60):
        text = fuzz(json.dumps(header), rng)
        data = put_together(text.encode("utf8"), arrays)
        if "error" in load_in_node(browser, data, tmp_path):
            n_errors += 1
        else:
            answer = browser.ask({"text": TEXTS[10], "options": {"threshold": 0.1}})
            n_errors += "error" in answer
    assert n_errors > 10


def fuzz(text: str, rng: random.Random) -> str:
    """A text in which some stretches are replaced, repeated or gone."""
    pieces = ["null", "-1", "1e9", "[]", "{}", '""', "0", '"x"', ",", "true", "99999", "0.5"]
    for _ in range(rng.randint(1, 3)):
        begin = rng.randrange(len(text))
        end = begin + rng.randint(0, 6)
        text = text[:begin] + rng.choice([*pieces, "", text[begin:end] * 2]) + text[end:]
    return text


def test_the_same_pipeline_gives_the_same_file(
    words_pipeline: Language, words_model: WebModel
) -> None:
    assert make_web_model(words_pipeline).data == words_model.data


def test_arrays_of_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="expected an array of"):
        pack_file({}, {"x": numpy.zeros(3, dtype="int64")})
