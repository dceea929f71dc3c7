"""The colours of labels in pages: those of displaCy."""

from collections.abc import Iterable
from itertools import cycle

from spacy.displacy.render import DEFAULT_LABEL_COLORS
from spacy.util import registry

SYNONYMS = {"PER": "PERSON", "LOCATION": "LOC", "ORGANIZATION": "ORG"}
"""Labels that have the colour of another one in displaCy."""


def label_colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each label, as displaCy has it, with what packages have registered. A label
    that displaCy doesn't know has the next of its colours that no other label has. If these are
    used up, they are used again."""
    displacy_colours: dict[str, str] = dict(DEFAULT_LABEL_COLORS)
    for registered in registry.displacy_colors.get_all().values():
        # A package registers its colours, or a function that returns them.
        displacy_colours.update(registered() if callable(registered) else registered)

    colours: dict[str, str] = {}
    labels_without_colour: list[str] = []
    for label in labels:
        name = SYNONYMS.get(label, label).upper()
        if name in displacy_colours:
            colours[label] = displacy_colours[name]
        else:
            labels_without_colour.append(label)

    distinct_colours = list(dict.fromkeys(displacy_colours.values()))
    unused_colours = [colour for colour in distinct_colours if colour not in colours.values()]
    colours.update(zip(labels_without_colour, cycle(unused_colours or distinct_colours)))
    return colours
