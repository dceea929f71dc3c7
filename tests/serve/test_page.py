"""The page of `costner serve` in Chromium, by real keys and the mouse."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spacy_costner.pages.formatting import probability
from spacy_costner.pages.label_colours import label_colours
from spacy_costner.serve.session import AnnotationSession
from spacy_costner.serve.store import AnnotationStore

from ..support.annotation import LANG, NAMES, TOWNS, make_texts
from ..support.browser import Browser, browser, needs_chromium
from ..support.serving import served, served_in_thread

pytestmark = [pytest.mark.slow, needs_chromium]

SHOWN = "text !== null && !isBusy"
WORDS = "text.tokens.map((token) => token[0])"


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a new session."""
    path = tmp_path / "raw.txt"
    path.write_text("\n".join(make_texts(80)))
    return ["--labels", "PER,LOC", "--lang", LANG, "--texts", str(path)]


@pytest.fixture
def page(tab: Browser, tmp_path: Path) -> Iterator[Browser]:
    """The page of a new session, when it shows its first text."""
    with shown(tab, tmp_path, make_texts(80), ["PER", "LOC"]) as page:
        yield page


@contextmanager
def shown(
    tab: Browser, folder: Path, texts: list[str], labels: list[str], width: int = 1200
) -> Iterator[Browser]:
    """Open the page of a new session in a tab, and wait until it shows its first text."""
    store = AnnotationStore(folder / "session")
    store.add_texts(texts)
    with served_in_thread(AnnotationSession(store, labels=labels, lang=LANG)) as address:
        tab.open(address, width=width)
        tab.wait(SHOWN)
        yield tab
        tab.open("about:blank")  # ends the connection to the server


def entities(tab: Any) -> list[tuple[int, int, str]]:
    """The entities that the page shows, in tokens."""
    spans = tab.run("spans.map((span) => [span.start, span.end, span.label])")
    return [tuple(span) for span in spans]


def gold(tab: Any) -> list[tuple[int, int, str]]:
    """The entities of the text of the page."""
    spans: list[tuple[int, int, str]] = []
    for i, word in enumerate(tab.run(WORDS)):
        if word in NAMES:
            spans.append((i, i + 1, "PER"))
        if word in TOWNS:
            spans.append((i, i + 1, "LOC"))
    return spans


def annotate_by_keys(tab: Any) -> None:
    """Annotate the text of the page with the gold entities, and go to the next text."""
    tab.wait(SHOWN)
    wanted = gold(tab)
    position = 0
    for span in [*entities(tab), *wanted]:
        start, _, label = span
        tab.press("ArrowRight" if start >= position else "ArrowLeft", abs(start - position))
        position = start
        if span not in wanted:
            tab.press("Delete")
        elif span not in entities(tab):
            tab.press(str(1 + ["PER", "LOC"].index(label)))
    assert entities(tab) == wanted
    key = tab.run("text.key")
    tab.press("Enter")
    tab.wait(f"!isBusy && (text === null || text.key !== {key!r})")


def test_texts_are_annotated_by_keys_alone_with_a_kill_and_a_reload_in_between(
    tab: Browser, tmp_path: Path, options: list[str]
) -> None:
    """30 texts, each with a name and a town. After the kill, the answers are still
    there, and a model was trained. One of five texts is an evaluation text: 24 are for training."""
    folder = tmp_path / "session"
    with served(folder, *options) as (process, address):
        tab.open(address)
        for _ in range(15):
            annotate_by_keys(tab)
        process.kill()
        process.wait()
        tab.press("Enter")
        tab.wait("byId('said').textContent.startsWith('The server isn')")
    assert len(AnnotationStore(folder).answers) == 15
    with served(folder) as (_, address):
        tab.open(address)
        for _ in range(15):
            annotate_by_keys(tab)
        tab.open(address)
        tab.wait("byId('annotated').textContent.startsWith('30 of 80, 60 entities')")
        tab.wait("byId('trained').textContent.startsWith('24 texts')", seconds=60)
        # There are six evaluation texts.
        assert tab.run("byId('f').textContent") == "requires 30 evaluation texts"
        assert tab.run("byId('curve').hidden")
        # The text that stands there may have been proposed by the model before this one.
        tab.open(address)
        tab.wait(SHOWN)
        while tab.run("text.is_evaluation"):
            annotate_by_keys(tab)
        assert tab.run("spans.length") == 2  # proposed
        assert tab.run("document.querySelectorAll('mark.proposed i').length") == 2


