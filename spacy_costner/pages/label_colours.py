"""The colours of labels in pages, based on displaCy's colours."""

from collections.abc import Iterable
from itertools import cycle

from spacy.displacy.render import DEFAULT_LABEL_COLORS
from spacy.util import registry

SYNONYMS = {"PER": "PERSON", "LOCATION": "LOC", "ORGANIZATION": "ORG"}
"""Labels that use the displaCy colour of another label."""


def label_colours(labels: Iterable[str]) -> dict[str, str]:
    """Choose a colour for each label: displaCy's default colour or a colour registered by a
    package. Other labels are assigned the unused displaCy colours, which are repeated if necessary.

    labels (Iterable[str]): The labels.
    RETURNS (dict[str, str]): The CSS colours, keyed by label.
    """
    displacy_colours: dict[str, str] = dict(DEFAULT_LABEL_COLORS)
    for registered in registry.displacy_colors.get_all().values():
        # Packages register either a dictionary of colours or a function that returns one.
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
