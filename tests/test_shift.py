"""The test for a shift of docs: by definition, on made-up scores, and in a pipeline."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import given
from pytest import approx
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example

from spacy_costner.analysis.annotating import PartCounts, annotate
from spacy_costner.analysis.calibration import calibrate
from spacy_costner.analysis.guarantees import guarantee
from spacy_costner.analysis.tuning import tune
from spacy_costner.analysis.watching import watch
from spacy_costner.decoding import Posterior
from spacy_costner.metrics import shift
from spacy_costner.pipeline.annotations import measure
from spacy_costner.readers.sentences import copy_tokens
from spacy_costner.token_attrs import TokenAttrs

from . import oracle
from .support.commands import run
from .support.pipelines import load
from .support.posteriors import entities_of, posterior
from .support.strategies import seeds


@given(seeds)
def test_p_values_by_definition(rng: numpy.random.Generator) -> None:
    n_values = rng.choice([8, 10**9])  # many ties, or none
    calibration = rng.integers(0, n_values, size=rng.integers(0, 20)) / 8.0
    scores = rng.integers(0, n_values, size=rng.integers(0, 2500)) / 8.0
    u = 1 - rng.random(len(scores))
    sorted_scores = sorted(calibration.tolist())
    p = shift.conformal_p_values(sorted_scores, scores, u)
    for t in {*range(min(len(scores), 20)), *range(1020, len(scores), 300)}:
        pool = numpy.append(calibration, scores[:t])
        n_equal = (pool == scores[t]).sum() + 1
        expected = ((pool > scores[t]).sum() + u[t] * n_equal) / (len(pool) + 1)
        assert p[t] == pytest.approx(expected)
    assert sorted_scores == sorted([*calibration, *scores])


def test_martingale_by_definition() -> None:
    p = numpy.random.default_rng(1).random(50)
    bets = [numpy.cumprod(b * p ** (b - 1)) for b in shift.BETS]
    products = shift.log_products(p, numpy.zeros(len(shift.BETS)))
    numpy.testing.assert_allclose(numpy.exp(products).T, bets)
    assert numpy.exp(shift.log_martingale(products)) == pytest.approx(numpy.mean(bets, axis=0))


def calibration_of(scores: Any) -> dict[str, Any]:
    """Scores of calibration docs, as the component keeps them."""
    digest = shift.digest_of(scores)
    return {"scores": sorted(scores), "digest": digest, "approximate": False}


@pytest.mark.parametrize("shares", [(0.95, 0.05), (0.6, 0.3, 0.1)], ids=str)
def test_false_alarms_with_ties_are_at_most_one_in_a_hundred(shares: tuple[float, ...]) -> None:
    """Over 2,000 calibrations, with the seed that commands have: scores of two or three values,
    tied as they are rounded."""
    rng, n_trials, n_alarms = numpy.random.default_rng(7), 2000, 0
    for _ in range(n_trials):
        scores = rng.choice(len(shares), p=shares, size=500) + rng.uniform(1, 1 + 1e-6, size=500)
        found = shift.find_shift(calibration_of(scores[:100]), scores[100:])
        n_alarms += found.alarm is not None
    at_most = 1 / shift.ALARM
    assert n_alarms / n_trials <= at_most + 2 * (at_most * (1 - at_most) / n_trials) ** 0.5


def test_the_seed_and_the_calibration_docs_break_ties() -> None:
    """The order of the calibration docs counts, too, and digits that are rounded off."""
    scores = [0.5, 0.5 + 1e-9]
    calibrations = [scores, scores[::-1], [0.5, 0.5 + 2e-9]]
    found = [
        shift.find_shift(calibration_of(numpy.asarray(each)), [0.5] * 9, seed=seed)
        for each in calibrations
        for seed in (0, 1)
    ]
    assert len({tuple(one.p_values) for one in found}) == 6
    again = shift.find_shift(calibration_of(numpy.asarray(scores)), [0.5] * 9, seed=1)
    assert again.p_values.tolist() == found[1].p_values.tolist()


@given(seeds)
def test_a_test_goes_on(rng: numpy.random.Generator) -> None:
    """From each of its results, also from JSON, and from one result twice."""
    calibration = calibration_of(rng.choice([0.1, 0.2, 0.7], size=rng.integers(60)))
    scores = rng.choice([0.1, 0.2, 0.7, 5.0], size=rng.integers(40)).tolist()
    counts = {"X": [1.0, 2.0, 3.0]}
    at_once = shift.find_shift(calibration, scores, counts, seed=4)
    n_first = int(rng.integers(len(scores) + 1))
    first = shift.find_shift(calibration, scores[:n_first], {"X": [1.0, 1.0, 1.0]}, seed=4)
    saved = json.loads(json.dumps(first.to_json()))
    for earlier in (first, first, shift.restore(saved, calibration, 4)):
        assert earlier.n_docs == n_first and earlier.counts == first.counts
        new_scores = scores[n_first:]
        in_two = shift.find_shift(calibration, new_scores, counts, earlier=earlier, seed=4)
        for name in ("scores", "p_values", "log_martingale"):
            expected = getattr(at_once, name).tolist()
            assert getattr(in_two, name).tolist() == expected
            assert getattr(earlier, name).tolist() == expected[:n_first]
        assert in_two[1:] == at_once[1:] and in_two.summary == at_once.summary


def test_earlier_docs_are_not_tested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of docs, one at a time: each is tested once."""
    n_tested, by_definition = [], shift.conformal_p_values

    def counted(pool: Any, scores: Any, shares: Any) -> Any:
        n_tested.append(len(scores))
        return by_definition(pool, scores, shares)

    monkeypatch.setattr(shift, "conformal_p_values", counted)
    calibration = calibration_of(numpy.arange(5) / 5)
    found = shift.find_shift(calibration, [])
    for i in range(30):
        found = shift.find_shift(calibration, [i / 7], earlier=found)
    assert n_tested == [0] + [1] * 30 and found.n_docs == 30