def test_entities_are_made_changed_and_removed_by_the_mouse(page: Browser) -> None:
    page.drag("[data-i='1']", "[data-i='2']")
    assert entities(page) == [(1, 3, "PER")]
    page.click("[data-i='1']")
    page.click("#labels button:nth-child(2)")
    assert entities(page) == [(1, 3, "LOC")]
    page.click("[data-i='4']")  # a new entity has the label that was chosen last
    assert entities(page) == [(1, 3, "LOC"), (4, 5, "LOC")]
    page.click("mark button.remove")
    assert entities(page) == [(4, 5, "LOC")]
    first = page.run("text.key")
    page.click("#accept")
    page.wait(f"!isBusy && text.key !== {first!r}")
    page.click("#back")
    page.wait(f"!isBusy && text.key === {first!r}")
    assert entities(page) == [(4, 5, "LOC")]
    page.click("#leave")
    page.wait("byId('annotated').textContent.includes('1 skipped')")


def test_a_label_that_is_chosen_after_an_entity_is_for_the_next_one(page: Browser) -> None:
    """By the mouse: first the label, then the words. To change an entity, click on it first."""
    page.drag("[data-i='0']", "[data-i='1']")
    page.click("#labels button:nth-child(2)")
    page.click("[data-i='3']")
    page.click("#labels button:nth-child(1)")
    page.click("[data-i='5']")
    assert entities(page) == [(0, 2, "PER"), (3, 4, "LOC"), (5, 6, "PER")]
    # A key changes the label of the entity that was just made.
    page.press("2")
    assert entities(page) == [(0, 2, "PER"), (3, 4, "LOC"), (5, 6, "LOC")]


def test_shift_selects_several_words_and_arrows_choose_a_label(page: Browser) -> None:
    page.press("ArrowRight")
    page.press("ArrowRight", 2, shift=True)
    page.press("ArrowDown")
    page.press(" ")
    assert entities(page) == [(1, 4, "LOC")]
    assert page.run("document.querySelector('[aria-pressed=true]').textContent") == "2 LOC"


def test_f_is_shown_from_30_texts_on(page: Browser) -> None:
    """With its curve, as soon as two models were measured."""
    point = "{n_texts: 20, n_measured: 30, f: null, expected_f: 0.5, seconds: 1}"
    for n_measured, points, shown_f, is_hidden in (
        (29, f"{{...{point}}}, {{...{point}}}", "requires 30 evaluation texts", True),
        (30, f"{{...{point}}}, {{...{point}, f: 0.75}}", "75.0", True),
        (31, f"{{...{point}, f: 0.5}}, {{...{point}, f: 0.75}}", "75.0", False),
        (32, "", "\N{EN DASH}", True),
    ):
        page.run(
            "ask('status').then((status) => "
            f"showStatus({{...status, measured: {n_measured}, points: [{points}]}}))"
        )
        page.wait(f"byId('measured').textContent.startsWith('{n_measured} of')")
        assert page.run("byId('f').textContent") == shown_f
        assert page.run("byId('curve').hidden") is is_hidden


def test_f_of_the_next_texts_is_a_dashed_line(page: Browser) -> None:
    """If it is known. The points have the numbers of texts and F."""
    for n_measured, following, end_of_caption, line in (
        (40, "{n_texts: 200, f: 0.8}", "; 100 more texts: about +5.0", "150,35 280,30"),
        (41, "null", "to 75.0", ""),
    ):
        page.run(
            "ask('status').then((status) => showStatus({...status,"
            f" measured: {n_measured}, next: {following},"
            " points: [{n_texts: 50, f: 0.5, seconds: 1}, {n_texts: 100, f: 0.75, seconds: 1}]}))"
        )
        page.wait(f"byId('measured').textContent.startsWith('{n_measured} of')")
        assert page.run("byId('caption').textContent").endswith(end_of_caption)
        assert page.run("byId('next').getAttribute('points')") == line
        assert page.run("byId('line').getAttribute('points')").startswith("85,60 " if line else "")


