"""Tests of the test for a shift: its formulas, made-up scores, and the docs of a pipeline."""

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

from spacy_costner.annotation.tokens import TokenAttrs
from spacy_costner.cli.watch import expected_text
from spacy_costner.decoding import Posterior
from spacy_costner.metrics import shift
from spacy_costner.pipeline.doc_entropy import measure_docs
from spacy_costner.readers.sentences import copy_without_annotation
from spacy_costner.workflows.apply.annotating import PartCounts, annotate
from spacy_costner.workflows.calibration.guarantees import guarantee
from spacy_costner.workflows.calibration.temperature import calibrate
from spacy_costner.workflows.calibration.tuning import tune
from spacy_costner.workflows.calibration.watching import watch

from .. import oracle
from ..support.commands import run
from ..support.pipelines import load, predict_node_above_labels
from ..support.posteriors import entities_of, posterior
from ..support.slow import slow_but
from ..support.strategies import seeds


@given(seeds)
def test_p_values_by_definition(rng: numpy.random.Generator) -> None:
    """The p-value of a score is a share of the scores before it and itself: of those that are
    higher, and a random part u of those that are equal. All scores are added to the sorted ones."""
    n_values = rng.choice([8, 10**9])  # Many scores are equal, or none are.
    calibration = rng.integers(0, n_values, size=rng.integers(0, 20)) / 8.0
    scores = rng.integers(0, n_values, size=rng.integers(0, 2500)) / 8.0
    u = 1 - rng.random(len(scores))  # above 0, up to 1
    sorted_scores = sorted(calibration.tolist())

    p_values = shift.conformal_p_values(sorted_scores, scores, u)

    # A sample of the scores: the first ones, and some after the 1,000th.
    for t in {*range(min(len(scores), 20)), *range(1020, len(scores), 300)}:
        earlier = numpy.append(calibration, scores[:t])
        n_higher = (earlier > scores[t]).sum()
        n_equal = (earlier == scores[t]).sum() + 1
        expected = (n_higher + u[t] * n_equal) / (len(earlier) + 1)
        assert p_values[t] == pytest.approx(expected)
    assert sorted_scores == sorted([*calibration, *scores])


def test_martingale_is_the_mean_of_the_products_of_bets() -> None:
    """At each p-value p, the product of a bet b is multiplied by b p^(b - 1)."""
    p_values = numpy.random.default_rng(1).random(50)
    products = [numpy.cumprod(b * p_values ** (b - 1)) for b in shift.BETS]

    log_products = shift.log_products(p_values, numpy.zeros(len(shift.BETS)))

    numpy.testing.assert_allclose(numpy.exp(log_products).T, products)
    martingale = numpy.exp(shift.log_martingale(log_products))
    assert martingale == pytest.approx(numpy.mean(products, axis=0))


def calibration_of(scores: Any) -> dict[str, Any]:
    """The scores of calibration docs, as the component keeps them."""
    digest = shift.digest_of_scores(scores)
    return {"scores": sorted(scores), "digest": digest, "approximate": False}


FEW_VALUES = [(0.95, 0.05), (0.6, 0.3, 0.1)]
"""The probabilities of two scores, and of three."""


@pytest.mark.parametrize("shares", slow_but(FEW_VALUES, FEW_VALUES[0]), ids=str)
def test_false_alarms_with_ties_are_at_most_one_in_a_hundred(shares: tuple[float, ...]) -> None:
    """Scores have two or three values, so that many are equal, as they are if they are rounded.
    There are 1,000 calibrations, each with 100 calibration docs and 400 docs like them, and the
    seed that commands have."""
    rng = numpy.random.default_rng(7)
    n_trials = 1000
    n_alarms = 0
    for _ in range(n_trials):
        scores = rng.choice(len(shares), p=shares, size=500) + rng.uniform(1, 1 + 1e-6, size=500)
        result = shift.find_shift(calibration_of(scores[:100]), scores[100:])
        n_alarms += result.alarm is not None

    at_most = 1 / shift.ALARM
    deviation = (at_most * (1 - at_most) / n_trials) ** 0.5
    assert n_alarms / n_trials <= at_most + 2 * deviation