def test_what_earlier_docs_may_be() -> None:
    calibration, other = calibration_of(numpy.arange(5)), calibration_of(numpy.arange(6))
    first = shift.find_shift(calibration, [1.0], seed=3)
    with pytest.raises(ValueError, match="seed: expected 3, as for the earlier docs, got 0"):
        shift.find_shift(calibration, [], earlier=first)
    with pytest.raises(ValueError, match="earlier: expected a test against the calibration docs"):
        shift.find_shift(other, [], earlier=first, seed=3)
    with pytest.raises(ValueError, match="earlier: expected a test against the calibration docs"):
        shift.restore(first.to_json(), other, 3)
    with pytest.raises(ValueError, match=r"earlier: expected scores, counts, .* got no seed"):
        shift.restore({"scores": [], "counts": {}}, calibration)


def test_calibration_docs_of_0_3_have_no_digest() -> None:
    found = shift.find_shift({"scores": [0.1, 0.2], "approximate": False}, [0.1, 0.3])
    assert len(found.p_values) == 2 and found.to_json()["digest"] is None


# In a pipeline


@given(posterior(), seeds)
def test_measures_by_enumeration(posterior: Posterior, rng: numpy.random.Generator) -> None:
    """Of docs that have one sequence or two, some with presets that the paths agree with."""
    lengths = posterior.scores.lengths
    is_free = rng.uniform(size=lengths.sum()) < rng.choice([0.5, 1.0])
    docs = [[0, 1]] if len(lengths) == 2 and rng.integers(2) else [[b] for b in range(len(lengths))]
    of_docs = numpy.asarray([lengths[doc].sum() for doc in docs])
    no_tokens = numpy.zeros(0)
    tokens = TokenAttrs(
        orth=no_tokens,
        iob=numpy.where(is_free, 0, 2),
        label=no_tokens,
        is_space=no_tokens,
        begins_sentence=no_tokens,
        lengths=of_docs,
    )
    posterior.doc_of = numpy.repeat(numpy.arange(len(docs)), [len(doc) for doc in docs])
    got, expected = measure(posterior, tokens)
    starts = numpy.cumsum(lengths) - lengths
    for doc, entropy, numbers in zip(docs, got, expected):
        n_free = sum(is_free[starts[b] : starts[b] + lengths[b]].sum() for b in doc)
        total, of_label = 0.0, numpy.zeros(len(posterior.tags.labels))
        for b in doc:
            legal = oracle.paths(posterior.scores, b)
            for p, path in zip(oracle.probabilities(legal), legal):
                total -= p * numpy.log(p) if p > 0 else 0.0
                for begin, _, label in entities_of(posterior, b, path.tags):
                    of_label[label] += p * is_free[begin]
        total /= 1 + of_label.sum()
        assert numpy.isnan(entropy) if n_free == 0 else entropy == approx(total, abs=1e-5)
        assert numbers == approx(of_label, abs=1e-5)