def test_answers_that_cannot_be_saved_are_shown(page: Browser) -> None:
    page.run(
        "ask('status').then((status) => showStatus("
        "{...status, problem: 'training: x', unsaved: 2, unsaved_problems: ['a', 'b <b>']}))"
    )
    page.wait("byId('problem').textContent.includes('not saved')")
    assert page.run("byId('problem').textContent") == "training: x\n2 not saved: b <b>"


@pytest.mark.parametrize("dark", [False, True])
def test_entities_have_the_colours_of_their_labels(dark: bool, page: Browser) -> None:
    """The text on them is dark in both colour schemes. Proposals are lighter. Labels that the
    session no longer has are grey."""
    page.open(page.run("location.href"), dark=dark)
    page.wait(SHOWN)
    page.run(
        "spans = [{start: 0, end: 1, label: 'PER', prob: null},"
        " {start: 1, end: 2, label: 'LOC', prob: 0.5}, {start: 2, end: 3, label: 'X', prob: null}];"
        " draw()"
    )
    backgrounds = page.run(
        "[...document.querySelectorAll('mark')]"
        ".map((mark) => getComputedStyle(mark).backgroundColor)"
    )
    colours = label_colours(["PER", "LOC"])
    assert page.run("data.colours") == colours
    swatches = page.run(
        "[...document.querySelectorAll('#labels .swatch')]"
        ".map((swatch) => getComputedStyle(swatch).backgroundColor)"
    )
    assert swatches == [rgb(colours["PER"]), rgb(colours["LOC"])]
    assert backgrounds[0] == rgb(colours["PER"]) and backgrounds[2] == rgb("#dddddd")
    assert backgrounds[1] not in (rgb(colours["LOC"]), backgrounds[0])
    for selector in ("mark", "mark .label", "mark .label i", "mark button"):
        element = f"document.querySelector({selector!r})"
        assert page.run(f"getComputedStyle({element}).color") == "rgb(28, 39, 51)", selector


def rgb(colour: str) -> str:
    """A colour such as #7aecec, as a browser writes it."""
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return f"rgb({red}, {green}, {blue})"


def test_probabilities_are_rounded_as_in_other_pages(page: Browser) -> None:
    """Only 0 is 0 %, and only 1 is 100 %."""
    probs = [0, 0.004, 0.005, 0.006, 0.42, 0.994, 0.995, 0.999, 1]
    assert page.run(f"{probs}.map(probability)") == [probability(prob) for prob in probs]


def test_the_second_of_two_tabs_is_warned(page: Browser, tmp_path: Path) -> None:
    with browser(tmp_path) as other:
        other.open(page.run("location.href"))
        other.wait(SHOWN)
        assert page.run("text.key") == other.run("text.key")
        for tab in (page, other):
            tab.press("Enter")
            tab.wait("earlier.length === 1")
        assert page.run("byId('said').textContent") == ""
        assert "already annotated in another tab" in other.run("byId('said').textContent")


@pytest.mark.parametrize("width", [1200, 420])
def test_nothing_is_wider_than_the_window(width: int, tab: Browser, tmp_path: Path) -> None:
    with shown(tab, tmp_path, make_texts(80), ["PER", "LOC"], width) as page:
        assert page.run(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


def test_markup_in_texts_and_labels_is_shown_as_it_is(tab: Browser, tmp_path: Path) -> None:
    markup = (
        "<img src=x onerror=document.title='hacked'> & <script>document.title='hacked'</script>"
    )
    texts = [f"{markup} {i}" for i in range(4)]
    with shown(tab, tmp_path, texts, ["<b>A</b>"]) as page:
        page.press("1")
        assert page.run("byId('text').textContent").startswith("<<b>A</b>")
        assert page.run("document.title").startswith("Annotate")
        assert page.run("document.querySelectorAll('img, #labels b').length") == 0