@pytest.mark.parametrize(
    ("calibration", "seed"),
    [
        ([0.5, 0.5 + 1e-9], 1),
        ([0.5 + 1e-9, 0.5], 0),  # another order
        ([0.5, 0.5 + 2e-9], 0),  # another digit, which is rounded off
    ],
    ids=["seed", "order", "digit"],
)
def test_the_seed_and_the_calibration_docs_break_ties(calibration: list[float], seed: int) -> None:
    """With the seed 0 and the scores [0.5, 0.5 + 1e-9] the p-values are others. With the same seed
    and scores they are always the same."""
    tied_scores = [0.5] * 9

    def p_values(calibration: list[float], seed: int) -> list[float]:
        """The p-values of `tied_scores` after these calibration scores."""
        scores_of_calibration = calibration_of(numpy.asarray(calibration))
        return shift.find_shift(scores_of_calibration, tied_scores, seed=seed).p_values.tolist()

    assert p_values(calibration, seed) != p_values([0.5, 0.5 + 1e-9], seed=0)
    assert p_values(calibration, seed) == p_values(calibration, seed)


@given(seeds)
def test_docs_in_two_calls_have_the_results_of_one_call(rng: numpy.random.Generator) -> None:
    """The second call goes on from the result of the first, or from that result as JSON. It may do
    so twice."""
    calibration = calibration_of(rng.choice([0.1, 0.2, 0.7], size=rng.integers(60)))
    scores = rng.choice([0.1, 0.2, 0.7, 5.0], size=rng.integers(40)).tolist()
    counts = {"X": [1.0, 2.0, 3.0]}
    counts_of_first = {"X": [1.0, 1.0, 1.0]}
    n_first = int(rng.integers(len(scores) + 1))

    at_once = shift.find_shift(calibration, scores, counts, seed=4)
    first = shift.find_shift(calibration, scores[:n_first], counts_of_first, seed=4)
    saved = json.loads(json.dumps(first.to_json()))
    for earlier in (first, first, shift.restore(saved, calibration, 4)):
        assert earlier.n_docs == n_first
        assert earlier.counts == first.counts
        new_scores = scores[n_first:]
        in_two = shift.find_shift(calibration, new_scores, counts, earlier=earlier, seed=4)
        for name in ("scores", "p_values", "log_martingale"):
            expected = getattr(at_once, name).tolist()
            assert getattr(in_two, name).tolist() == expected
            assert getattr(earlier, name).tolist() == expected[:n_first]
        assert in_two[1:] == at_once[1:]  # all fields but the scores
        assert in_two.summary == at_once.summary


