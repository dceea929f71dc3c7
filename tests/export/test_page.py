"""Pipelines as pages and as modules for JavaScript: `costner page`."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import spacy
from spacy.displacy.render import DEFAULT_LABEL_COLORS
from spacy.language import Language

from spacy_costner.cli.page import ner_page, save_module
from spacy_costner.export.bundling import MODULES, bundle, module_names
from spacy_costner.export.model import make_web_model
from spacy_costner.pages.label_colours import label_colours
from spacy_costner.pages.rendering import source_hash
from spacy_costner.pipeline.promises import Thresholds
from spacy_costner.readers import read_tasks

from ..support.annotation import NAMES, TOWNS, make_texts
from ..support.browser import Browser, needs_chromium
from ..support.commands import run
from ..support.markup import HOSTILE, RUN
from ..support.node import NODE, Node, needs_node, node
from ..support.pipelines import pipeline, promise_of
from ..support.web_models import TEXTS as WEB_TEXTS
from ..support.web_models import TWO_PASSES, check_same_entities, make_pipeline, predict_in_python

TEXT = "Yesterday Ana left Rome with bag 7 ."
CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1"}
LABELS = {**dict.fromkeys(NAMES, "PER"), **dict.fromkeys(TOWNS, "LOC")}
JAVASCRIPT_TESTS = Path(__file__).parents[1] / "javascript"
TEXT_TOOLS = 'import * as tools from "${MODULES}/page_texts.js";\n'


def fit_on(folder: Path, texts: list[str], labels: dict[str, str], **settings: Any) -> Language:
    """Fit a pipeline to texts in which each of some words is an entity, and load it with settings
    of the component."""
    lines = []
    for text in texts:
        found = [match for match in re.finditer(r"\S+", text) if match[0] in labels]
        spans = [[match.start(), match.end(), labels[match[0]]] for match in found]
        lines.append(json.dumps({"text": text, "spans": spans}))
    corpus = folder / "corpus.jsonl"
    corpus.write_text("\n".join(lines), encoding="utf8")
    output = folder / "fitted"
    result = run("fit", "--train", corpus, "--dev", corpus, "-o", output, "--lang", "xx")
    assert result.exit_code == 0, result.output
    return spacy.load(output / "model-best", config={"components": {"ner": settings}})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that knows people and towns, with a guarantee."""
    folder = tmp_path_factory.mktemp("page")
    nlp = fit_on(folder, make_texts(64), LABELS, confidence=CONFIDENCE)
    nlp.meta["name"] = "people"
    ner: Any = nlp.get_pipe("ner")
    ner.set_guarantee(promise_of({"": Thresholds(0.01, {})}, miss=0.05))
    nlp.to_disk(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def page(fitted: Path) -> Path:
    """The page of the pipeline, with two examples."""
    path = fitted.parent / "ner.html"
    result = run("page", fitted, "-o", path, "-t", TEXT, "-t", "Bo is in Lima .")
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def tools() -> Iterator[Node]:
    """Answers with what a function of page_texts.js returns for arguments, or with the message of
    its error."""
    script = TEXT_TOOLS + (
        "function answer([name, ...args]) {"
        " try { return tools[name](...args); } catch (error) { return error.message; } }"
    )
    with node(script) as process:
        yield process


def test_the_page_is_one_file_with_a_policy(page: Path) -> None:
    """The policy lets the browser load nothing, and run only the script and the style that are in
    the page: it has their hashes."""
    html = page.read_text(encoding="utf8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    style = re.findall(r"<style>(.*?)</style>", html, flags=re.DOTALL)
    scripts = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    assert [len(style), len(scripts)] == [1, 1]
    assert policy == (
        f"default-src 'none'; style-src '{source_hash(style[0])}'; "
        f"script-src '{source_hash(scripts[0])}'; worker-src blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not re.findall(r"""(?:src|href)=["']?(?:http|//)""", html)
    # No word in full: the model file is compressed.
    assert "Quito" not in html


@pytest.mark.parametrize(("threshold", "start"), [(0.0, "0.0"), (0.3, "0.3"), (None, "0.5")])
def test_the_slider_starts_at_the_threshold(
    fitted: Path, threshold: float | None, start: str
) -> None:
    web_model = make_web_model(spacy.load(fitted))
    web_model.info["threshold"] = threshold
    page = ner_page(web_model, None, texts=[])
    assert f'id="threshold" min="0.01" max="0.99" step="0.01" value="{start}"' in page


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("Threshold", {"threshold": 0.7}, "a threshold of 0.7"),
        (
            "Threshold",
            {"threshold": 0.7, "labels": {"city": 0.2, "person": 0.9}},
            "a threshold of 0.7 (0.2 for city, 0.9 for person)",
        ),
        ("Viterbi", {}, "the best path"),
        ("Viterbi", {"bias": -0.5}, "the best path, with a bias of -0.5"),
        ("Viterbi", {"labels": {"city": 2.0}}, "the best path, with a bias of 0 (2 for city)"),
    ],
)
def test_the_page_says_how_entities_are_selected(
    name: str, settings: dict[str, Any], expected: str
) -> None:
    """Labels may have thresholds or biases of their own."""
    decoding = {"@misc": f"spacy_costner.{name}Decoding.v1", **settings}
    web_model = make_web_model(make_pipeline(decoding=decoding))
    text = re.sub(r"\s+", " ", ner_page(web_model, None, []))
    assert f"As predicted by the pipeline: {expected}</label>" in text


def test_the_command_says_what_is_published(fitted: Path, tmp_path: Path) -> None:
    result = run("page", fitted, "-o", tmp_path / "ner.html")
    assert re.search(r"ner.html: \d+ kB, \d+ kB gzipped", result.output)
    assert re.search(r"publishes \d+ words of the training texts, and hashes of \d+", result.output)
    assert "They may include names of people." in result.output
    assert "--no-memory leaves out" in result.output

    less = run("page", fitted, "-o", tmp_path / "less.html", "--no-memory")
    assert less.exit_code == 0
    assert "hashes" not in less.output and "--no-memory" not in less.output
    assert (tmp_path / "less.html").stat().st_size < (tmp_path / "ner.html").stat().st_size


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "page: expected --output or --module, got neither"),
        (["--output", "{model}/config.cfg"], "expected a file other than the input"),
    ],
)
def test_refused_arguments(fitted: Path, arguments: list[str], message: str) -> None:
    result = run("page", fitted, *[word.format(model=fitted) for word in arguments])
    assert result.exit_code == 1
    assert message in result.output