WORDS = "Khan London Sox lost is the"
OTHERS = "Oslo Sox Rome"


def calibration_docs(nlp: Language, n: int = 60, words: str = WORDS, seed: int = 0) -> Any:
    """Docs of words in random order."""
    rng, docs = numpy.random.default_rng(seed), []
    tags = {"Khan": "U-PERSON", "London": "U-LOC", "Sox": "U-sports-team"}
    for _ in range(n):
        doc = rng.choice(words.split(), rng.integers(2, 9)).tolist()
        entities = [tags.get(word, "O") for word in doc]
        docs.append(Example.from_dict(Doc(nlp.vocab, words=doc), {"entities": entities}))
    return docs


@pytest.fixture
def guaranteed(unsure: Path) -> Language:
    nlp = load(unsure)
    guarantee(nlp, calibration_docs(nlp), miss=0.2)
    return nlp


def predicted(nlp: Language, examples: list[Example], **options: Any) -> list[Doc]:
    return list(nlp.pipe([copy_tokens(eg.reference) for eg in examples], **options))


def test_scores_and_expected_numbers(guaranteed: Language) -> None:
    """Those of calibration docs are as `shift` finds them; the numbers are of the posterior."""
    ner: Any = guaranteed.get_pipe("ner")
    docs = predicted(guaranteed, calibration_docs(guaranteed))
    found = ner.shift(docs)
    kept = ner.calibration_scores
    assert sorted(found.scores) == kept.scores and not kept.approximate
    exact, counts = [], {label: numpy.zeros(3) for label in ner.labels}
    for doc in docs:
        for ent in doc.ents:
            counts[ent.label_] += [ent._.confidence, 1, 0]
        posterior = ner.posterior([doc])
        opens = posterior.marginals[:, ner.tags.opening]
        exact.append(posterior.entropy[0] / (1 + opens.sum()))
        for n, i in zip(opens.sum(axis=0), ner.tags.label_of[ner.tags.opening]):
            counts[ner.labels[i]][2] += n
    assert found.scores == approx(exact, rel=1e-3)
    assert {k: approx(row, rel=1e-4) for k, row in counts.items()} == found.counts
    tp, n_predicted, n_annotated = sum(counts.values())
    p, r = tp / n_predicted, tp / n_annotated
    scores = found.expected
    assert (scores["ents_p"], scores["ents_r"]) == approx((p, r), rel=1e-4)
    assert scores["ents_f"] == approx(2 * p * r / (p + r), rel=1e-4)
    recall = counts["LOC"][0] / counts["LOC"][2]
    assert scores["ents_per_type"]["LOC"]["r"] == approx(recall, rel=1e-4)
    assert ner.shift([]).expected["ents_f"] is None


def test_it_alarms(guaranteed: Language) -> None:
    ner: Any = guaranteed.get_pipe("ner")
    like = ner.shift(predicted(guaranteed, calibration_docs(guaranteed, 140, seed=1)))
    assert like.alarm is None and len(like.scores) == 140
    other = ner.shift(predicted(guaranteed, calibration_docs(guaranteed, 140, OTHERS)))
    at = numpy.flatnonzero(numpy.exp(other.log_martingale) >= shift.ALARM)[0]
    assert other.alarm == at + 1 < 140