def test_earlier_docs_are_not_tested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docs come one at a time, and each is tested once."""
    n_tested = []
    conformal_p_values = shift.conformal_p_values

    def count_and_test(pool: Any, scores: Any, u: Any) -> Any:
        """Count the docs that are tested, and test them."""
        n_tested.append(len(scores))
        return conformal_p_values(pool, scores, u)

    monkeypatch.setattr(shift, "conformal_p_values", count_and_test)
    calibration = calibration_of(numpy.arange(5) / 5)

    result = shift.find_shift(calibration, [])
    for i in range(30):
        result = shift.find_shift(calibration, [i / 7], earlier=result)

    assert n_tested == [0] + [1] * 30
    assert result.n_docs == 30


def test_a_test_goes_on_with_its_own_seed_and_calibration_docs_only() -> None:
    calibration = calibration_of(numpy.arange(5))
    other_calibration = calibration_of(numpy.arange(6))
    first = shift.find_shift(calibration, [1.0], seed=3)

    with pytest.raises(ValueError, match="seed: expected 3, as for the earlier docs, got 0"):
        shift.find_shift(calibration, [], earlier=first)
    with pytest.raises(ValueError, match="earlier: expected a test against the calibration docs"):
        shift.find_shift(other_calibration, [], earlier=first, seed=3)
    with pytest.raises(ValueError, match="earlier: expected a test against the calibration docs"):
        shift.restore(first.to_json(), other_calibration, 3)
    with pytest.raises(ValueError, match=r"earlier: expected scores, counts, .* got no seed"):
        shift.restore({"scores": [], "counts": {}}, calibration)


# In a pipeline


@given(posterior(), seeds)
def test_scores_and_expected_entities_of_docs_by_enumeration(
    posterior: Posterior, rng: numpy.random.Generator
) -> None:
    """The score of a doc is the entropy of its paths divided by (1 + the expected number of its
    entities). Docs have one sequence or two. Some tokens are preset, and entities there don't
    count."""
    lengths = posterior.scores.lengths
    is_free = rng.uniform(size=lengths.sum()) < rng.choice([0.5, 1.0])

    if len(lengths) == 2 and rng.integers(2):
        sequences_of_doc = [[0, 1]]
    else:
        sequences_of_doc = [[b] for b in range(len(lengths))]
    doc_lengths = numpy.asarray([lengths[doc].sum() for doc in sequences_of_doc])
    n_sequences = [len(doc) for doc in sequences_of_doc]
    posterior.doc_of_sequence = numpy.repeat(numpy.arange(len(n_sequences)), n_sequences)

    unused = numpy.zeros(0)
    tokens = TokenAttrs(
        orth=unused,
        iob=numpy.where(is_free, 0, 2),  # spaCy's ENT_IOB: missing, or O
        label=unused,
        is_space=unused,
        begins_sentence=unused,
        lengths=doc_lengths,
    )

    scores, expected_entities = measure_docs(posterior, tokens)

    starts = numpy.cumsum(lengths) - lengths
    for sequences, score, n_of_label in zip(sequences_of_doc, scores, expected_entities):
        n_free = sum(is_free[starts[b] : starts[b] + lengths[b]].sum() for b in sequences)
        entropy = 0.0
        expected_of_label = numpy.zeros(len(posterior.tags.labels))
        for b in sequences:
            legal = oracle.paths(posterior.scores, b)
            for p, path in zip(oracle.probabilities(legal), legal):
                if p > 0:
                    entropy -= p * numpy.log(p)
                for begin, _, label in entities_of(posterior, b, path.tags):
                    expected_of_label[label] += p * is_free[begin]
        if n_free == 0:
            assert numpy.isnan(score)
        else:
            assert score == approx(entropy / (1 + expected_of_label.sum()), abs=1e-5)
        assert n_of_label == approx(expected_of_label, abs=1e-5)


KNOWN_WORDS = "Khan London Sox lost is the"
NEW_WORDS = "Oslo Sox Rome"  # the pipeline was trained on Sox alone


def docs_of_words(nlp: Language, n: int = 60, words: str = KNOWN_WORDS, seed: int = 0) -> Any:
    """Annotated docs of these words in random order. With the words that the model knows and the
    seed 0, they are the calibration docs."""
    rng = numpy.random.default_rng(seed)
    tag_of_word = {"Khan": "U-PERSON", "London": "U-LOC", "Sox": "U-sports-team"}
    examples = []
    for _ in range(n):
        words_of_doc = rng.choice(words.split(), rng.integers(2, 9)).tolist()
        tags = [tag_of_word.get(word, "O") for word in words_of_doc]
        doc = Doc(nlp.vocab, words=words_of_doc)
        examples.append(Example.from_dict(doc, {"entities": tags}))
    return examples


@pytest.fixture
def guaranteed(unsure: Path) -> Language:
    """A pipeline that keeps the scores of its 60 calibration docs."""
    nlp = load(unsure)
    guarantee(nlp, docs_of_words(nlp), miss=0.2)
    return nlp


def predict(nlp: Language, examples: list[Example], **options: Any) -> list[Doc]:
    """Docs with the tokens of the examples and the entities that the pipeline predicts."""
    return list(nlp.pipe([copy_without_annotation(eg.reference) for eg in examples], **options))


def test_scores_of_calibration_docs_are_those_that_shift_finds(guaranteed: Language) -> None:
    """A score is the entropy of the posterior divided by (1 + the expected number of entities)."""
    ner: Any = guaranteed.get_pipe("ner")
    docs = predict(guaranteed, docs_of_words(guaranteed))

    result = ner.shift(docs)

    assert sorted(result.scores) == ner.calibration_scores.scores
    assert not ner.calibration_scores.approximate
    expected = []
    for doc in docs:
        posterior = ner.posterior([doc])
        n_expected = posterior.marginals[:, ner.tags.opening].sum()
        expected.append(posterior.entropy[0] / (1 + n_expected))
    assert result.scores == approx(expected, rel=1e-3)


def test_expected_scores_are_those_of_expected_numbers(guaranteed: Language) -> None:
    """For each label, the expected number of correct entities is the sum of the confidences of the
    predicted ones. The number of annotated entities is what the posterior expects."""
    ner: Any = guaranteed.get_pipe("ner")
    docs = predict(guaranteed, docs_of_words(guaranteed))

    result = ner.shift(docs)

    counts = {label: numpy.zeros(3) for label in ner.labels}
    for doc in docs:
        for ent in doc.ents:
            counts[ent.label_] += [ent._.confidence, 1, 0]
        opening_marginals = ner.posterior([doc]).marginals[:, ner.tags.opening]
        label_ids = ner.tags.label_of[ner.tags.opening]
        for label_id, n_expected in zip(label_ids, opening_marginals.sum(axis=0)):
            counts[ner.labels[label_id]][2] += n_expected
    assert result.counts == {label: approx(row, rel=1e-4) for label, row in counts.items()}

    n_correct, n_predicted, n_annotated = sum(counts.values())
    precision = n_correct / n_predicted
    recall = n_correct / n_annotated
    scores = result.expected
    assert scores["ents_p"] == approx(precision, rel=1e-4)
    assert scores["ents_r"] == approx(recall, rel=1e-4)
    assert scores["ents_f"] == approx(2 * precision * recall / (precision + recall), rel=1e-4)
    recall_of_places = counts["LOC"][0] / counts["LOC"][2]
    assert scores["ents_per_type"]["LOC"]["r"] == approx(recall_of_places, rel=1e-4)


@pytest.mark.filterwarnings("ignore:.*the guarantee is dropped")
def test_predicted_inner_nodes_are_expected_to_be_wrong(guaranteed: Language) -> None:
    """The confidence of an inner node is the probability that the entity has one of the labels
    below it. In scores, an entity is only correct if it has the same label."""
    predict_node_above_labels(guaranteed, "name")
    docs = predict(guaranteed, docs_of_words(guaranteed))
    ents = [ent for doc in docs for ent in doc.ents]
    confidences = [ent._.confidence for ent in ents if ent.label_ != "name"]
    n_nodes = len(ents) - len(confidences)
    assert n_nodes > 10

    result = guaranteed.get_pipe("ner").shift(docs)

    assert result.counts["name"] == [0, n_nodes, 0]
    scores = result.expected
    assert scores["ents_per_type"]["name"] == {"p": 0, "r": None, "f": None}
    n_annotated = sum(n_annotated for _, _, n_annotated in result.counts.values())
    assert scores["ents_p"] == approx(sum(confidences) / len(ents))
    assert scores["ents_r"] == approx(sum(confidences) / n_annotated)


def test_expected_scores_of_no_docs_are_none(guaranteed: Language) -> None:
    assert guaranteed.get_pipe("ner").shift([]).expected["ents_f"] is None


def test_docs_like_the_calibration_docs_raise_no_alarm(guaranteed: Language) -> None:
    ner: Any = guaranteed.get_pipe("ner")
    result = ner.shift(predict(guaranteed, docs_of_words(guaranteed, 140, seed=1)))
    assert result.alarm is None
    assert len(result.scores) == 140


def test_docs_of_new_words_raise_an_alarm_where_the_martingale_is_high(
    guaranteed: Language,
) -> None:
    """`alarm` is the number of docs up to the first doc after which the martingale is at least
    `ALARM`."""
    ner: Any = guaranteed.get_pipe("ner")
    docs = predict(guaranteed, docs_of_words(guaranteed, 140, NEW_WORDS))

    result = ner.shift(docs)

    martingale = numpy.exp(result.log_martingale)  # after each doc
    first_doc = numpy.flatnonzero(martingale >= shift.ALARM)[0]
    assert result.alarm == first_doc + 1
    assert result.alarm < 140


def test_shift_is_the_same_whoever_has_predicted_the_docs(
    guaranteed: Language, tmp_path: Path
) -> None:
    """Docs are predicted in batches of another size, in two processes, in threads, or by the saved
    pipeline; or they were saved and loaded."""
    examples = docs_of_words(guaranteed, 30, seed=2)
    docs = predict(guaranteed, examples)
    expected = guaranteed.get_pipe("ner").shift(docs, seed=5)
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "docs.spacy")
    guaranteed.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    with ThreadPoolExecutor(4) as threads:
        in_threads = list(
            threads.map(guaranteed, [copy_without_annotation(eg.reference) for eg in examples])
        )

    for same_docs, nlp in (
        (predict(guaranteed, examples, batch_size=7), guaranteed),
        (predict(guaranteed, examples, n_process=2), guaranteed),
        (in_threads, guaranteed),
        (predict(loaded, examples), loaded),
        (DocBin().from_disk(tmp_path / "docs.spacy").get_docs(guaranteed.vocab), guaranteed),
    ):
        result = nlp.get_pipe("ner").shift(same_docs, seed=5)
        assert result.scores.tolist() == expected.scores.tolist()
        assert result.p_values.tolist() == expected.p_values.tolist()
        counts = {label: approx(row, abs=1e-4) for label, row in expected.counts.items()}
        assert result.counts == counts


def test_a_component_goes_on_from_earlier_docs(guaranteed: Language) -> None:
    """It goes on from a result, and from a result as JSON."""
    ner: Any = guaranteed.get_pipe("ner")
    docs = predict(guaranteed, docs_of_words(guaranteed, 30, seed=2))
    at_once = ner.shift(docs, seed=5)

    first = ner.shift(docs[:11], seed=5)
    saved = json.loads(json.dumps(first.to_json()))
    second = ner.shift(docs[11:], earlier=first, seed=5)
    after_saved = ner.shift(docs[11:], earlier=saved, seed=5)

    assert first.p_values.tolist() == at_once.p_values[:11].tolist()
    assert second.log_martingale.tolist() == at_once.log_martingale.tolist()
    assert second.counts == {label: approx(row) for label, row in at_once.counts.items()}
    assert after_saved.summary == at_once.summary


def test_empty_docs_are_not_tested(guaranteed: Language) -> None:
    docs = predict(guaranteed, docs_of_words(guaranteed, 3))
    result = guaranteed.get_pipe("ner").shift([*docs, guaranteed("")])
    assert len(result.scores) == 3


def test_presets_are_left_out_of_scores_and_counts(guaranteed: Language) -> None:
    """In "London lost", the entity London is preset. In "Sox", everything is preset, so this doc
    has no score."""
    ner: Any = guaranteed.get_pipe("ner")
    partly_preset = Doc(guaranteed.vocab, words=["London", "lost"], ents=["B-LOC", "O"])
    partly_preset.set_ents(partly_preset.ents, default="missing")
    all_preset = Doc(guaranteed.vocab, words=["Sox"], ents=["B-LOC"])

    result = ner.shift(guaranteed.pipe([partly_preset, all_preset]))

    posterior = ner.posterior([partly_preset], preset=True)
    n_expected = posterior.marginals[1, posterior.tags.collapsed.opening].sum()  # of "lost"
    assert result.scores == approx([posterior.entropy[0] / (1 + n_expected)], rel=1e-3)
    _, n_predicted, n_annotated = result.counts["LOC"]
    # London doesn't count. What the posterior expects is the little probability of "lost".
    assert n_predicted == 0
    assert n_annotated < 0.5


@pytest.mark.filterwarnings("ignore:.*the guarantee is dropped")
def test_another_decoding_keeps_the_calibration_scores(guaranteed: Language) -> None:
    ner: Any = guaranteed.get_pipe("ner")
    before = ner.calibration_scores
    tune(guaranteed, docs_of_words(guaranteed))
    assert ner.guarantee is None
    assert ner.calibration_scores == before


def test_calibration_docs_that_are_all_preset_have_no_score(guaranteed: Language) -> None:
    ner: Any = guaranteed.get_pipe("ner")
    docs = [guaranteed.make_doc("Khan")] * 2
    ner.set_shift(docs, numpy.asarray([0.5, numpy.nan]), "test", approximate=False)
    assert ner.calibration_scores.scores == [0.5]


@pytest.mark.filterwarnings("ignore:.*the guarantee is dropped")
def test_calibrate_keeps_scores_which_are_approximate(guaranteed: Language) -> None:
    """They are approximate, as the temperature was fitted to the same docs."""
    ner: Any = guaranteed.get_pipe("ner")
    examples = docs_of_words(guaranteed, 20, seed=3)

    calibrate(guaranteed, examples, source="dev")

    assert ner.calibration_scores.approximate
    assert ner.calibration_scores.source == "dev"
    result = ner.shift(predict(guaranteed, examples))
    assert result.approximate
    assert sorted(result.scores) == ner.calibration_scores.scores


def test_docs_without_prediction_are_refused(guaranteed: Language) -> None:
    with pytest.raises(ValueError, match=r"got 'Who lost' without an entropy in doc.spans"):
        guaranteed.get_pipe("ner").shift([guaranteed.make_doc("Who lost")])


# Commands


def write_texts(path: Path, *words_of_sources: str) -> Path:
    """Write a JSONL file with 60 texts of the words of each source. The sources are named s0, s1,
    ..."""
    nlp = spacy.blank("xx")
    lines = []
    for i, words in enumerate(words_of_sources):
        for eg in docs_of_words(nlp, 60, words, seed=9):
            lines.append(json.dumps({"text": eg.reference.text, "source": f"s{i}"}) + "\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture
def watched(guaranteed: Language, tmp_path: Path) -> Path:
    """A saved pipeline with 180 calibration docs. They have a key "source", with 80 docs of s0, 90
    of s1 and 10 of s2, which are too few for a test. They also have a key n, with another value in
    each doc."""
    examples = docs_of_words(guaranteed, 180)
    for i, eg in enumerate(examples):
        source = i % 2 if i < 160 else i % 2 + 1
        eg.reference.user_data |= {"source": f"s{source}", "n": i}
    guarantee(guaranteed, examples, miss=0.2)
    guaranteed.to_disk(tmp_path / "watched")
    return tmp_path / "watched"


def test_watch_finds_no_shift_in_texts_like_the_calibration_docs(
    watched: Path, tmp_path: Path
) -> None:
    """The first test is that of all docs: 60 texts against 180 calibration docs."""
    like = write_texts(tmp_path / "like.jsonl", KNOWN_WORDS)

    done = run("watch", watched, like, "--json")

    assert done.exit_code == 0
    result = json.loads(done.stdout)
    test_of_all = result["tests"][0]
    assert not result["alarm"]
    assert result["docs"] == 60
    assert test_of_all["calibration"] == 180
    assert test_of_all["martingale"] < 100  # from 100 on it is an alarm


def test_watch_alarms_of_other_texts_in_the_same_words_each_time(
    watched: Path, tmp_path: Path
) -> None:
    path = write_texts(tmp_path / "other.jsonl", NEW_WORDS)
    first = run("watch", watched, path)
    second = run("watch", watched, path)

    assert first.exit_code == 1
    assert first.stdout == second.stdout
    assert "Alarm: the model is less certain" in first.stdout
    assert "expected, optimistic" in first.stdout
    assert "PERSON" in first.stdout


def test_the_expected_scores_of_a_label_all_do_not_replace_the_overall_scores() -> None:
    scores_of_label = {"p": 0.25, "r": 0.5, "f": None}
    expected = {"ents_p": 0.75, "ents_r": 1.0, "ents_f": 0.86}
    text = expected_text({**expected, "ents_per_type": {"all": scores_of_label}}, "expected")
    rows = [line.split() for line in text.splitlines()]
    assert rows[1:] == [["all", "75.00", "100.00", "86.00"], ["all", "25.00", "50.00", "-"]]


def test_watch_reads_files_in_order_and_draws_them(watched: Path, tmp_path: Path) -> None:
    """The first 60 texts are like the calibration docs, and the alarm comes after them, within the
    next 40. A line that isn't a text counts as failed."""
    like = write_texts(tmp_path / "like.jsonl", KNOWN_WORDS)
    other = write_texts(tmp_path / "other.jsonl", NEW_WORDS)
    with other.open("a") as file:
        file.write('{"text": 3}\n')
    plot = tmp_path / "plot.svg"

    done = run("watch", watched, like, other, "--plot", plot, "--json")

    result = json.loads(done.stdout)
    assert plot.is_file()
    assert result["failed"] == 1
    assert 60 < result["tests"][0]["alarm"] < 100


