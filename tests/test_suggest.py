"""Which docs to annotate next: how unsure a model is of them, diversity, files."""

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from make_demo_corpus import make_corpus
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import load_config

from spacy_costner.analysis.diverse import choose_diverse, make_shares
from spacy_costner.analysis.suggestions import (
    MEASURES,
    Suggestion,
    Uncertainty,
    by_cost,
    by_entropy,
    by_least_confidence,
    suggest,
)
from spacy_costner.decoding import Posterior, make_min_cost
from spacy_costner.readers import TASK_FORMS, CorpusInfo, read_docs, save_tasks

from . import oracle
from .support.commands import run
from .support.pipelines import TEXTS, load, pipeline
from .support.posteriors import collapsed_paths, posterior
from .support.strategies import seeds

CONFIGS = Path(__file__).parent.parent / "configs"
LINEAR = load_config(CONFIGS / "sparse.cfg", overrides={"training.max_epochs": 2, "nlp.lang": "xx"})
POOL = [
    "London and Berlin like Shaka Khan",
    "London  and Berlin like Shaka Khan",
    "",
    "The Red Sox lost",
    "Who is it",
    "I like London",
]


def pool(nlp: Language, texts: list[str] = POOL) -> list[Doc]:
    return [nlp.make_doc(text) for text in texts]


@given(posterior())
def test_uncertainty_is_that_of_all_paths(posterior: Posterior) -> None:
    ner: Any = None
    entropies, of_tags = by_entropy(ner, posterior)
    doubts, of_tokens = by_least_confidence(ner, posterior)
    ends = numpy.cumsum(posterior.scores.lengths)
    for b, end in enumerate(ends):
        legal = collapsed_paths(posterior, b)
        probs = oracle.probabilities(legal)
        assert entropies[b] == pytest.approx(oracle.entropy(posterior.scores, b).value, abs=1e-5)
        if not legal:
            continue
        assert doubts[b] == pytest.approx(1 - max(probs), abs=1e-5)
        for t in range(int(posterior.scores.lengths[b])):
            sums: dict[int, float] = {}
            for p, path in zip(probs, legal):
                sums[path.tags[t]] = sums.get(path.tags[t], 0.0) + p
            place = end - posterior.scores.lengths[b] + t
            assert of_tokens[place] == pytest.approx(1 - max(sums.values()), abs=1e-5)
            expected = -sum(p * math.log(p) for p in sums.values() if p > 0)
            assert of_tags[place] == pytest.approx(expected, abs=1e-5)


