"""The page of `costner serve` in Chromium, by real keys and the mouse."""

from pathlib import Path
from typing import Any

import pytest

from spacy_costner.analysis.annotation_store import AnnotationStore

from .support.annotation import LANG, NAMES, TOWNS, make_texts
from .support.browser import browser, needs_chromium
from .support.serving import served

pytestmark = [pytest.mark.slow, needs_chromium]

SHOWN = "text !== null && !isBusy"
WORDS = "text.tokens.map((token) => token[0])"


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a new session."""
    path = tmp_path / "raw.txt"
    path.write_text("\n".join(make_texts(80)))
    return ["--labels", "PER,LOC", "--lang", LANG, "--texts", str(path)]


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
    """Make the entities of the page those of gold, and go to the next text."""
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
    tmp_path: Path, options: list[str]
) -> None:
    """30 texts. What was answered is there after the kill, and the model has learned."""
    folder = tmp_path / "session"
    with browser(tmp_path) as tab:
        with served(folder, *options) as (process, address):
            tab.open(address)
            for _ in range(15):
                annotate_by_keys(tab)
            process.kill()
            process.wait()
            tab.press("Enter")
            tab.wait("byId('said').textContent.startsWith('The server doesn')")
        assert len(AnnotationStore(folder).answers) == 15
        with served(folder) as (_, address):
            tab.open(address)
            for _ in range(15):
                annotate_by_keys(tab)
            tab.open(address)
            tab.wait("byId('annotated').textContent.startsWith('30 of 80, 60 entities')")
            tab.wait("byId('trained').textContent.startsWith('24 texts')", seconds=60)
            assert tab.run("Number(byId('f').textContent)") > 90
            # The text that stands there may have been proposed by the model before this one.
            tab.open(address)
            tab.wait(SHOWN)
            while tab.run("text.is_measuring"):
                annotate_by_keys(tab)
            assert tab.run("spans.length") == 2  # proposed
            assert tab.run("document.querySelectorAll('mark.proposed i').length") == 2


def test_entities_are_made_changed_and_removed_by_the_mouse(
    tmp_path: Path, options: list[str]
) -> None:
    with browser(tmp_path) as tab, served(tmp_path / "session", *options) as (_, address):
        tab.open(address)
        tab.wait(SHOWN)
        tab.drag("[data-i='1']", "[data-i='2']")
        assert entities(tab) == [(1, 3, "PER")]
        tab.click("[data-i='1']")
        tab.click("#labels button:nth-child(2)")
        assert entities(tab) == [(1, 3, "LOC")]
        tab.click("[data-i='4']")
        assert entities(tab) == [(1, 3, "LOC"), (4, 5, "LOC")]
        tab.click("mark button.remove")
        assert entities(tab) == [(4, 5, "LOC")]
        first = tab.run("text.key")
        tab.click("#accept")
        tab.wait(f"!isBusy && text.key !== {first!r}")
        tab.click("#back")
        tab.wait(f"!isBusy && text.key === {first!r}")
        assert entities(tab) == [(4, 5, "LOC")]
        tab.click("#leave")
        tab.wait("byId('annotated').textContent.includes('1 left out')")


def test_a_label_that_is_chosen_after_an_entity_is_that_of_the_next_one(
    tmp_path: Path, options: list[str]
) -> None:
    """By the mouse: first the label, then the words. To change an entity, click on it first."""
    with browser(tmp_path) as tab, served(tmp_path / "session", *options) as (_, address):
        tab.open(address)
        tab.wait(SHOWN)
        tab.drag("[data-i='0']", "[data-i='1']")
        tab.click("#labels button:nth-child(2)")
        tab.click("[data-i='3']")
        tab.click("#labels button:nth-child(1)")
        tab.click("[data-i='5']")
        assert entities(tab) == [(0, 2, "PER"), (3, 4, "LOC"), (5, 6, "PER")]
        # By keys, the label is that of the entity that was just made.
        tab.press("2")
        assert entities(tab) == [(0, 2, "PER"), (3, 4, "LOC"), (5, 6, "LOC")]


def test_shift_selects_several_words_and_arrows_choose_a_label(
    tmp_path: Path, options: list[str]
) -> None:
    with browser(tmp_path) as tab, served(tmp_path / "session", *options) as (_, address):
        tab.open(address)
        tab.wait(SHOWN)
        tab.press("ArrowRight")
        tab.press("ArrowRight", 2, shift=True)
        tab.press("ArrowDown")
        tab.press(" ")
        assert entities(tab) == [(1, 4, "LOC")]
        assert tab.run("document.querySelector('[aria-pressed=true]').textContent") == "2 LOC"


def test_of_two_tabs_the_second_is_told(tmp_path: Path, options: list[str]) -> None:
    with served(tmp_path / "session", *options) as (_, address):
        (tmp_path / "other").mkdir()
        with browser(tmp_path) as tab, browser(tmp_path / "other") as other:
            for page in (tab, other):
                page.open(address)
                page.wait(SHOWN)
            assert tab.run("text.key") == other.run("text.key")
            for page in (tab, other):
                page.press("Enter")
                page.wait("earlier.length === 1")
            assert tab.run("byId('said').textContent") == ""
            assert "Another tab had answered" in other.run("byId('said').textContent")


@pytest.mark.parametrize("width", [1200, 420])
def test_nothing_is_wider_than_the_window(width: int, tmp_path: Path, options: list[str]) -> None:
    with browser(tmp_path) as tab, served(tmp_path / "session", *options) as (_, address):
        tab.open(address, width=width)
        tab.wait(SHOWN)
        assert tab.run(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


def test_markup_in_texts_and_labels_is_shown_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "raw.txt"
    markup = (
        "<img src=x onerror=document.title='hacked'> & <script>document.title='hacked'</script>"
    )
    path.write_text("\n".join(f"{markup} {i}" for i in range(4)))
    options = ["--labels", "<b>A</b>", "--lang", LANG, "--texts", str(path)]
    with browser(tmp_path) as tab, served(tmp_path / "session", *options) as (_, address):
        tab.open(address)
        tab.wait(SHOWN)
        tab.press("1")
        assert tab.run("byId('text').textContent").startswith("<<b>A</b>")
        assert tab.run("document.title").startswith("Annotate")
        assert tab.run("document.querySelectorAll('img, #labels b').length") == 0
