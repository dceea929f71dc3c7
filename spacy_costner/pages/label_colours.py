"""The colours of labels in pages. They are displaCy's colours."""

from collections.abc import Iterable
from itertools import cycle

from spacy.displacy.render import DEFAULT_LABEL_COLORS
from spacy.util import registry

SYNONYMS = {"PER": "PERSON", "LOCATION": "LOC", "ORGANIZATION": "ORG"}
"""Labels that get the displaCy colour of another label."""


def label_colours(labels: Iterable[str]) -> dict[str, str]:
    """Choose a colour for each label: displaCy's colour, or the colour that a package has
    registered. Labels without such a colour get the unused displaCy colours, which repeat if there
    are too few.

    labels (Iterable[str]): The labels of a pipeline or of a session.
    RETURNS (dict[str, str]): The colours in CSS, by label.
    """
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