@given(seeds, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_lazy_choices_are_those_of_all_gains(seed: int, decay: float) -> None:
    rng = numpy.random.default_rng(seed)
    values = rng.uniform(size=12)
    shares = [make_shares(rng.integers(6, size=4), rng.uniform(size=4)) for _ in values]
    n_chosen, expected = numpy.zeros(6), []
    for _ in range(9):
        gains = [
            -1.0 if i in expected else v * float((s.parts * decay ** n_chosen[s.features]).sum())
            for i, (v, s) in enumerate(zip(values, shares))
        ]
        if max(gains) <= 0:  # with a decay of 0
            break
        expected.append(int(numpy.argmax(gains)))
        n_chosen[shares[expected[-1]].features] += 1
    found = choose_diverse(values, shares, 9, decay=decay)
    assert len({*found}) == len(found) == 9
    assert found[: len(expected)] == expected


def test_shares_are_of_words() -> None:
    features, parts = make_shares(numpy.asarray([7, 3, 7]), numpy.asarray([0.1, 0.6, 0.1]))
    assert features.tolist() == [3, 7] and parts.tolist() == pytest.approx([0.75, 0.25])
    shares = make_shares(numpy.asarray([7, 3]), numpy.asarray([0.01, 1.0]), 0.02)
    assert shares.features.tolist() == [3]
    assert not len(make_shares(numpy.asarray([7]), numpy.zeros(1)).features)


@pytest.mark.parametrize("by", MEASURES)
@pytest.mark.parametrize("per", ["doc", "token"])
def test_each_text_is_suggested_once(unsure: Path, by: str, per: str) -> None:
    nlp = load(unsure)
    found = suggest(nlp, pool(nlp), n=10, by=by, per=per)
    assert sorted(suggestion.place for suggestion in found) == [0, 3, 4, 5]
    alone = suggest(nlp, pool(nlp), n=10, by=by, per=per, annotated=pool(nlp, POOL[3:5]))
    assert sorted(suggestion.place for suggestion in alone) == [0, 5]
    plain = suggest(nlp, pool(nlp), n=2, by=by, per="doc", diverse=False)
    scores = {suggestion.place: suggestion.score for suggestion in found}
    assert [suggestion.place for suggestion in plain] == sorted(scores, key=lambda i: -scores[i])[
        :2
    ]


def test_price_of_words(unsure: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is a little unsure of each name of a score table. That is more for a token than in
    a sentence with a few names of which it is less sure, but each of them is a decision."""
    nlp = load(unsure)
    tables = [" ".join(f"Team{x}{y} {i}" for i, y in enumerate("abcdefghijkl")) for x in "abc"]
    sentences = [f"when we met Ann{x} and Bob{x} of Ely{x} , it was late" for x in "abc"]
    docs = pool(nlp, [*tables, *sentences, "Once", "Twice " + "and " * 39])
    values = {"T": 0.25, "A": 0.6, "B": 0.6, "E": 0.6, "O": 0.1, "Tw": 0.24}

    def measure(ner: Any, posterior: Any) -> Any:
        words = [[values.get(t.text[:2], values.get(t.text[0], 0)) for t in doc] for doc in docs]
        return Uncertainty(numpy.asarray([*map(sum, words)]), numpy.concatenate(words))

    monkeypatch.setitem(MEASURES, "cost", measure)
    assert [suggestion.place for suggestion in suggest(nlp, docs, n=9)] == [3, 4, 5, 0, 1, 2, 7, 6]
    assert [suggestion.place for suggestion in suggest(nlp, docs, n=9, per="doc")] == [
        0,
        1,
        2,
        3,
        4,
        5,
        7,
        6,
    ]


def test_the_cost_is_the_users(unsure: Path) -> None:
    """With the words whose tags are expected to cost most."""
    nlp = load(unsure)
    hamming = {
        suggestion.place: suggestion.score for suggestion in suggest(nlp, pool(nlp), n=9, by="cost")
    }
    ner: Any = nlp.get_pipe("ner")
    ner.set_decoding(make_min_cost(cost=lambda tags: 3 - 3 * numpy.eye(len(tags))))
    for suggestion in suggest(nlp, pool(nlp), n=9, by="cost"):
        assert suggestion.score == pytest.approx(3 * hamming[suggestion.place], rel=1e-4)
    posterior = ner.posterior(pool(nlp, POOL[:1]))
    of_docs, of_tokens = by_cost(ner, posterior)
    expected = 3 * (1 - posterior.marginals.max(axis=1))
    assert of_tokens == pytest.approx(expected, abs=1e-5) and of_tokens.std() > 0
    assert of_docs == pytest.approx([of_tokens.sum()])


def test_the_proposal_is_the_prediction(unsure: Path) -> None:
    nlp = load(unsure, confidence={"@misc": "spacy_costner.Confidence.v1"})
    assert any(nlp(text).ents for text in TEXTS)
    for suggestion in suggest(nlp, pool(nlp, TEXTS), n=9):
        task, expected = suggestion.task(), nlp(TEXTS[suggestion.place])
        ents = [(ent.start_char, ent.end_char, ent.label_) for ent in expected.ents]
        assert [span[:3] for span in task.spans or ()] == ents
        probs = [span.extra["score"] for span in task.spans or ()]
        assert probs == pytest.approx([ent._.confidence for ent in expected.ents], abs=1e-4)
        assert task.extra["meta"] == {"score": round(suggestion.score, 4), "doc": suggestion.place}


def test_what_is_refused(unsure: Path) -> None:
    nlp = load(unsure)
    for arguments, message in (
        ({"n": 0}, "n: expected at least 1, got 0"),
        ({"by": "luck"}, r"by: expected one of \['cost'.*-confidence'\], got 'luck'"),
        ({"per": "hour"}, r"per: expected one of \['token', 'doc'\], got 'hour'"),
        ({"name": "tagger"}, "expected the name of a cost_sensitive_ner"),
        ({"docs": []}, "docs with words that are not annotated, got none"),
        ({"docs": pool(nlp, ["", " "])}, "words that are not annotated, got none"),
        ({"nlp": pipeline()}, "ner: expected a trained component"),
    ):
        given: Any = {"nlp": nlp, "docs": pool(nlp)}
        with pytest.raises(ValueError, match=message):
            suggest(**{**given, **arguments})


@pytest.mark.parametrize("form", TASK_FORMS)
def test_files_are_read_back(form: str, tmp_path: Path) -> None:
    """Also with characters of two UTF-16 code units. A prediction in Label Studio is an annotation
    when somebody has accepted it."""
    nlp = spacy.blank("xx")
    docs = pool(nlp, ["🙂 in New York", "Nobody here", "Ana met Bo"])
    docs[0].ents = [docs[0].char_span(5, 13, "LOC")]
    docs[1].ents = []
    docs[2].ents = [docs[2].char_span(0, 3, "PER"), docs[2].char_span(8, 10, "PER")]
    path = tmp_path / f"out{TASK_FORMS[form].suffix}"
    save_tasks(path, [Suggestion(i, 0.5, doc).task() for i, doc in enumerate(docs)], form)
    if form == "label-studio":
        read = list(read_docs(nlp, path, info=CorpusInfo()))
        assert not any(doc.has_annotation("ENT_IOB") for doc in read)
        values = json.loads(path.read_text("utf8"))
        assert values[0]["predictions"][0]["result"][0]["value"]["start"] == 6
        accepted = [{"data": v["data"], "annotations": v["predictions"]} for v in values]
        path.write_text(json.dumps(accepted))
    found = CorpusInfo()
    read = list(read_docs(nlp, path, info=found))
    assert not found.problems
    for doc, expected in zip(read, docs, strict=True):
        assert doc.text == expected.text and doc.has_annotation("ENT_IOB")
        assert [(e.text, e.label_) for e in doc.ents] == [(e.text, e.label_) for e in expected.ents]
    assert '"score": 1.0' in path.read_text("utf8") or '"scores": [1.0]' in path.read_text("utf8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """120 docs of the demo corpus, and 60 others."""
    folder, vocab = tmp_path_factory.mktemp("demo"), spacy.blank("xx").vocab
    for name, n in (("train", 120), ("dev", 60)):
        docs = list(make_corpus(name).get_docs(vocab))[:n]
        DocBin(docs=docs).to_disk(folder / f"{name}.spacy")
    LINEAR.to_disk(folder / "config.cfg")
    return {name: folder / name for name in ("train.spacy", "dev.spacy", "config.cfg")}


def of_corpus(nlp: Language, path: Path) -> list[Example]:
    return [Example(Doc(nlp.vocab, [t.text for t in d]), d) for d in read_docs(nlp, path)]


def test_command_lines(unsure: Path, demo: dict[str, Path], tmp_path: Path) -> None:
    texts, out = tmp_path / "pool.txt", tmp_path / "out.jsonl"
    texts.write_text("\n".join(POOL))
    result = run("suggest", unsure, texts, "-o", out, "-n", 2, "--format", "doccano", "--json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in out.read_text("utf8").splitlines()]
    printed = json.loads(result.stdout)["docs"]
    assert [row["text"] for row in rows] == [row["text"] for row in printed] and len(rows) == 2
    result = run("suggest", unsure, texts, "-o", out, "-n", 2, "--annotated", demo["dev.spacy"])
    assert "2 docs" in result.stdout and f"Written to {out}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.txt"], "out.txt: expected a name that ends in .jsonl, for prodigy"),
        (["-o", "o.jsonl", "-f", "label-studio"], "expected a name that ends in .json, for label-"),
        (["-o", "o.jsonl", "-f", "brat"], "format: expected one of ['prodigy', 'doccano', 'label-"),
        (["-o", "pool.txt"], "expected another file than the input"),
    ],
)
def test_command_errors(
    unsure: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pool.txt").write_text("Ana\n")
    result = run("suggest", unsure, "pool.txt", *arguments)
    assert result.exit_code == 1 and message in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pool.txt"]
