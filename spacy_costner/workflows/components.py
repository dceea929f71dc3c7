"""Find the `cost_sensitive_ner` components of a pipeline, and run the components around them."""

from collections.abc import Iterable

from spacy.language import Language
from spacy.tokens import Doc

from ..pipeline.component import CostSensitiveNER


def get_component(nlp: Language, name: str) -> CostSensitiveNER:
    """Get a component of the factory `cost_sensitive_ner` by its name.

    RAISES (ValueError): If the pipeline has no such component with that name.
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
    """Find the components of the factory `cost_sensitive_ner`, by name, in the order of the
    pipeline."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)}


def check_ents(command: str, ner: CostSensitiveNER) -> None:
    """Check that the entities of a component are in `doc.ents`, where a command looks for them.

    command (str): The name of the command, for the error.
    RAISES (ValueError): If the component has a `spans_key`.
    """
    key = ner.annotation.spans_key
    if key is not None:
        raise ValueError(f"{command}: works on doc.ents, but {ner.name} has the spans_key {key!r}")


def run_before(nlp: Language, name: str, docs: Iterable[str | Doc]) -> list[Doc]:
    """Run the components that come before a component on texts or docs.

    name (str): The name of the component, which doesn't run itself.
    """
    # Not by `select_pipes`, which changes the pipeline: other threads may predict with it.
    index = nlp.pipe_names.index(name)
    return list(nlp.pipe(docs, disable=nlp.pipe_names[index:]))


def run_after(nlp: Language, name: str, docs: Iterable[Doc]) -> list[Doc]:
    """Run the components that come after a component on docs that it has annotated.

    name (str): The name of the component, which doesn't run itself.
    """
    index = nlp.pipe_names.index(name)
    return list(nlp.pipe(docs, disable=nlp.pipe_names[: index + 1]))