def test_the_same_in_parts_processes_and_threads(guaranteed: Language, tmp_path: Path) -> None:
    ner: Any = guaranteed.get_pipe("ner")
    examples = calibration_docs(guaranteed, 30, seed=2)
    docs = predicted(guaranteed, examples)
    whole = ner.shift(docs, seed=5)
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "docs.spacy")
    guaranteed.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    bare = [copy_tokens(eg.reference) for eg in examples]
    with ThreadPoolExecutor(4) as threads:
        in_threads = list(threads.map(guaranteed, bare))
    for same, nlp in (
        (predicted(guaranteed, examples, batch_size=7), guaranteed),
        (predicted(guaranteed, examples, n_process=2), guaranteed),
        (in_threads, guaranteed),
        (predicted(loaded, examples), loaded),
        (DocBin().from_disk(tmp_path / "docs.spacy").get_docs(guaranteed.vocab), guaranteed),
    ):
        found = nlp.get_pipe("ner").shift(same, seed=5)
        assert found.scores.tolist() == whole.scores.tolist()
        assert found.p_values.tolist() == whole.p_values.tolist()
        assert found.counts == {k: approx(row, abs=1e-4) for k, row in whole.counts.items()}
    first = ner.shift(docs[:11], seed=5)
    second = ner.shift(docs[11:], earlier=first, seed=5)
    saved = json.loads(json.dumps(first.to_json()))
    assert ner.shift(docs[11:], earlier=saved, seed=5).summary == whole.summary
    assert first.p_values.tolist() == whole.p_values[:11].tolist()
    assert second.log_martingale.tolist() == whole.log_martingale.tolist()
    assert second.counts == {k: approx(row) for k, row in whole.counts.items()}
    assert len(ner.shift([*docs[:3], guaranteed("")]).scores) == 3


def test_presets_are_left_out(guaranteed: Language) -> None:
    ner: Any = guaranteed.get_pipe("ner")
    doc = Doc(guaranteed.vocab, words=["London", "lost"], ents=["B-LOC", "O"])
    doc.set_ents(doc.ents, default="missing")
    whole = Doc(guaranteed.vocab, words=["Sox"], ents=["B-LOC"])
    found = ner.shift(guaranteed.pipe([doc, whole]))
    free = ner.posterior([doc], preset=True)
    expected = free.marginals[1, free.tags.collapsed.opening].sum()
    assert found.scores == approx([free.entropy[0] / (1 + expected)], rel=1e-3)
    assert found.counts["LOC"][1] == 0 and found.counts["LOC"][2] < 0.5


@pytest.mark.filterwarnings("ignore:.*the guarantee is dropped")
def test_what_keeps_and_makes_the_scores(guaranteed: Language) -> None:
    """Another decoding keeps them; `calibrate` has others, which are approximate."""
    ner: Any = guaranteed.get_pipe("ner")
    before = ner.calibration_scores
    tune(guaranteed, calibration_docs(guaranteed))
    assert ner.guarantee is None and ner.calibration_scores == before
    no_score = numpy.asarray([0.5, numpy.nan])  # of a doc with presets only
    ner.set_shift([guaranteed.make_doc("Khan")] * 2, no_score, "test", approximate=False)
    assert ner.calibration_scores.scores == [0.5]
    docs = calibration_docs(guaranteed, 20, seed=3)
    calibrate(guaranteed, docs, source="dev")
    assert ner.calibration_scores.approximate and ner.calibration_scores.source == "dev"
    found = ner.shift(predicted(guaranteed, docs))
    assert found.approximate and sorted(found.scores) == ner.calibration_scores.scores
    with pytest.raises(ValueError, match=r"got 'Who lost' without an entropy in doc.spans"):
        ner.shift([guaranteed.make_doc("Who lost")])


# Commands


def write_texts(path: Path, *words: str) -> Path:
    """Texts of words with a source, from which they are."""
    nlp = spacy.blank("en")
    docs = [[eg.reference.text for eg in calibration_docs(nlp, 60, some, 9)] for some in words]
    rows = [{"text": text, "source": f"s{i}"} for i, own in enumerate(docs) for text in own]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def watched(guaranteed: Language, tmp_path: Path) -> Path:
    """A saved pipeline, whose calibration docs have a source."""
    docs = calibration_docs(guaranteed, 180)
    for i, eg in enumerate(docs):
        eg.reference.user_data |= {"source": f"s{i % 2 + (i >= 160)}", "n": i}
    guarantee(guaranteed, docs, miss=0.2)
    guaranteed.to_disk(tmp_path / "watched")
    return tmp_path / "watched"