def test_pipelines_keep_keys_of_calibration_docs_that_have_few_values(watched: Path) -> None:
    """n has another value in each doc, so `watch` refuses it as a key."""
    ner: Any = spacy.load(watched).get_pipe("ner")
    assert set(ner.calibration_scores.keys) == {"source"}


def test_watch_refuses_a_key_that_was_not_kept(watched: Path, tmp_path: Path) -> None:
    path = write_texts(tmp_path / "in.jsonl", KNOWN_WORDS)
    done = run("watch", watched, path, "--key", "n")
    assert done.exit_code == 1
    assert "of ['source'], got 'n'" in done.stderr


def test_watch_tests_each_source_against_its_own_calibration_docs(
    watched: Path, tmp_path: Path
) -> None:
    """There are two tests, which share the probability of a false alarm: each alarms at 200 in
    place of 100. s2 has too few docs for a test."""
    path = write_texts(tmp_path / "in.jsonl", KNOWN_WORDS, NEW_WORDS, KNOWN_WORDS)

    done = run("watch", watched, path, "--key", "source", "--json")

    result = json.loads(done.stdout)
    test_of_source = {test["value"]: test for test in result["tests"]}
    assert list(test_of_source) == ["s0", "s1"]
    assert result["untested"] == {"s2": 60}
    assert [test["level"] for test in test_of_source.values()] == [200, 200]
    assert [test["calibration"] for test in test_of_source.values()] == [80, 90]
    assert test_of_source["s0"]["alarm"] is None
    assert test_of_source["s1"]["alarm"]
    assert done.exit_code == 1


