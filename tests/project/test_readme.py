"""What README and changelog say is so."""

import random
import re
import shlex
from inspect import signature
from pathlib import Path

import pytest
import srsly
from packaging.version import Version
from spacy.schemas import ConfigSchemaInit
from spacy.util import load_config, load_model_from_config, registry
from thinc.api import Config

from spacy_costner import __version__
from spacy_costner.cli.plots import require_matplotlib
from spacy_costner.features import Template
from spacy_costner.features.template import FEATURE_KINDS
from spacy_costner.features.words import TEXT_FLAGS
from spacy_costner.ml import build_sparse_crf
from spacy_costner.workflows.config.loss_blocks import make_loss
from spacy_costner.workflows.fitting.variants import change_config

from ..support.commands import run_spacy
from ..support.config import declared, fragment
from ..support.pages import BLOCK, PAGES, read_blocks, run_commands

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    """The text of a file, by its path in the repository."""
    return (ROOT / name).read_text(encoding="utf8")


def table(heading: str, page: str = "README.md") -> set[str]:
    """The names in the first column of the tables below a heading."""
    section = read(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([\w./]+)`", section, flags=re.MULTILINE))


def test_tables_have_every_registered_name() -> None:
    misc = declared("spacy_misc")
    costs = [name for name in misc if name.endswith("Cost.v1")]
    decodings = {name for name in misc if name.endswith("Decoding.v1")}
    listed = table("All losses and costs", "docs/losses.md")
    assert listed == {*declared("thinc_losses"), *costs}
    assert {*re.findall(r"^\| `([\w./]+)`", read("docs/decoding.md"), re.MULTILINE)} == decodings
    assert table("Models", "docs/linear.md") == {*declared("spacy_architectures")}
    configs = table("The configs of the package", "docs/init.md")
    assert configs == {str(path.relative_to(ROOT)) for path in ROOT.glob("configs/*.cfg")}


def test_block_to_paste_is_the_softmax_margin() -> None:
    """The first INI block of README is a component. In cnn.cfg, it gives the same config as that of
    the package with `SoftmaxMargin`. The block leaves out settings that have a default, so configs
    are equal only after they are filled."""
    ini = re.search(r"```ini\n(.*?)```", read("README.md"), flags=re.DOTALL)
    assert ini is not None
    loss = {"ner": {"loss": make_loss(["SoftmaxMargin"])}}
    expected = change_config(load_config(ROOT / "configs" / "cnn.cfg"), {"components": loss})
    block = Config().from_str(f"[components]\n{ini[1]}", interpolate=False)
    pasted = expected.copy()
    pasted["components"]["ner"] = block["components"]["ner"]
    assert pasted != expected
    filled = load_model_from_config(pasted, auto_fill=True).config
    # Only pipelines of 0.3.0 have this setting: configs that we ship leave it out.
    assert filled["components"]["ner"]["confidence"].pop("second_choice") is None
    assert filled["components"] == expected["components"]


OF_OTHER_TESTS = {
    "linear": "features",
    "maintaining": "source",
    "pretrained": "",
    "transformers": "",
}
"""Blocks that need other components or files: by the name of a page, a word that these blocks have.
All blocks have the empty word."""


def blocks_to_paste() -> list[str]:
    """The parts of configs on the pages of the docs, but those of other tests."""
    blocks = []
    for page in PAGES[1:]:  # without README, which is the first
        word = OF_OTHER_TESTS.get(page.stem)
        for block in read_blocks(page):
            is_of_other_test = word is not None and word in block.code
            if block.language == "ini" and not is_of_other_test:
                blocks.append(block.code)
    return blocks


@pytest.mark.parametrize("block", blocks_to_paste(), ids=lambda block: block.splitlines()[-1])
def test_blocks_of_the_docs_build(block: str) -> None:
    """A block is a part of a config. The other parts are those of a config that is shipped."""
    name = "sparse" if ".features]" in block else "cnn"
    loss = {"ner": {"loss": make_loss(["SoftmaxMargin"])}}
    base = change_config(load_config(ROOT / "configs" / f"{name}.cfg"), {"components": loss})
    blocks = fragment(block)
    nlp = load_model_from_config(change_config(base, blocks), auto_fill=True)
    registry.resolve(nlp.config["initialize"], schema=ConfigSchemaInit)


def test_features_are_explained() -> None:
    """docs/linear.md names all settings of features, all kinds of features and all flags. Its first
    INI block is a block of features that can be built."""
    explained = set(re.findall(r"`([\w.]+)`", read("docs/linear.md")))
    settings = {*signature(Template).parameters, *signature(build_sparse_crf).parameters}
    # `features` is the block itself, and the number of tags `nO` is set by the component.
    assert {*settings - {"features", "nO"}, *FEATURE_KINDS, *TEXT_FLAGS} <= explained
    ini = re.search(r"```ini\n(.*?)```", read("docs/linear.md"), flags=re.DOTALL)
    assert ini is not None
    head = "[components]\n\n[components.ner]\n\n[components.ner.model]\n\n"
    features = Config().from_str(head + ini[1])["components"]["ner"]["model"]["features"]
    assert registry.resolve({"features": features})["features"].make_columns()


@pytest.mark.parametrize("name", ["README.md", "docs/linear.md", "project.yml"])
def test_configs_that_are_spoken_of_are_there(name: str) -> None:
    paths = set(re.findall(r"\bconfigs/[\w/]+\.\w+", read(name)))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_project_says_how_to_install() -> None:
    """In a clone, Python imports its folder and not a wheel."""
    description = srsly.yaml_loads(read("project.yml"))["description"]
    assert "`make install`" in description
    assert "wheel" in description


def anchors(name: str) -> set[str]:
    """What a link to a heading of a page may say behind its #."""
    headings = re.findall(r"^#+ (.*)$", read(name), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    text = re.sub(r"^```.*?^```", "", read(name), flags=re.MULTILINE | re.DOTALL)
    # Links to other sites have a colon, and are left out.
    for link in re.findall(r"\]\(([^):]+)\)", text):
        path, _, heading = link.partition("#")
        target = (ROOT / name).parent.joinpath(path) if path else ROOT / name
        assert target.exists(), link
        assert not heading or heading in anchors(str(target.resolve().relative_to(ROOT))), link


def test_changelog_and_citation_are_of_the_version() -> None:
    """Citation and changelog name the last release. Between releases, `__version__` is a later one
    with ".dev0", and what has changed since is under `[Unreleased]`."""
    newest, *older = re.findall(r"^## (.*)", read("CHANGELOG.md"), flags=re.MULTILINE)
    citation = srsly.yaml_loads(read("CITATION.cff"))
    if Version(__version__).is_devrelease:
        assert newest == "[Unreleased]"
        newest = older[0]
        assert Version(__version__) > Version(citation["version"])
    else:
        assert __version__ == citation["version"]
    assert newest == f"[{citation['version']}] - {citation['date-released']}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/develop.md"])
def test_make_knows_the_words(name: str) -> None:
    targets = re.findall(r"^([a-z]+):", read("Makefile"), flags=re.MULTILINE)
    words = re.findall(r"(?:`|^)make ([a-z]+)", read(name), flags=re.MULTILINE)
    assert words and set(words) <= set(targets)