def test_watch(watched: Path, tmp_path: Path) -> None:
    like = run("watch", watched, write_texts(tmp_path / "like.jsonl", WORDS), "--json")
    found = json.loads(like.stdout)
    assert like.exit_code == 0 and not found["alarm"] and found["docs"] == 60
    assert found["tests"][0]["calibration"] == 180 and found["tests"][0]["martingale"] < 100
    ner: Any = spacy.load(watched).get_pipe("ner")
    assert set(ner.calibration_scores.keys) == {"source"}
    path = write_texts(tmp_path / "other.jsonl", OTHERS)
    again = [run("watch", watched, path) for _ in range(2)]
    assert again[0].exit_code == 1 and again[0].stdout == again[1].stdout
    assert "Alarm: the model is less sure" in again[0].stdout
    assert "expected, an upper guess" in again[0].stdout and "PERSON" in again[0].stdout
    with path.open("a") as file:
        file.write('{"text": 3}\n')
    plot = tmp_path / "plot.svg"
    mixed = run("watch", watched, tmp_path / "like.jsonl", path, "--plot", plot, "--json")
    found = json.loads(mixed.stdout)
    assert plot.is_file() and found["failed"] == 1
    assert 60 < found["tests"][0]["alarm"] < 100  # in the order of the input


def test_watch_by_key(watched: Path, tmp_path: Path) -> None:
    """The harder source is like its own calibration docs; the tests share what may fail."""
    path = write_texts(tmp_path / "in.jsonl", WORDS, OTHERS, WORDS)
    command = run("watch", watched, path, "--key", "source", "--json")
    found = json.loads(command.stdout)
    by_value = {one["value"]: one for one in found["tests"]}
    assert {*by_value} == {"s0", "s1"} and found["untested"] == {"s2": 60}
    assert [one["level"] for one in by_value.values()] == [200, 200]
    assert [one["calibration"] for one in by_value.values()] == [80, 90]
    assert by_value["s0"]["alarm"] is None and by_value["s1"]["alarm"] and command.exit_code == 1
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "in.parquet")
    assert run("watch", watched, tmp_path / "in.parquet", "--key", "source", "--json").stdout == (
        command.stdout
    )
    refused = run("watch", watched, path, "--key", "n")
    assert "of ['source'], got 'n'" in refused.stderr and refused.exit_code == 1


def test_watch_tests_docs_in_random_order_against_those_with_their_value(watched: Path) -> None:
    nlp = spacy.load(watched)
    ner: Any = nlp.get_pipe("ner")
    docs = [copy_tokens(eg.reference) for eg in calibration_docs(nlp, 40, seed=4)]
    for i, doc in enumerate(docs):
        doc.user_data["source"] = f"s{i % 2}"
    docs = list(nlp.pipe(docs))
    scores = ner.shift(docs).scores
    kept = ner.calibration_scores
    shuffled = shift.in_random_order(scores, 3)
    assert watch(ner, docs, seed=3).shift.scores.tolist() == shuffled.tolist() != scores.tolist()
    assert watch(ner, docs, in_order=True).shift.scores.tolist() == scores.tolist()
    tests = watch(ner, docs, key="source", seed=3).tests
    for i, test in enumerate(tests):
        pool = kept.pool("source", f"s{i}")
        ordered = shift.in_random_order(scores[i::2], 3)
        expected = shift.find_shift(pool, ordered, seed=3, level=200).summary
        assert {**expected, "value": f"s{i}", "calibration": len(pool["scores"])} == test.as_dict()


def test_annotate_tests_for_a_shift(watched: Path, tmp_path: Path) -> None:
    """The same whatever the processes, and whether it ran once."""
    path = write_texts(tmp_path / "in.jsonl", OTHERS, WORDS)
    whole = annotate(watched, [path], tmp_path / "one", n_rows=25)
    parts = annotate(watched, [path], tmp_path / "two", n_rows=25, jobs=2)
    kept = annotate(watched, [path], tmp_path / "two", n_rows=25)
    assert kept.parts == PartCounts(kept=5, changed=0, new=0)
    docs = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    nlp = spacy.load(watched)
    expected = nlp.get_pipe("ner").shift(nlp.pipe(docs))
    assert whole.shift["ner"].alarm
    for summary in (whole, parts, kept):
        found = summary.shift["ner"]
        assert found.p_values.tolist() == whole.shift["ner"].p_values.tolist()
        assert sorted(found.scores) == sorted(expected.scores)
        assert found.counts == {k: approx(row, rel=1e-4) for k, row in expected.counts.items()}
    out = run("annotate", watched, path, "-o", tmp_path / "two", "--part", "25")
    at = f"alarm at doc {whole.shift['ner'].alarm} of 120 (martingale up to"
    assert f"ner: {at}" in out.stdout
