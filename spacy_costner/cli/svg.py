"""Write a figure as the <svg> element of a page, or as a file.

The colours of the figure are replaced by variables of the style sheet of the page, so that they fit
light and dark mode. The script and the style sheet of the page find parts of a figure by their ids
and classes, which the functions of `plots` set.
"""

import re
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..files.saving import save_text
from ..pages.rendering import colour_variables
from .plots import CELL_PREFIX, CHOSEN, COLOURS, FRAME, drawing

# The codes of characters that XML can't have: control characters except tab, line feed and carriage
# return, halves of surrogate pairs, and two codes that are not characters.
_CODES_NOT_IN_XML = (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)

NOT_IN_XML = dict.fromkeys(_CODES_NOT_IN_XML, "\N{REPLACEMENT CHARACTER}")
"""A table for `str.translate` that replaces these characters. Labels may have them."""

REFERENCE = re.compile(r"(?:^|url\()#([\w-]+)")
"""Finds references to ids in the value of an attribute: "#id" or "url(#id)"."""


def as_svg(figure: Any, name: str) -> str:
    """Make the <svg> element of a figure, for a page whose style sheet has our colours as
    variables. Cells of heat maps show their values on hover.

    figure (Any): The figure.
    name (str): The name of the figure. All ids begin with it, as a page has several figures.
    """
    buffer = StringIO()
    with drawing():
        # Without a date, the same figure always gives the same page.
        no_metadata = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = ElementTree.fromstring(buffer.getvalue().translate(NOT_IN_XML))
    # matplotlib's style has a rule for "*", which would hold for all of the page.
    _remove_elements(svg, "metadata", "style")

    titles = _titles_of_cells(figure)
    used_ids = _used_ids(svg)
    for element in svg.iter():
        # In HTML, names of SVG have no namespace.
        element.tag = _local_name(element.tag)
        attributes = dict(element.attrib)
        element.attrib.clear()
        element_id = attributes.pop("id", "")
        if element_id in (FRAME, CHOSEN):  # classes, as several figures of a page have them
            element.set("class", element_id)
        elif element_id in titles:
            # Browsers show the first <title> of an element on hover.
            title = ElementTree.Element("title")
            title.text = titles[element_id].translate(NOT_IN_XML)
            element.insert(0, title)
        elif element_id in used_ids:
            element.set("id", f"{name}-{element_id}")
        for key, value in attributes.items():
            _set_attribute(element, _local_name(key), value, name)
    return ElementTree.tostring(svg, encoding="unicode").strip()


def save_svg(figure: Any, path: Path) -> None:
    """Save a figure as an SVG file whose colours fit light and dark mode."""
    element, rest = as_svg(figure, "figure").split(">", 1)
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    save_text(path, f"{element} {namespace}><style>{colour_variables()}</style>{rest}\n")


def _local_name(name: str) -> str:
    """The name of an element or attribute without the namespace that ElementTree writes before it:
    "name" for "{namespace}name"."""
    return name.rpartition("}")[2]


def _remove_elements(svg: ElementTree.Element, *names: str) -> None:
    """Remove all elements with these names."""
    for parent in list(svg.iter()):
        for child in list(parent):
            if _local_name(child.tag) in names:
                parent.remove(child)


def _titles_of_cells(figure: Any) -> dict[str, str]:
    """The texts that the cells of a heat map show on hover, keyed by the ids of the cells. Other
    figures have no cells."""
    titles: dict[str, str] = {}
    for artist in figure.findobj():
        artist_id = artist.get_gid()
        if artist_id is not None and artist_id.startswith(CELL_PREFIX):
            titles[artist_id] = artist.get_label()
    return titles


def _used_ids(svg: ElementTree.Element) -> set[str]:
    """The ids that some element refers to. Other ids are not needed: matplotlib gives one to every
    group."""
    ids: set[str] = set()
    for element in svg.iter():
        for value in element.attrib.values():
            ids.update(REFERENCE.findall(value))
    return ids


def _set_attribute(element: ElementTree.Element, key: str, value: str, name: str) -> None:
    """Set an attribute of an element, after two changes of its value. Our colours become variables
    of the style sheet. In a reference to an id, "url(#id)" or "#id", the name of the figure is put
    before the id, as in the id itself."""
    value = value.replace("url(#", f"url(#{name}-")
    if key == "href" and value.startswith("#"):
        value = f"#{name}-{value[1:]}"
    for variable, colour in COLOURS.items():
        value = value.replace(colour, f"var(--{variable})")
    element.set(key, value)