def test_a_pipeline_that_a_page_cannot_have_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    """The pipeline has a CNN."""
    pipeline().to_disk(tmp_path / "model")
    output = tmp_path / "ner.html"
    result = run("page", tmp_path / "model", "-o", output, "--module", tmp_path / "module")
    assert result.exit_code == 1
    assert "a model with a Tok2Vec" in result.output
    assert not output.exists() and not (tmp_path / "module").exists()


@needs_node
def test_the_module_in_node(fitted: Path, tmp_path: Path) -> None:
    """Its example finds the entities of a text: "Ana" and "Rome" in "Yesterday Ana left Rome"."""
    folder = tmp_path / "module"
    for _ in range(2):  # the second time over the first
        result = run("page", fitted, "--module", folder)
        assert result.exit_code == 0, result.output
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *module_names("ner.js"),
        "ner.d.ts",
        "LICENSE",
        "model.bin",
        "index.html",
        "example.mjs",
        "package.json",
    }

    assert NODE is not None
    example = [NODE, str(folder / "example.mjs"), TEXT]
    output = subprocess.run(example, capture_output=True, text=True, check=True).stdout
    assert "start: 10, end: 13, label: 'PER'" in output
    assert "start: 19, end: 23, label: 'LOC'" in output


TSC = shutil.which("tsc")
"""The compiler of TypeScript: `npm install --global typescript`."""


