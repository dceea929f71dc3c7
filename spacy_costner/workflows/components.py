"""Find the `cost_sensitive_ner` components of a pipeline and run the components before or after
them."""

from collections.abc import Iterable

from spacy.language import Language
from spacy.tokens import Doc

from ..pipeline.component import CostSensitiveNER

CHANGES_ENTITIES = frozenset(["doc.ents", "token.ent_iob", "token.ent_type"])
"""The values of spaCy's `assigns` that indicate that a component changes entities."""


def get_component(nlp: Language, name: str) -> CostSensitiveNER:
    """Get a `cost_sensitive_ner` component by name.

    RAISES (ValueError): If the pipeline has no `cost_sensitive_ner` component with this name.
    """
    components = find_components(nlp)
    if not components:
        raise ValueError(
            "expected a pipeline with a component of factory 'cost_sensitive_ner', got "
            f"{nlp.pipe_names}"
        )
    if name not in components:
        raise ValueError(
            f"expected the name of a cost_sensitive_ner, one of {[*components]}, got {name!r}"
        )
    return components[name]


def find_components(nlp: Language) -> dict[str, CostSensitiveNER]:
    """Return the `cost_sensitive_ner` components, keyed by name, in pipeline order."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)}


def check_ents(command: str, ner: CostSensitiveNER) -> None:
    """Check that a component writes its entities to `doc.ents`, as required by a command.

    command (str): The name of the command, for the error message.
    RAISES (ValueError): If the component has a `spans_key`.
    """
    key = ner.annotation.spans_key
    if key is not None:
        raise ValueError(f"{command}: works on doc.ents, but {ner.name} has the spans_key {key!r}")


def sets_entities(nlp: Language, name: str) -> bool:
    """Check whether a component changes entities, according to what it declares or, for spaCy's
    `span_ruler`, according to its setting `annotate_ents`.

    name (str): The name of the component.
    """
    if CHANGES_ENTITIES.intersection(nlp.get_pipe_meta(name).assigns):
        return True
    return bool(getattr(nlp.get_pipe(name), "annotate_ents", False))


def find_preset_labels(nlp: Language, name: str) -> set[str]:
    """Return the labels of the earlier components that set entities. Components that don't report
    their labels are skipped.

    name (str): The name of the component that runs after them.
    """
    labels: set[str] = set()
    for earlier_name in nlp.pipe_names[: nlp.pipe_names.index(name)]:
        if sets_entities(nlp, earlier_name):
            labels.update(nlp.pipe_labels.get(earlier_name, ()))
    return labels


def run_before(nlp: Language, name: str, docs: Iterable[str | Doc]) -> list[Doc]:
    """Run all components before the given component on texts or docs.

    name (str): The name of the component. It isn't run.
    """
    # Don't use `select_pipes`, which modifies the pipeline. Other threads may be using it.
    index = nlp.pipe_names.index(name)
    return list(nlp.pipe(docs, disable=nlp.pipe_names[index:]))


def run_after(nlp: Language, name: str, docs: Iterable[Doc]) -> list[Doc]:
    """Run all components after the given component on docs.

    name (str): The name of the component. It isn't run and must already have annotated the docs.
    """
    index = nlp.pipe_names.index(name)
    return list(nlp.pipe(docs, disable=nlp.pipe_names[: index + 1]))
