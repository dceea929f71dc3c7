"""The probabilities of entities in docs: where they are written, and how they are found again.

They are in span groups of `doc.spans`, and the extension attribute `span._.confidence` looks them
up there.
"""

import warnings
from dataclasses import dataclass
from functools import cache

from spacy.tokens import Doc, Span, SpanGroup

from ..annotation.span_groups import score_of
from ..decoding import LEAST_PROB
from ..validation import as_number

SOURCE = "cost_sensitive_ner"
"""The attribute "source" of span groups that our components have written."""


@dataclass(frozen=True)
class Confidence:
    """Where the probabilities of entities are written: see `make_confidence`."""

    spans_key: str = "confidence"
    extension: str = "confidence"
    alternatives: float | None = None

    def __post_init__(self) -> None:
        """Check the settings.

        RAISES (ValueError): If a name is missing, or the probability is out of its range.
        """
        where = "spacy_costner.Confidence"
        names = {"spans_key": self.spans_key, "extension": self.extension}
        for setting, name in names.items():
            if not name or not isinstance(name, str):
                raise ValueError(f"{where}: {setting}: expected a name, got {name!r}")
        # Less probable alternatives would be too many: see `LEAST_PROB`.
        if self.alternatives is not None and not LEAST_PROB <= as_number(self.alternatives) <= 1:
            raise ValueError(
                f"{where}: alternatives: expected null or a probability from {LEAST_PROB} to 1, "
                f"got {self.alternatives!r}"
            )


def make_confidence(
    *,
    spans_key: str = "confidence",
    extension: str = "confidence",
    alternatives: float | None = None,
    second_choice: float | None = None,
) -> Confidence:
    """Build the settings that say where the probabilities of entities are written.

        [components.ner.confidence]
        @misc = "spacy_costner.Confidence.v1"
        alternatives = 0.1

    spans_key (str): The key of the entities in `doc.spans`. Their probabilities are in the
        group's `attrs["scores"]`, as for spaCy's `spancat`.
    extension (str): The extension attribute of spans for the probability: `span._.confidence`.
    alternatives (float | None): Other entities with at least this probability are written to
        `doc.spans`, under the same key with "_alternatives". None: no other entities are written.
    second_choice (float | None): Always null, and without effect. spaCy needs this parameter to
        load pipelines that 0.3.0 saved, as their configs have it.
    RAISES (ValueError): If a name is empty, a probability is out of its range, or `second_choice`
        is not null.
    """
    if second_choice is not None:
        raise ValueError(
            "spacy_costner.Confidence: second_choice: expected null, as this setting no longer has "
            f"an effect, got {second_choice!r}: delete the line from [components.NAME.confidence]"
        )
    return Confidence(spans_key, extension, alternatives)


def register(confidence: Confidence) -> None:
    """Register the extension attribute of spans.

    RAISES (ValueError): If another extension has its name.
    """
    name = confidence.extension
    if not Span.has_extension(name):
        # `force`: another thread that loads a pipeline may register it at the same time.
        Span.set_extension(name, getter=confidence_of, force=True)
        return
    _default, _method, getter, _setter = Span.get_extension(name)
    if getter is not confidence_of:
        raise ValueError(
            "spacy_costner.Confidence: extension: expected a name that no other extension of "
            f"Span has, got {name!r}: set another one in [components.NAME.confidence]"
        )


def register_default() -> None:
    """Register the default extension for a component that writes no probabilities, so that
    `span._.confidence` is None with a warning, instead of an error. Another extension with this
    name stays."""
    name = Confidence.extension
    if not Span.has_extension(name):  # for `force` see `register`
        Span.set_extension(name, getter=confidence_of, force=True)


@cache
def warn_once(message: str) -> None:
    """Warn once in a process: the cache remembers which messages were shown."""
    warnings.warn(message, stacklevel=3)


def scored_groups(doc: Doc) -> list[SpanGroup]:
    """The span groups of a doc that our components have written: first the groups of predicted
    entities, then alternatives and guaranteed sets."""
    groups = [group for group in doc.spans.values() if group.attrs.get("source") == SOURCE]
    # Groups of predicted entities have no attribute "set", and False is sorted before True.
    return sorted(groups, key=lambda group: "set" in group.attrs)


def prob_of(span: Span) -> float | None:
    """Look up the probability that a component has written for an entity. It is found by the
    characters and the label of the entity, even if tokens were merged or split later. None: the doc
    has no probability for the entity."""
    place = (span.start_char, span.end_char, span.label_)
    for group in scored_groups(span.doc):
        prob = score_of(group, place)
        if prob is not None:
            return prob
    return None


def confidence_of(span: Span) -> float | None:
    """The getter of `span._.confidence`: see `prob_of`. If the doc has no probabilities at all, it
    warns and says why."""
    prob = prob_of(span)
    if prob is None and not scored_groups(span.doc):
        warn_once(
            "confidence: None, as the doc has no probabilities. A cost_sensitive_ner writes them, "
            "unless its config has confidence = null instead of the block "
            '[components.NAME.confidence] with @misc = "spacy_costner.Confidence.v1". Copies by '
            "Doc.from_docs, as_doc and to_json don't have them"
        )
    return prob


def group_of_component(doc: Doc, key: str, name: str | None) -> SpanGroup | None:
    """Find the span group of the predicted entities of a component, which was written to the key
    that `free_key` has chosen.

    doc (Doc): A doc that the component has predicted.
    key (str): The key of the component's confidence.
    name (str | None): The name of the component. None: the group of any component under this key.
    RETURNS (SpanGroup | None): The group. None: the doc doesn't have it.
    """
    if name is None:
        return doc.spans.get(key)
    for possible_key in (f"{key}_{name}", key):
        group = doc.spans.get(possible_key)
        # A group without the attribute "component", such as one that a user has made, counts, too.
        if group is not None and group.attrs.get("component", name) == name:
            return group
    return None


def free_key(doc: Doc, key: str, name: str) -> str:
    """Choose the key to which a component writes probabilities: `key` or, if another component has
    written to it, `key` with the name of this component, and a warning. A group that no component
    has written, such as a group of the user, is replaced."""
    if key not in doc.spans:
        return key
    group = doc.spans[key]
    if group.attrs.get("component", name) == name:
        return key
    warn_once(
        f"{name}: doc.spans[{key!r}] has the probabilities of {group.attrs['component']!r}. The "
        f"probabilities of {name!r} are in doc.spans[{key + '_' + name!r}]. For another key, set "
        f"spans_key in [components.{name}.confidence]"
    )
    return f"{key}_{name}"