@pytest.mark.skipif(TSC is None, reason="requires the TypeScript compiler, tsc")
def test_a_program_in_typescript(tmp_path: Path) -> None:
    """It uses all types, next to the module."""
    save_module(tmp_path, make_web_model(make_pipeline()))
    shutil.copy(JAVASCRIPT_TESTS / "types.ts", tmp_path)
    options = ["--strict", "--noEmit", "--target", "es2022", "--lib", "es2022,dom"]
    options += ["--module", "esnext", "--moduleResolution", "bundler"]
    assert TSC is not None
    command = [TSC, *options, "types.ts"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout


def type_members(name: str) -> list[str]:
    """The names of what an interface of ner.d.ts has."""
    types = (MODULES / "ner.d.ts").read_text(encoding="utf8")
    (body,) = re.findall(rf"^export interface {name} {{\n(.*?)^}}", types, re.MULTILINE | re.DOTALL)
    return re.findall(r"^  (\w+)\??[:(]", body, re.MULTILINE)


@needs_node
def test_types_have_all_members(fitted: Path) -> None:
    """What a loaded model has, what is known of its pipeline, and each option."""
    data = make_web_model(spacy.load(fitted)).data
    script = """
    import { load } from "${MODULES}/ner.js";
    async function answer(data) {
      const ner = await load(Uint8Array.from(data));
      const [entity] = ner("Yesterday Ana left Rome");
      const [token] = ner("Rome", { tokens: true }).tokens;
      let refused;
      try { ner("Rome", { no: 1 }); } catch ({ message }) { refused = message; }
      const { info } = ner;
      const values = { Ner: ner, Info: info, Guarantee: info.promise, Token: token };
      const names = Object.entries({ ...values, PredictedEntity: entity })
        .map(([name, value]) => [name, Object.keys(value)]);
      return { refused, ...Object.fromEntries(names) };
    }
    """
    with node(script) as process:
        members = process.ask(list(data))
    _, options = members.pop("refused").split("expected one of the options ")
    members["Options"] = options.split(", ")
    for name, names in members.items():
        assert sorted(type_members(name)) == sorted(names), name


def test_licences_of_spacy_are_in_what_is_published(page: Path, tmp_path: Path) -> None:
    """MIT asks for the copyright and the permission notice in all copies. The page has both in its
    text, and a copyright where each ported module begins, which bundlers keep."""
    copyright = "Copyright (C) 2016-2024 ExplosionAI GmbH, 2016 spaCy GmbH, 2015 Matthew Honnibal"
    folder = tmp_path / "module"
    save_module(folder, make_web_model(make_pipeline()))
    html = page.read_text(encoding="utf8")
    (in_page,) = re.findall(r"<footer>.*<pre>(.*)</pre>.*</footer>", html, flags=re.DOTALL)
    for text in (unescape(in_page), (folder / "LICENSE").read_text(encoding="utf8")):
        assert copyright in text
        assert "Copyright (c) 2026 The spacy-costner authors" in text
        assert "The above copyright notice and this permission notice shall be included" in text
    worker = bundle("page_worker.js")
    for source in ((folder / "tokenizer.js").read_text(encoding="utf8"), worker):
        comments = re.findall(r"/\*!.*?\*/", source, flags=re.DOTALL)
        assert comments
        for comment in comments:
            assert copyright in " ".join(comment.split())
            assert "see the file LICENSE" in comment


@needs_node
def test_a_bundle_predicts_what_its_modules_predict(fitted: Path) -> None:
    """In a bundle the exports of a module, such as `load` of ner.js, are in an object, `ner_js`."""
    nlp = spacy.load(fitted)
    data = list(make_web_model(nlp).data)
    script = f"""
    import {{ load }} from "${{MODULES}}/ner.js";
    {bundle("ner.js")}
    async function answer({{ data, text }}) {{
      const bytes = () => Uint8Array.from(data);
      return [(await load(bytes()))(text), (await ner_js.load(bytes()))(text)];
    }}
    """
    with node(script) as process:
        by_modules, by_bundle = process.ask({"data": data, "text": TEXT})
    assert by_modules == by_bundle
    entities = [(ent.start_char, ent.end_char, ent.label_) for ent in nlp(TEXT).ents]
    assert [(ent["start"], ent["end"], ent["label"]) for ent in by_bundle] == entities


def test_no_module_is_left_out_of_a_bundle_and_none_has_another_import() -> None:
    """A page can't import modules. Its scripts are the page and its worker."""
    for entry in ("page.js", "page_worker.js"):
        script = bundle(entry)
        assert not re.search(r"^\s*(?:import|export)\b", script, flags=re.MULTILINE)
        assert "</script" not in script.lower()
        assert not re.search(r"^ *\*", script, flags=re.MULTILINE)  # no comment of several lines
    names = {path.name for path in MODULES.iterdir() if path.name.endswith(".js")}
    assert names == {*module_names("page.js"), *module_names("page_worker.js")}


@needs_node
@pytest.mark.parametrize(
    "content, name, by_line, expected",
    [
        ("a\nb", "", False, ["a\nb"]),
        ("a\r\n\nb c\n", "x.txt", True, ["a", "b c"]),
        ("", "", False, []),
        ('{"text": "a\\nb", "meta": 1}\n\n{"text": ""}', "x.JSONL", False, ["a\nb", ""]),
        ('{"text": "a"}\n{"txt": 1}', "x.jsonl", False, "x.jsonl, line 2: expected an object with"),
        ("null", "x.jsonl", True, "x.jsonl, line 1: expected an object with"),
        ("{", "x.jsonl", False, "x.jsonl, line 1: expected JSON, got {"),
    ],
)
def test_texts_of_files(
    tools: Node, content: str, name: str, by_line: bool, expected: list[str] | str
) -> None:
    """`expected` is the texts of the file, or the beginning of the error message."""
    answer = tools.ask(["readTexts", content, name, by_line])
    if isinstance(expected, str):
        assert answer.startswith(expected)
    else:
        assert answer == expected


@needs_node
def test_saved_entities_have_the_offsets_of_python(tools: Node, tmp_path: Path) -> None:
    """In JavaScript 😀 has two UTF-16 units, in Python it is one character."""
    texts = ["😀 Ana 😀😀 Rome", "no\u2028 entity\n", "Ana"]
    ana = {"start": 3, "end": 6, "label": "PER", "score": 0.5}
    rome = {"start": 12, "end": 16, "label": "LOC", "score": 0.25}
    entities = [[ana, rome], [], [{"start": 0, "end": 3, "label": "PER", "score": 1}]]
    docs = [{"entities": spans} for spans in entities]
    path = tmp_path / "entities.jsonl"
    path.write_text(tools.ask(["toJsonLines", texts, docs]), encoding="utf8")
    tasks = [task for _, task in read_tasks(path)]
    assert [task.text for task in tasks] == texts
    words_of_texts = []
    for text, task in zip(texts, tasks):
        words = [(text[span.start : span.end], span.label) for span in task.spans or ()]
        words_of_texts.append(words)
    assert words_of_texts == [[("Ana", "PER"), ("Rome", "LOC")], [], [("Ana", "PER")]]


@needs_node
@pytest.mark.parametrize(
    "share, text", [(0, "0 %"), (0.001, "< 1 %"), (0.42, "42 %"), (0.999, "> 99 %"), (1, "100 %")]
)
def test_probabilities(tools: Node, share: float, text: str) -> None:
    """In percent without decimals. Only 0 is 0 %, and only 1 is 100 %."""
    assert tools.ask(["probability", share]) == text


def test_labels_have_the_colours_of_displacy() -> None:
    """PER has the colour of PERSON, and capitals don't matter. Labels that displaCy doesn't know,
    here DISEASE and DRUG, have other colours, also if there are more labels than colours."""
    colours = label_colours(["PER", "ORG", "DISEASE", "DRUG", "loc"])
    assert colours["PER"] == DEFAULT_LABEL_COLORS["PERSON"]
    assert colours["ORG"] == DEFAULT_LABEL_COLORS["ORG"]
    assert colours["loc"] == DEFAULT_LABEL_COLORS["LOC"]
    assert len(set(colours.values())) == 5
    assert len(label_colours([f"L{i}" for i in range(50)])) == 50


def test_the_text_of_entities_can_be_read_on_the_colours_of_displacy() -> None:
    """A contrast of 4.5 is what the Web Content Accessibility Guidelines ask for, 1.4.3."""
    css = (MODULES.parents[1] / "pages" / "templates" / "page.css").read_text("utf8")
    ink = re.search(r"mark\.entity \{[^}]*[ ;{]color: (#[0-9a-f]{6})", css)
    assert ink is not None
    for colour in {*DEFAULT_LABEL_COLORS.values(), "#dddddd"}:
        assert contrast(ink[1], colour) >= 4.5, colour


def contrast(colour: str, other: str) -> float:
    """The contrast of two colours, such as #1c2733: from 1 to 21.

    (L1 + .05) / (L2 + .05), L1 >= L2, with the relative luminance L of sRGB: WCAG 2.2.
    """
    luminances: list[float] = []
    for value in (colour, other):
        digits = value.removeprefix("#")
        if len(digits) == 3:
            digits = "".join(2 * digit for digit in digits)
        linear: list[float] = []
        for byte in bytes.fromhex(digits):
            share = byte / 255
            linear.append(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    darker, lighter = sorted(luminances)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.slow
def test_wheel_and_source_distribution_have_modules_and_templates_once(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    root = Path(__file__).parents[2]
    setup = [sys.executable, "setup.py", "--quiet"]
    build = ["build_py", "--build-lib", str(tmp_path / "wheel")]
    for command in (build, ["sdist", "--dist-dir", str(tmp_path)]):
        subprocess.run([*setup, *command], cwd=root, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        in_archive = tar.getnames()
    in_wheel = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("wheel/**/*")]
    for folder in ("export/javascript", "pages/templates", "workflows/config/templates"):
        for path in (root / "spacy_costner" / folder).iterdir():
            end = f"/spacy_costner/{folder}/{path.name}"
            assert len([name for name in in_archive if name.endswith(end)]) == 1, end
            assert len([name for name in in_wheel if name.endswith(end)]) == 1, end


# In Chromium

SPANS = (
    "[...document.querySelectorAll('#entities mark')].map((mark) => "
    "[mark.firstChild.textContent, mark.lastChild.firstChild.textContent])"
)
"""The entities on the page, in order, as text and label."""

PARAGRAPHS = "document.querySelectorAll('#entities p').length"
"""The number of texts that are shown."""

PROMISED = (
    "[...byId('promised-rows').children].map((row) => "
    "[row.children[0].textContent, row.children[1].textContent])"
)
"""The spans of the guaranteed set on the page, in order, as text and label."""

ENTITIES = [["Ana", "PER"], ["Rome", "LOC"]]
"""The entities of `TEXT`, the first example of the page."""


def open_page(tab: Browser, path: Path, **options: Any) -> None:
    """Open a page, and wait for its first entities."""
    tab.open(path, **options)
    tab.wait("byId('busy').hidden && byId('facts').textContent !== ''")


def type_text(tab: Browser, text: str) -> None:
    """Replace the text by typing, and wait for its entities."""
    tab.run("byId('text').focus(); byId('text').select(); byId('facts').textContent = ''")
    tab.call("Input.insertText", text=text)
    tab.wait("byId('facts').textContent !== ''")


def choose_file(tab: Browser, path: Path) -> None:
    """Choose a file in the field of the page for files. The facts are cleared, so that tests can
    wait for the facts of the new texts."""
    tab.run("byId('facts').textContent = ''")
    tab.call("DOM.enable")
    document = tab.call("DOM.getDocument")["root"]["nodeId"]
    field = tab.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    tab.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])


def drop_file(tab: Browser, name: str, content: str) -> None:
    """Drop a file on the page, and clear the facts, as `choose_file` does. The content is an
    expression of JavaScript."""
    tab.run(
        "(() => { byId('facts').textContent = ''; const dropped = new DataTransfer();"
        f" dropped.items.add(new File([{content}], {json.dumps(name)}));"
        " document.dispatchEvent(new DragEvent('drop', {dataTransfer: dropped, bubbles: true}));"
        " })()"
    )


def saved_file(folder: Path) -> Path:
    """The file that the page has saved, when it is there."""
    path = folder / "entities.jsonl"
    for _ in range(500):
        if path.is_file():
            return path
        subprocess.run(["sleep", "0.02"], check=True)
    raise AssertionError("no file was saved")


@pytest.mark.slow
@needs_chromium
def test_type_slide_and_save(page: Path, tab: Browser, tmp_path: Path) -> None:
    open_page(tab, page)
    assert tab.run("document.title") == "people 0.0.0: entities"
    assert tab.run(SPANS) == ENTITIES
    # The page has loaded nothing else.
    assert tab.run("performance.getEntriesByType('resource').length") == 0
    # The colour of PERSON in displaCy, #aa9cfc
    colour = "getComputedStyle(document.querySelector('#entities mark')).backgroundColor"
    assert tab.run(colour) == "rgb(170, 156, 252)"

    type_text(tab, "Yesterday Dora left Cairo with bag 3 .\n\n😀 Yesterday Bo left Oslo .")
    assert tab.run(SPANS) == [["Dora", "PER"], ["Cairo", "LOC"], ["Bo", "PER"], ["Oslo", "LOC"]]
    assert tab.run("byId('facts').textContent").startswith("4 entities, ")

    # A higher threshold has fewer entities, a costlier miss more.
    tab.run("byId('threshold').focus()")
    tab.press("End")
    tab.wait("byId('busy').hidden && byId('by-threshold').checked")
    assert tab.run("byId('threshold-text').textContent") == "0.99"
    n_sure = tab.run("document.querySelectorAll('#entities mark').length")
    tab.run("byId('miss').focus()")
    tab.press("End")
    tab.wait("byId('busy').hidden && byId('threshold').value === '0.02'")
    assert tab.run("byId('miss').getAttribute('aria-valuetext')") == "50 false alarms"
    assert tab.run("document.querySelectorAll('#entities mark').length") > n_sure

    tab.run("byId('as-pipeline').click(); byId('save').focus()")
    tab.wait("byId('busy').hidden")
    tab.press("Enter")
    ((_, task),) = read_tasks(saved_file(tmp_path))
    words = [task.text[span.start : span.end] for span in task.spans or ()]
    assert words == ["Dora", "Cairo", "Bo", "Oslo"]

    # Text that is typed while the worker is busy is predicted afterwards.
    for text in ("Ana", "Ana left", "Bo left Lima ."):
        tab.run(f"byId('text').value = {text!r}; byId('text').dispatchEvent(new Event('input'))")
    tab.wait("byId('entities').textContent.startsWith('Bo')")


@pytest.mark.slow
@needs_chromium
def test_files_are_read_or_refused(page: Path, tab: Browser, tmp_path: Path) -> None:
    """The texts of a JSONL file are not put into the field, where they could not be told apart. An
    error names the file and the line. The entities that are shown then stay."""
    (tmp_path / "two.jsonl").write_text('{"text": "Bo left Lima ."}\n{"text": "Rome"}\n')
    (tmp_path / "bad.jsonl").write_text("[]")
    open_page(tab, page)
    choose_file(tab, tmp_path / "two.jsonl")
    tab.wait("byId('facts').textContent.includes(' 2 texts,')")
    assert tab.run("byId('text').value") == ""
    assert tab.run(PARAGRAPHS) == 2
    entities = [["Bo", "PER"], ["Lima", "LOC"], ["Rome", "LOC"]]
    assert tab.run(SPANS) == entities

    choose_file(tab, tmp_path / "bad.jsonl")
    tab.wait("byId('said').textContent.startsWith('bad.jsonl, line 1: expected an object')")
    assert tab.run(SPANS) == entities


@pytest.mark.slow
@needs_chromium
def test_a_dropped_file_is_one_text_or_one_of_each_line(page: Path, tab: Browser) -> None:
    entities = [["Bo", "PER"], ["Lima", "LOC"], ["Ana", "PER"], ["Oslo", "LOC"]]
    open_page(tab, page)
    drop_file(tab, "lines.txt", json.dumps("Bo left Lima .\n\nAna left Oslo .\n"))
    tab.wait("byId('facts').textContent.includes(' 1 text,')")
    assert tab.run(PARAGRAPHS) == 1
    assert tab.run(SPANS) == entities

    # The empty line is no text.
    tab.run("byId('lines').click()")
    tab.wait("byId('facts').textContent.includes(' 2 texts,')")
    assert tab.run(PARAGRAPHS) == 2
    assert tab.run(SPANS) == entities


@pytest.mark.slow
@needs_chromium
def test_a_folder_that_is_dropped_is_refused(page: Path, tab: Browser) -> None:
    """Browsers give a folder as a file that can't be read."""
    open_page(tab, page)
    tab.run("Blob.prototype.text = () => Promise.reject(new Error('a folder'))")
    drop_file(tab, "texts", "''")
    tab.wait("byId('said').textContent === 'texts: expected a file that can be read'")
    assert tab.run(SPANS) == ENTITIES


@pytest.mark.slow
@needs_chromium
def test_the_promised_set_is_shown_with_its_promise(fitted: Path, page: Path, tab: Browser) -> None:
    """It is shown on request, with the spans that Python finds. They are more than the entities."""
    doc = spacy.load(fitted)(TEXT)
    expected = [[str(span), span.label_] for span in doc.spans["confidence_guaranteed"]]
    assert len(expected) > len(doc.ents) == len(ENTITIES)
    open_page(tab, page)
    assert tab.run("byId('promised-set').hidden")
    tab.run("byId('promised').click()")
    tab.wait("!byId('promised-set').hidden")
    assert sorted(tab.run(PROMISED)) == sorted(expected)
    promise = "at most 0.05 of the entities of a doc are missed"
    assert promise in tab.run("document.body.innerText")


@pytest.mark.slow
@needs_chromium
def test_long_texts_show_progress_and_stop(page: Path, tab: Browser) -> None:
    """After that the page is usable as before."""
    open_page(tab, page)
    lines = "'Yesterday Ana left Rome with bag 7 .\\n'.repeat(30000)"
    tab.run("byId('lines').checked = true")
    drop_file(tab, "long.txt", lines)
    tab.wait("byId('progress').value > 0 && byId('progress').value < byId('progress').max")
    tab.run("byId('stop').focus()")
    tab.press("Enter")
    tab.wait("byId('said').textContent === 'Stopped.'")
    type_text(tab, TEXT)
    assert tab.run(SPANS) == ENTITIES


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_narrow_dark_and_by_name(page: Path, tab: Browser, dark: bool) -> None:
    """On a narrow screen nothing is cut off. In dark mode the text is light, but not the text of
    entities, whose colours are light. A screen reader can name each control, and a keyboard reaches
    it."""
    dark_ink, light_ink = "rgb(28, 39, 51)", "rgb(228, 233, 238)"
    open_page(tab, page, width=420, dark=dark)
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    ink = tab.run("getComputedStyle(document.body).color")
    assert ink == (light_ink if dark else dark_ink)
    ink_of_entity = tab.run("getComputedStyle(document.querySelector('#entities mark')).color")
    assert ink_of_entity == dark_ink
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = set()
    for item in tree:
        role = item.get("role", {}).get("value")
        # Some versions of Chromium, such as 150, keep the space between a box and its label.
        named.add((role, item.get("name", {}).get("value", "").strip()))
    for role, name in [
        ("textbox", "Text"),
        ("button", "Save as JSONL"),
        ("button", "Example 2"),
        ("checkbox", "Each line is a text"),
        ("slider", "Threshold"),
        ("slider", "A miss costs"),
        ("radio", "As predicted by the pipeline: the best path"),
        ("region", "the text with its entities"),
        ("heading", "Entities"),
    ]:
        assert (role, name) in named, (role, name)
    unnamed = [role for role, name in named if role in ("button", "slider", "textbox") and not name]
    assert not unnamed
    # Every control is reached by Tab.
    tab.run("document.body.focus()")
    reached = set()
    for _ in range(20):
        tab.press("Tab")
        reached.add(tab.run("document.activeElement.id"))
    assert {
        "text",
        "file",
        "lines",
        "entities",
        "save",
        "threshold",
        "miss",
        "promised",
    } <= reached


@pytest.mark.slow
@needs_chromium
def test_nothing_of_a_text_a_label_or_a_name_runs(tab: Browser, tmp_path: Path) -> None:
    """Each of them has markup that would change the title of the page, if it ran. It is shown as
    text."""
    labels = {f"word{i}": label for i, label in enumerate(HOSTILE)}
    texts = [f"So word{i} fell {hostile} ." for i, hostile in enumerate(HOSTILE)] * 3
    nlp = fit_on(tmp_path, texts, labels)
    nlp.meta["name"] = f"</title><script>{RUN}</script>"
    path = tmp_path / "ner.html"
    path.write_text(ner_page(make_web_model(nlp), None, HOSTILE), encoding="utf8")
    open_page(tab, path)
    title = tab.run("document.title")
    assert title.startswith("</title><script>")
    type_text(tab, "\n".join(texts))
    shown = tab.run(SPANS)
    # Otherwise few of the hostile labels would be on the page.
    assert len({label for _, label in shown}) > len(HOSTILE) // 2
    drop_file(tab, f"<img src=x onerror={RUN}>.jsonl", "'<b>'")
    tab.wait("byId('said').textContent.includes('line 1')")
    for i in range(len(HOSTILE)):
        tab.run(f"byId('examples').children[{i}].click()")
    tab.wait("byId('busy').hidden")
    assert tab.run("document.title") == title
    assert tab.run("document.querySelectorAll('main img, main iframe, main script').length") == 0
    assert tab.run("getComputedStyle(byId('save')).display") != "none"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, as long as it is served to this machine."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
@needs_chromium
def test_the_page_of_a_module_is_served(fitted: Path, tab: Browser, tmp_path: Path) -> None:
    """It shows the entities of a text as JSON: first the entities of its example, then of the typed
    text."""
    folder = tmp_path / "module"
    assert run("page", fitted, "--module", folder).exit_code == 0
    with served(folder) as address:
        tab.open(f"{address}/index.html")
        tab.wait("document.querySelector('pre').textContent.startsWith('[')")
        tab.run("document.querySelector('textarea').select()")
        tab.call("Input.insertText", text=TEXT)
        spans = json.loads(tab.run("document.querySelector('pre').textContent"))
    entities = [[TEXT[span["start"] : span["end"]], span["label"]] for span in spans]
    assert entities == ENTITIES


PREDICT = """
async function predict(texts) {
  const { load } = await import("./ner.js");
  const ner = await load("model.bin");
  window.results = texts.map((text) => {
    const entities = ner(text, { tokens: true });
    const tokens = entities.tokens.map(({ start, end }) => [start, end]);
    return { entities: [...entities], tokens };
  });
}
"""
"""Predicts the entities of texts on a page."""


@pytest.mark.slow
@needs_chromium
def test_chromium_predicts_what_python_predicts(tab: Browser, tmp_path: Path) -> None:
    """The same tokens, entities and probabilities, with all kinds of features in two passes."""
    decoding = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.1}
    nlp = make_pipeline(TWO_PASSES, decoding=decoding, sentence_boundaries=True, lang="en")
    folder = tmp_path / "module"
    save_module(folder, make_web_model(nlp))
    texts = [*WEB_TEXTS, *make_texts(20)]
    with served(folder) as address:
        tab.open(f"{address}/index.html")
        tab.run(f"{PREDICT}; predict({json.dumps(texts)}); null")
        tab.wait("window.results !== undefined")
        results = tab.run("window.results")
    n_entities = 0
    for text, result in zip(texts, results, strict=True):
        expected = predict_in_python(nlp, text)
        n_entities += len(expected["entities"])
        assert result["tokens"] == expected["tokens"], text
        check_same_entities(result["entities"], expected["entities"], text)
    assert n_entities > 50  # otherwise the comparison would say little


@needs_node
def test_a_damaged_model_is_refused_in_words(fitted: Path, tmp_path: Path) -> None:
    """The file of the model is a page instead."""
    folder = tmp_path / "module"
    assert run("page", fitted, "--module", folder).exit_code == 0
    shutil.copy(folder / "index.html", folder / "model.bin")
    assert NODE is not None
    example = [NODE, str(folder / "example.mjs"), TEXT]
    result = subprocess.run(example, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "model file: expected one that `costner page` has written" in result.stderr