def test_watch_reads_sources_from_parquet(watched: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    jsonl = write_texts(tmp_path / "in.jsonl", KNOWN_WORDS, NEW_WORDS)
    rows = [json.loads(line) for line in jsonl.read_text().splitlines()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "in.parquet")

    of_jsonl = run("watch", watched, jsonl, "--key", "source", "--json")
    of_parquet = run("watch", watched, tmp_path / "in.parquet", "--key", "source", "--json")

    assert json.loads(of_jsonl.stdout)["docs"] == 120
    assert of_parquet.stdout == of_jsonl.stdout


def predict_with_sources(nlp: Language, n: int) -> list[Doc]:
    """Docs with predicted entities, whose sources are s0 and s1 by turns."""
    docs = [copy_without_annotation(eg.reference) for eg in docs_of_words(nlp, n, seed=4)]
    for i, doc in enumerate(docs):
        doc.user_data["source"] = f"s{i % 2}"
    return list(nlp.pipe(docs))


def test_watch_tests_docs_in_random_order_unless_told(watched: Path) -> None:
    nlp = spacy.load(watched)
    ner: Any = nlp.get_pipe("ner")
    docs = predict_with_sources(nlp, 40)
    scores = ner.shift(docs).scores

    shuffled = watch(ner, docs, seed=3).shift.scores
    in_order = watch(ner, docs, in_order=True).shift.scores

    assert shuffled.tolist() == shift.in_random_order(scores, 3).tolist() != scores.tolist()
    assert in_order.tolist() == scores.tolist()


def test_watch_by_key_tests_docs_against_calibration_docs_with_their_value(watched: Path) -> None:
    """The sources are s0 and s1 by turns. As there are two tests, each of them alarms only at twice
    the level, so that both together raise a false alarm as seldom as one test."""
    nlp = spacy.load(watched)
    ner: Any = nlp.get_pipe("ner")
    docs = predict_with_sources(nlp, 40)
    scores = ner.shift(docs).scores

    tests = watch(ner, docs, key="source", seed=3).tests

    for i, test in enumerate(tests):
        calibration = ner.calibration_scores.pool("source", f"s{i}")
        shuffled = shift.in_random_order(scores[i::2], 3)
        level = 2 * shift.ALARM
        expected = shift.find_shift(calibration, shuffled, seed=3, level=level).summary
        expected |= {"value": f"s{i}", "calibration": len(calibration["scores"])}
        assert test.as_dict() == expected
    assert len(tests) == 2


def test_annotate_tests_for_a_shift(watched: Path, tmp_path: Path) -> None:
    """The result is that of the component. It is the same in one process, in two, and in a second
    run that keeps all parts: 120 texts in parts of 25 are 5 parts."""
    path = write_texts(tmp_path / "in.jsonl", NEW_WORDS, KNOWN_WORDS)
    of_one_process = annotate(watched, [path], tmp_path / "one", n_rows=25)
    of_two = annotate(watched, [path], tmp_path / "two", n_rows=25, jobs=2)
    second_run = annotate(watched, [path], tmp_path / "two", n_rows=25)
    texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    nlp = spacy.load(watched)
    expected = nlp.get_pipe("ner").shift(nlp.pipe(texts))
    counts = {label: approx(row, rel=1e-4) for label, row in expected.counts.items()}

    assert second_run.parts == PartCounts(kept=5, changed=0, new=0)
    assert of_one_process.shift["ner"].alarm
    for summary in (of_one_process, of_two, second_run):
        result = summary.shift["ner"]
        assert result.p_values.tolist() == of_one_process.shift["ner"].p_values.tolist()
        assert sorted(result.scores) == sorted(expected.scores)
        assert result.counts == counts


def test_annotate_says_where_it_alarms(watched: Path, tmp_path: Path) -> None:
    path = write_texts(tmp_path / "in.jsonl", NEW_WORDS, KNOWN_WORDS)
    arguments = ["annotate", watched, path, "-o", tmp_path / "out", "--part", "25"]
    alarm = json.loads(run(*arguments, "--json").stdout)["shift"]["ner"]["alarm"]
    output = run(*arguments).stdout
    assert alarm
    assert f"ner: alarm at doc {alarm} of 120 (martingale up to" in output
