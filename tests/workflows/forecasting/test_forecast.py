"""`forecast`: parts of a corpus, what their models get right, and what the command prints."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import pytest
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.annotation.equal_texts import number_texts
from spacy_costner.cli.forecast import as_round, forecast_text, needed_text
from spacy_costner.cli.plots import draw_forecast
from spacy_costner.readers import KeptDocs
from spacy_costner.workflows.fitting.fit_corpora import ignore_corpus
from spacy_costner.workflows.fitting.folds import FoldTraining
from spacy_costner.workflows.fitting.linear_training import load_linear
from spacy_costner.workflows.forecasting.curve_forecast import (
    MIN_ENTITIES,
    MIN_TEXTS,
    Needed,
    forecast_curve,
    next_aims,
)
from spacy_costner.workflows.forecasting.forecasting import forecast, read_examples
from spacy_costner.workflows.forecasting.learning_curve import (
    SHARES,
    LearningCurve,
    divide,
    measure_curve,
)

from ...support.commands import run
from ...support.vocabs import blank_vocab

VOCAB = blank_vocab()
SPARSE = Path(__file__).parents[3] / "configs" / "sparse.cfg"
FEW_EPOCHS = {"nlp.lang": "xx", "training.max_epochs": 2}
NAMES = ["Ana", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal", "Ida", "Jo"]
CITIES = ["Oslo", "Lima", "Rome", "Quito", "Tunis"]


def make_docs(n: int, label_of_name: str = "PER", label_of_city: str = "LOC") -> list[Doc]:
    """Docs such as "Ana1 saw Oslo 17 times", with two entities each."""
    docs: list[Doc] = []
    for i in range(n):
        words = [f"{NAMES[i % 10]}{i % 7}", "saw", CITIES[i % 5], str(i), "times"]
        ents = [f"B-{label_of_name}", "O", f"B-{label_of_city}", "O", "O"]
        docs.append(Doc(VOCAB, words=words, ents=ents))
    return docs


def save(docs: list[Doc], path: Path) -> Path:
    """Save docs as a corpus. Returns its path."""
    DocBin(docs=docs).to_disk(path)
    return path


def make_config(path: Path | None = None) -> Config:
    """A config of a linear model with few epochs, for a corpus."""
    overrides = {**FEW_EPOCHS, "paths.train": None if path is None else str(path)}
    return load_config(SPARSE, overrides=overrides, interpolate=False)


def curve_of(n_docs: int, n_entities: int, f: float = 0.6, label: str = "PER") -> LearningCurve:
    """A learning curve of docs that all have as many entities, of one label, with this F at the
    last point."""
    n_texts = 0.8 * n_docs * numpy.asarray(SHARES)
    counts = numpy.zeros((len(SHARES), n_docs, 2, 3))
    f_of_part = f * numpy.asarray([0.7, 0.8, 0.9, 1.0])
    counts[:, :, 0, 0] = n_entities / n_docs * f_of_part[:, None]
    counts[:, :, 0, 1:] = n_entities / n_docs * (1 - f_of_part)[:, None, None]
    return LearningCurve(n_texts, [label], counts)


def test_parts_grow_and_each_text_is_in_equally_many_parts_of_a_size() -> None:
    folds, n_texts = divide(numpy.arange(40), n_folds=5, seed=0)

    assert n_texts.tolist() == [4, 8, 16, 32]
    assert (numpy.sum([fold.is_held_out for fold in folds], axis=0) == 1).all()
    for fold in folds:
        assert not (fold.parts[-1] & fold.is_held_out).any()
        for part, larger in zip(fold.parts, fold.parts[1:]):
            assert (part <= larger).all()
    for i, times in enumerate([0.5, 1, 2, 4]):
        n_parts = numpy.sum([fold.parts[i] for fold in folds], axis=0)
        assert n_parts.mean() == times and n_parts.max() - n_parts.min() <= 1


def test_copies_are_on_one_side_and_count_once() -> None:
    """Each text is in the corpus twice."""
    folds, n_texts = divide(numpy.tile(numpy.arange(40), 2), n_folds=5, seed=0)

    assert n_texts.tolist() == [4, 8, 16, 32]
    for fold in folds:
        for mask in [fold.is_held_out, *fold.parts]:
            assert mask[:40].tolist() == mask[40:].tolist()


def test_the_seed_orders_the_texts() -> None:
    """So a corpus in the order of difficulty has folds and parts of all difficulties."""
    same = [divide(numpy.arange(40), n_folds=5, seed=3)[0] for _ in range(2)]
    (other, _) = divide(numpy.arange(40), n_folds=5, seed=4)

    for fold, again, another in zip(*same, other):
        assert fold.is_held_out.tolist() == again.is_held_out.tolist()
        assert fold.is_held_out.tolist() != another.is_held_out.tolist()
        held_out = numpy.flatnonzero(fold.is_held_out)
        assert held_out.max() - held_out.min() > 8


def test_few_texts_have_fewer_parts() -> None:
    folds, n_texts = divide(numpy.arange(3), n_folds=3, seed=0)

    assert n_texts.tolist() == [1, 2]
    assert [len(fold.parts) for fold in folds] == [2, 2, 2]
    with pytest.raises(ValueError, match="expected at most the number of different texts, got 5"):
        divide(numpy.arange(3), n_folds=5, seed=0)


def test_counts_are_those_of_spacy() -> None:
    """Of the models of the smallest parts, for each text and label. Some names have another label
    than the model can know, so that there are false alarms and misses."""
    docs = [*make_docs(3), *make_docs(6, "ORG")[3:]]
    docs += docs[:2]  # copies
    examples = [Example(Doc(VOCAB, words=[t.text for t in doc]), doc) for doc in docs]
    training = FoldTraining(
        make_config(),
        ["PER", "LOC", "ORG"],
        n_seeds=1,
        is_small=True,
        keeps_starts=False,
        prepare_component=None,
    )

    curve = measure_curve(training, examples, n_folds=2, seed=0)

    n_wrong = n_missed = 0
    text_of_doc = number_texts(docs)
    folds, _ = divide(text_of_doc, n_folds=2, seed=0)
    for fold in folds:
        nlp = training.train(eg for eg, in_part in zip(examples, fold.parts[0]) if in_part).nlp
        for i in numpy.flatnonzero(fold.is_held_out):
            predicted = nlp(Doc(nlp.vocab, words=[t.text for t in docs[i]]))
            by_label = get_ner_prf([Example(predicted, docs[i])])["ents_per_type"]
            for label, scores in by_label.items():
                tp, fp, fn = curve.of_label(label)[0, text_of_doc[i]]
                assert tp + fn == sum(ent.label_ == label for ent in docs[i].ents)
                assert scores["p"] == tp / max(tp + fp, 1)
                assert scores["r"] == tp / max(tp + fn, 1)
                n_wrong += fp
                n_missed += fn
    assert n_wrong > 0 and n_missed > 0
    # Each of the 6 texts has two entities. Copies count once.
    assert curve.of_all_labels()[-1, :, [0, 2]].sum() == 2 * 6


def test_misaligned_entities_count_as_missed(tmp_path: Path) -> None:
    """The cities are parts of tokens such as "Oslo-17"."""
    docs: list[Doc] = []
    for doc in make_docs(10):
        words = [*[token.text for token in doc[:3]], f"-{doc[3].text}", "times"]
        ents = ["B-PER", "O", "B-LOC", "O", "O"]
        spaces = [True, True, False, True, True]
        docs.append(Doc(VOCAB, words=words, spaces=spaces, ents=ents))
    config = make_config(save(docs, tmp_path / "train.spacy"))

    result = forecast(config, n_folds=2)

    assert result.entities == 20
    (locations,) = (row for row in result.labels if row.label == "LOC")
    assert locations.entities == 10
    assert [point.recall for point in locations.measured] == [0] * len(locations.measured)
    assert any("10 of 20 entities don't begin and end with" in note for note in result.notes)


def test_spans_that_training_drops_count_as_missed(tmp_path: Path) -> None:
    """Each city is in a longer TRIP."""
    docs = make_docs(10)
    for doc in docs:
        doc.spans["sc"] = [*doc.ents, Span(doc, 2, 4, "TRIP")]
    config = make_config(save(docs, tmp_path / "train.spacy"))
    config["components"]["ner"].update(spans_key="sc", filter_spans=True)
    config["initialize"]["components"] = {"ner": {"labels": ["PER", "LOC", "TRIP"]}}

    result = forecast(config, n_folds=2)

    assert result.entities == 30
    (locations,) = (row for row in result.labels if row.label == "LOC")
    assert locations.entities == 10
    assert [point.recall for point in locations.measured] == [0] * len(locations.measured)


def test_too_small_a_corpus_has_only_its_curve() -> None:
    few_docs = forecast_curve(curve_of(MIN_TEXTS - 1, 10 * MIN_ENTITIES))
    few_entities = forecast_curve(curve_of(MIN_TEXTS, MIN_ENTITIES - 10))

    for result in (few_docs, few_entities):
        assert result.overall.expected == result.needed == result.curve == []
        assert [point.f for point in result.overall.measured] == pytest.approx(
            [0.42, 0.48, 0.54, 0.6]
        )
        assert f"no forecast: {result.overall.refusal}" in forecast_text(result)
    assert f"{MIN_TEXTS - 1:,} docs" in few_docs.overall.refusal
    assert f"{MIN_ENTITIES - 10:,} entities" in few_entities.overall.refusal


def test_a_forecast_begins_with_the_docs_that_there_are() -> None:
    result = forecast_curve(curve_of(400, 1200), aims=[0.3, 0.65, 0.99])

    assert [expected.docs for expected in result.overall.expected] == [400, 800, 1600]
    f_scores = [expected.f for expected in result.overall.expected]
    assert 0.6 < f_scores[0].value < f_scores[1].value < f_scores[2].value
    reached, about, never = result.needed
    assert reached == (0.3, 0, 0, 0)
    assert about.low is not None and about.more is not None and about.low < about.more
    assert never.more is None
    assert "unchecked" not in forecast_text(result)
    assert "unchecked" in forecast_text(result._replace(needed=[Needed(0.8, 1201, 600, None)]))
    assert result.curve[0].docs == pytest.approx(40)
    assert result.curve[-1].docs == pytest.approx(1600)


def test_the_curve_is_dashed_where_it_is_a_forecast() -> None:
    result = forecast_curve(curve_of(400, 1200))

    (axes,) = draw_forecast(result).axes
    fitted, dashed, measured = axes.lines
    assert measured.get_ydata() == pytest.approx([42, 48, 54, 60])
    assert fitted.get_xydata()[-1].tolist() == dashed.get_xydata()[0].tolist()
    assert fitted.get_linestyle() == "-" and dashed.get_linestyle() == "--"
    assert fitted.get_xdata()[-2] < 320 <= dashed.get_xdata()[0]
    assert dashed.get_xdata()[-1] == pytest.approx(1600)


def test_one_label_is_the_same_as_all() -> None:
    overall, label = forecast_curve(curve_of(400, 1200)).labels

    assert overall._replace(label="PER") == label


def test_aims_are_the_next_multiples_of_5_points() -> None:
    assert next_aims(0.62) == [0.65, 0.7]
    assert next_aims(0.91) == [0.95]
    assert next_aims(0.97) == []


def test_the_number_of_docs_is_a_sentence() -> None:
    assert needed_text(Needed(0.8, 921, 604, 1688)) == "F 80: about 920 more docs, 600 to 1,700"
    assert needed_text(Needed(0.8, 921, 604, None)) == "F 80: about 920 more docs, at least 600"
    assert needed_text(Needed(0.8, 90, 0, None)) == "F 80: about 90 more docs, very uncertain"
    assert "doesn't reach it, at least 600" in needed_text(Needed(0.8, None, 604, None))
    assert needed_text(Needed(0.825, None, None, None)) == "F 82.5: the curve says it won't come"
    assert needed_text(Needed(0.5, 0, 0, 0)) == "F 50: no more docs than there are"
    assert [as_round(n) for n in (7, 99, 104, 1688)] == ["7", "99", "100", "1,700"]


def printed(*arguments: Any) -> dict[str, Any]:
    """What the command prints as JSON."""
    result = run("forecast", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_command(tmp_path: Path) -> None:
    """Docs without annotation are left out, as the reader leaves out empty docs. Copies count once.
    The same seed gives the same figures, and the function the same result as the command."""
    docs = make_docs(4)
    docs += [docs[0], Doc(VOCAB), Doc(VOCAB, words=["not", "annotated"])]
    path = save(docs, tmp_path / "train.spacy")
    settings = ["--nlp.lang", "xx", "--training.max_epochs", 2]
    plot = tmp_path / "curve.svg"

    first = printed(SPARSE, "--train", path, "--folds", 2, "--plot", plot, *settings)
    again = forecast(make_config(path), n_folds=2)

    assert first["docs"] == 4 and first["entities"] == 8
    assert first["labels"][0]["measured"] == [point._asdict() for point in again.overall.measured]
    assert first["notes"] == [
        "docs without tokens or annotation, which were left out: 1",
        "docs whose text another doc has, which count once: 1",
    ]
    assert {label["label"] for label in first["labels"]} == {"all", "PER", "LOC"}
    colours = plot.read_text()
    assert "light-dark(#2467a6, #6fb1ea)" in colours and "var(--accent)" in colours
    assert ElementTree.fromstring(colours).tag == "{http://www.w3.org/2000/svg}svg"
    assert path.parent.joinpath("train.spacy").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["curve.svg", "train.spacy"]


def test_neighbours_that_share_entities_are_noted(tmp_path: Path) -> None:
    """Copies of a text are no neighbours."""
    docs: list[Doc] = []
    for i in range(40):
        words = [f"Ana{i // 2}", "saw", str(i)]
        docs.append(Doc(VOCAB, words=words, ents=["B-PER", "O", "O"]))

    def read_notes(docs: list[Doc]) -> list[str]:
        """The notes about a corpus."""
        linear = load_linear(make_config(save(docs, tmp_path / "train.spacy")))
        return read_examples(linear, KeptDocs(), ignore_corpus)[1]

    assert read_notes(docs) == [
        "neighbouring docs share entities 20 times, distant docs 0 times: if they are parts of "
        "the same texts, such as sentences, then F is too high. Make each text a doc"
    ]
    twice = [copy for doc in docs[::2] for copy in (doc, doc)]
    assert read_notes(twice) == ["docs whose text another doc has, which count once: 20"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--f", "80"], "--f: expected a number between 0 and 1, got 80.0"),
        (["--confidence", "1"], "--confidence: expected a number between 0 and 1, got 1.0"),
        ([], "labels: expected at least one"),
    ],
)
def test_what_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = save([Doc(VOCAB, words=["no", "entity"], ents=["O", "O"])], tmp_path / "train.spacy")

    result = run("forecast", SPARSE, "--train", path, "--nlp.lang", "xx", *arguments)

    assert result.exit_code == 1
    assert message in result.output


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    without_corpus = run("forecast")
    with_config = run("forecast", SPARSE, "--lang", "es")

    assert without_corpus.output == "--train: expected a corpus if there is no config, got none\n"
    assert with_config.output == "--lang: expected no config with it\n"


def test_a_corpus_without_entities_is_refused(tmp_path: Path) -> None:
    """Also if the config has labels."""
    path = save([Doc(VOCAB, words=["no", "entity"], ents=["O", "O"])], tmp_path / "train.spacy")
    config = make_config(path)
    config["initialize"]["components"] = {"ner": {"labels": ["PER"]}}

    with pytest.raises(ValueError, match="expected docs with annotated entities, got none"):
        forecast(config)


def test_a_model_to_start_from_is_refused(tmp_path: Path) -> None:
    """It may have seen the docs that are held out."""
    config = make_config(save(make_docs(5), tmp_path / "train.spacy"))
    callback = {"@callbacks": "spacy_costner.start_from.v1", "path": "model-best"}
    config["initialize"]["after_init"] = callback

    with pytest.raises(ValueError, match="after_init: expected null"):
        forecast(config)
