"""`init` and `fit` in the languages that spaCy has."""

import json
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

import pytest
import spacy.lang
from thinc.api import Config

from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.fitting.fitting import fit

from ...support.commands import run

LANGUAGES = [module.name for module in iter_modules(spacy.lang.__path__) if module.ispkg]

NO_TRANSFORMER = ("it", "ja", "lt")
"""Languages for which spaCy recommends no transformer."""

SENTENCES = {
    "it": ("Anna vive a Roma", "Paolo vive a Milano"),
    "lt": ("Jonas gyvena Vilniuje", "Rasa gyvena Kaune"),
    "de": ("Anna wohnt in Bonn", "Paul wohnt in Köln"),
    "el": ("Μαρία ζει στην Αθήνα", "Νίκος ζει στην Πάτρα"),
    "hi": ("सीता दिल्ली में रहती है", "राम मुंबई में रहता है"),
}
"""Two sentences of each language. The first word is a name."""


def save_sentences(path: Path, lang: str) -> None:
    """Save twenty sentences of a language, in which the names of people are entities."""
    lines: list[str] = []
    for i in range(20):
        text = SENTENCES[lang][i % 2] + f" {i}."
        span = {"start": 0, "end": text.index(" "), "label": "PERSON"}
        lines.append(json.dumps({"text": text, "spans": [span]}))
    path.write_text("\n".join(lines), encoding="utf8")


@pytest.mark.parametrize("model", ["linear", "transformer"])
@pytest.mark.parametrize("lang", NO_TRANSFORMER)
def test_init_writes_a_config_where_spacy_recommends_no_transformer(lang: str, model: str) -> None:
    config = Config().from_str(init(lang=lang, model=model))  # type: ignore[arg-type]
    assert config["nlp"]["lang"] == lang
    if model == "transformer":
        # It is the one for languages that spaCy's table doesn't have: a multilingual one.
        assert "multilingual" in config["components"]["transformer"]["model"]["name"]


@pytest.mark.slow  # all languages are imported
@pytest.mark.parametrize("model", ["linear", "transformer"])
def test_init_writes_a_config_for_each_language(model: str) -> None:
    assert len(LANGUAGES) > 70
    for lang in LANGUAGES:
        config = Config().from_str(init(lang=lang, model=model))  # type: ignore[arg-type]
        assert config["nlp"]["lang"] == lang


@pytest.mark.parametrize(
    "lang", ["it", *(pytest.param(lang, marks=pytest.mark.slow) for lang in [*SENTENCES][1:])]
)
def test_fit_trains_sentences_of_a_language(lang: str, tmp_path: Path) -> None:
    save_sentences(tmp_path / "train.jsonl", lang)
    fitted = fit(None, tmp_path / "out", lang=lang, train_path=tmp_path / "train.jsonl")
    assert fitted.nlp.lang == lang
    doc = fitted.nlp(SENTENCES[lang][0] + " 7.")
    assert [ent.label_ for ent in doc.ents] == ["PERSON"]


@pytest.mark.parametrize(("lang", "library"), [("ko", "natto"), ("vi", "pyvi")])
def test_a_language_whose_library_is_missing_names_it(
    lang: str, library: str, tmp_path: Path
) -> None:
    if find_spec(library):
        pytest.skip(f"{library} is installed")
    save_sentences(tmp_path / "train.jsonl", "it")
    train = tmp_path / "train.jsonl"
    refused = run("fit", "--lang", lang, "--train", train, "--output", tmp_path / "out")
    assert refused.exit_code == 1
    assert library in refused.output.lower()
    assert not (tmp_path / "out").exists()
