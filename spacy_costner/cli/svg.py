"""Convert figures to <svg> elements for HTML pages or to SVG files.

The colours of the figure are replaced with variables of the page's style sheet, to support light
and dark mode. The script and style sheet of the page refer to parts of a figure by the IDs and
classes set by the functions in `plots`.
"""

import re
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..files.saving import save_text
from ..pages.rendering import colour_variables
from .plots import CELL_PREFIX, CHOSEN, COLOURS, FRAME, drawing

# Code points that aren't allowed in XML: control characters except tab, line feed and carriage
# return, surrogates, and two noncharacters
_CODES_NOT_IN_XML = (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)

NOT_IN_XML = dict.fromkeys(_CODES_NOT_IN_XML, "\N{REPLACEMENT CHARACTER}")
"""A table for `str.translate` that replaces characters not allowed in XML, which may occur in
labels."""

REFERENCE = re.compile(r"(?:^|url\()#([\w-]+)")
"""The pattern of references to IDs in attribute values: "#id" or "url(#id)"."""


def as_svg(figure: Any, name: str) -> str:
    """Convert a figure to an <svg> element, using the colour variables of the page's style sheet.
    Cells of heat maps show their values on hover.

    figure (Any): The matplotlib figure.
    name (str): The name of the figure. It is used as a prefix for IDs, which must be unique within
        a page.
    RETURNS (str): The <svg> element.
    """
    buffer = StringIO()
    with drawing():
        # Omit the date, so that the output is reproducible.
        no_metadata = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    svg = ElementTree.fromstring(buffer.getvalue().translate(NOT_IN_XML))
    # Remove matplotlib's style, because its rule for "*" would apply to the entire page.
    _remove_elements(svg, "metadata", "style")

    titles = _titles_of_cells(figure)
    used_ids = _used_ids(svg)
    for element in svg.iter():
        # SVG elements in HTML have no namespace.
        element.tag = _local_name(element.tag)
        attributes = dict(element.attrib)
        element.attrib.clear()
        element_id = attributes.pop("id", "")
        if element_id in (FRAME, CHOSEN):  # use classes, because these occur in several figures
            element.set("class", element_id)
        elif element_id in titles:
            # Browsers show an element's first <title> child on hover.
            title = ElementTree.Element("title")
            title.text = titles[element_id].translate(NOT_IN_XML)
            element.insert(0, title)
        elif element_id in used_ids:
            element.set("id", f"{name}-{element_id}")
        for key, value in attributes.items():
            _set_attribute(element, _local_name(key), value, name)
    return ElementTree.tostring(svg, encoding="unicode").strip()


def save_svg(figure: Any, path: Path) -> None:
    """Save a figure as an SVG file with colours for light and dark mode."""
    element, rest = as_svg(figure, "figure").split(">", 1)
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    save_text(path, f"{element} {namespace}><style>{colour_variables()}</style>{rest}\n")


def _local_name(name: str) -> str:
    """Remove the namespace from the name of an element or attribute. For example, "{namespace}name"
    becomes "name"."""
    return name.rpartition("}")[2]


def _remove_elements(svg: ElementTree.Element, *names: str) -> None:
    """Remove all elements with the given names."""
    for parent in list(svg.iter()):
        for child in list(parent):
            if _local_name(child.tag) in names:
                parent.remove(child)


def _titles_of_cells(figure: Any) -> dict[str, str]:
    """Return the tooltips of heat map cells, keyed by cell ID. The result is empty for other
    figures."""
    titles: dict[str, str] = {}
    for artist in figure.findobj():
        artist_id = artist.get_gid()
        if artist_id is not None and artist_id.startswith(CELL_PREFIX):
            titles[artist_id] = artist.get_label()
    return titles


def _used_ids(svg: ElementTree.Element) -> set[str]:
    """Return all IDs that are referenced by an element. Other IDs, which matplotlib assigns to
    every group, aren't needed."""
    ids: set[str] = set()
    for element in svg.iter():
        for value in element.attrib.values():
            ids.update(REFERENCE.findall(value))
    return ids


def _set_attribute(element: ElementTree.Element, key: str, value: str, name: str) -> None:
    """Set an attribute of an element. Colours in the value are replaced with variables of the style
    sheet, and references to IDs ("url(#id)" or "#id") are prefixed with the name of the figure."""
    value = value.replace("url(#", f"url(#{name}-")
    if key == "href" and value.startswith("#"):
        value = f"#{name}-{value[1:]}"
    for variable, colour in COLOURS.items():
        value = value.replace(colour, f"var(--{variable})")
    element.set(key, value)