def test_hooks_are_the_linters_of_make_check() -> None:
    recipe = re.search(r"^check: install\n((?:\t.*\n)+)", read("Makefile"), flags=re.MULTILINE)
    assert recipe is not None
    # A line is such as "\t$(BIN)/ruff check $(SOURCES)": its command is "ruff check".
    calls = [line.split("/")[1] for line in recipe[1].splitlines()]
    commands = [call.replace(" $(SOURCES)", "") for call in calls]
    (repo,) = srsly.yaml_loads(read(".pre-commit-config.yaml"))["repos"]
    assert [hook["entry"] for hook in repo["hooks"]] == commands


# The commands at its top, run one after another on a raw corpus

NAMES = ["Oslo", "Lima", "Rome", "Cairo", "Quito", "Paris", "Delhi", "Tunis"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # `spacy package` leaves some
def test_commands_lead_from_raw_data_to_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From columns in IOB1, with lines of whitespace between sentences. In IOB1, an entity begins
    with B- only if it directly follows another one of the same label. Commands of spaCy run in this
    process, as it takes them longer to start than to run; `make docs-test` starts them."""
    require_matplotlib()
    monkeypatch.chdir(tmp_path)
    for name, n_sents in (("train", 300), ("dev", 100), ("test", 100)):
        random.seed(n_sents)
        pairs = [random.sample(NAMES, 2) for _ in range(n_sents)]
        text = "From X O\n{} X I-LOC\n{} X B-LOC\nis X O\nseen X O\n \n"
        Path(f"{name}.conll").write_text("".join(text.format(*pair) for pair in pairs))

    section = read("README.md").split("\n## From your data to a pipeline\n")[1]
    section = section.split("\n## ")[0]
    lines = "".join(code for _, _, code in BLOCK.findall(section)).splitlines()
    shown = ""
    for line in lines:
        program, *words = shlex.split(line)
        if program == "python":
            assert words[:2] == ["-m", "spacy"]
            result = run_spacy(*words[2:])
            assert result.exit_code == 0, f"{line}\n{result.output}"
            shown += result.stdout
        elif program != "pip":
            run_commands(line, "README.md")

    assert "3 columns, separated by blanks, IOB1 tags" in shown
    assert re.search(r"NER F +(9\d|100)\.", shown)
    assert re.search(r"dev: F (9\d|100)\.", shown)
    assert re.search(r"threshold \S+: P \S+ -> \S+, R \S+ -> \S+, F \S+ -> \S+\n", shown)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert len(list(tmp_path.glob("packages/*/dist/*.tar.gz"))) == 1
