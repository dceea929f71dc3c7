"""Settings for writing the probabilities of entities to docs, and functions for reading them.

Probabilities are stored in the span groups of `doc.spans`. The extension attribute
`span._.confidence` looks them up there.
"""

import warnings
from dataclasses import dataclass
from functools import cache

from spacy.tokens import Doc, Span, SpanGroup

from ..annotation.iob import BEGIN, INSIDE
from ..annotation.span_groups import score_of
from ..decoding import LEAST_PROB
from ..validation import as_number

SOURCE = "cost_sensitive_ner"
"""The value of the attribute "source" in span groups written by our components."""

SPANS_KEY = "spans_key"
"""The attribute of these span groups with the key in `doc.spans` that the component writes its
entities to. It is missing if the component writes them to `doc.ents`."""


@dataclass(frozen=True)
class Confidence:
    """Where the probabilities of entities are written: see `make_confidence`."""

    spans_key: str = "confidence"
    extension: str = "confidence"
    alternatives: float | None = None

    def __post_init__(self) -> None:
        """Check the settings.

        RAISES (ValueError): If a name is empty or the probability is out of range.
        """
        where = "spacy_costner.Confidence"
        names = {"spans_key": self.spans_key, "extension": self.extension}
        for setting, name in names.items():
            if not name or not isinstance(name, str):
                raise ValueError(f"{where}: {setting}: expected a name, got {name!r}")
        # There would be too many alternatives below this probability: see `LEAST_PROB`.
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
    """Create the settings for writing the probabilities of entities.

        [components.ner.confidence]
        @misc = "spacy_costner.Confidence.v1"
        alternatives = 0.1

    spans_key (str): The key in `doc.spans` to write the entities to. Their probabilities are stored
        in the group's `attrs["scores"]`, as in spaCy's `spancat`.
    extension (str): The name of the extension attribute that returns the probability of a span, by
        default `span._.confidence`.
    alternatives (float | None): The minimum probability of alternative entities, which are written
        to `doc.spans` under the same key with the suffix "_alternatives". If None, no alternatives
        are written.
    second_choice (float | None): Has no effect and must be null. This setting is only accepted so
        that pipelines saved by version 0.3.0, whose configs contain it, can be loaded.
    RAISES (ValueError): If a name is empty, the probability is out of range, or `second_choice` is
        not null.
    """
    if second_choice is not None:
        raise ValueError(
            "spacy_costner.Confidence: second_choice: expected null, as this setting no longer has "
            f"an effect, got {second_choice!r}: delete the line from [components.NAME.confidence]"
        )
    return Confidence(spans_key, extension, alternatives)


def register(confidence: Confidence) -> None:
    """Register the extension attribute of spans.

    RAISES (ValueError): If the name is already used by another extension.
    """
    name = confidence.extension
    if not Span.has_extension(name):
        # `force` prevents an error if another thread registers the extension at the same time.
        Span.set_extension(name, getter=confidence_of, force=True)
        return
    _default, _method, getter, _setter = Span.get_extension(name)
    if getter is not confidence_of:
        raise ValueError(
            "spacy_costner.Confidence: extension: expected a name that no other extension of "
            f"Span has, got {name!r}: set another one in [components.NAME.confidence]"
        )


def register_default() -> None:
    """Register the default extension for a component that doesn't write probabilities, so that
    `span._.confidence` returns None with a warning instead of raising an error. An existing
    extension with this name is not replaced."""
    name = Confidence.extension
    if not Span.has_extension(name):  # see `register` for `force`
        Span.set_extension(name, getter=confidence_of, force=True)


@cache
def warn_once(message: str) -> None:
    """Show a warning only once per process. The cache skips messages that have already been
    shown."""
    warnings.warn(message, stacklevel=3)


def scored_groups(doc: Doc) -> list[SpanGroup]:
    """Return the span groups of a doc that were written by our components: first the groups of
    predicted entities, then alternatives and guaranteed sets."""
    groups = [group for group in doc.spans.values() if group.attrs.get("source") == SOURCE]
    return sorted(groups, key=is_of_predicted, reverse=True)


def is_of_predicted(group: SpanGroup) -> bool:
    """Check whether a span group contains the predictions of a component. Our groups of
    alternatives and guaranteed sets have the attribute "set"."""
    return "set" not in group.attrs


def _is_entity(span: Span) -> bool:
    """Check whether a span is in `doc.ents`, by its tokens, because creating all entities of the
    doc for each span would be slow."""
    doc = span.doc
    tokens = doc[span.start : span.end]
    if (tokens.start_char, tokens.end_char) != (span.start_char, span.end_char):
        # Tokens have been merged or split since the span was created.
        tokens = doc.char_span(span.start_char, span.end_char) or doc[0:0]
    if not len(tokens):
        return False
    if tokens[0].ent_iob != BEGIN or tokens[0].ent_type != span.label:
        return False
    if any(token.ent_iob != INSIDE for token in tokens[1:]):
        return False
    return tokens.end == len(doc) or doc[tokens.end].ent_iob != INSIDE


def prob_of(span: Span) -> float | None:
    """Look up the probability of an entity in the span groups of its doc. Returns None if there is
    no probability. The entity is identified by its character offsets and its label, so the lookup
    works even after tokens have been merged or split.

    For an entity in `doc.ents`, only predicted entities are searched. If another component has set
    an entity that equals an alternative, its probability is None."""
    place = (span.start_char, span.end_char, span.label_)
    is_entity = _is_entity(span)
    for group in scored_groups(span.doc):
        if is_entity and not is_of_predicted(group):
            continue
        prob = score_of(group, place)
        if prob is not None:
            return prob
    return None


def confidence_of(span: Span) -> float | None:
    """Return the value of `span._.confidence`: see `prob_of`. Show a warning with an explanation if
    the doc has no probabilities at all."""
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
    """Find the span group of a component's predicted entities under the key chosen by `free_key`.

    doc (Doc): A doc that the component has processed.
    key (str): The `spans_key` of the component's confidence.
    name (str | None): The name of the component. If None, the group under `key` is returned,
        regardless of the component.
    RETURNS (SpanGroup | None): The group, or None if there is none.
    """
    if name is None:
        return doc.spans.get(key)
    for possible_key in (f"{key}_{name}", key):
        group = doc.spans.get(possible_key)
        # Groups without the attribute "component" are accepted, too, such as a user's own groups.
        if group is not None and group.attrs.get("component", name) == name:
            return group
    return None


def free_key(doc: Doc, key: str, name: str) -> str:
    """Choose the key for the probabilities of a component: `key` or, if another component has
    already written to it, `key` followed by the name of this component. Warn in the latter case.
    Groups that were not written by a component are replaced."""
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
