"""Write a config: a model's config of the package, with the sections of a plan."""

import shlex
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from spacy.cli.init_config import RECOMMENDATIONS
from thinc.api import Config

import spacy_costner

from ...settings import check_settings
from .goes_together import MODELS, Plan
from .plan_sections import (
    CONFIDENCE,
    DECODING,
    LOSS,
    SCORER,
    confidence_section,
    cost_paths,
    decoding_sections,
    describe,
    is_schedule,
    largest_cost,
    loss_sections,
    score_per_cost,
    score_weights,
    scorer_sections,
)
from .sections import Section, below, find, read, render, replace, set_values
from .sizes import Size, ends, settings


class Corpora(NamedTuple):
    """What is known of the corpora.

    train (Optional[Path]): The training corpus.
    dev (Optional[Path]): The development corpus.
    size (Optional[Size]): The size of the training corpus.
    """

    train: Optional[Path] = None
    dev: Optional[Path] = None
    size: Optional[Size] = None


def write_config(
    plan: Plan,
    lang: str,
    corpora: Corpora = Corpora(),  # noqa: B008
    *,
    command: str = "python -m spacy costner init",
    path: str = "config.cfg",
    transformer: Optional[str] = None,
) -> str:
    """Write a config for a plan.

    plan (Plan): What it is to have.
    lang (str): The language.
    corpora (Corpora): The corpora, and their size.
    command (str): The command that makes it, for its head.
    path (str): Where it will be, for its head.
    transformer (Optional[str]): The name of the transformer. None: that of `spacy init config`.
    RETURNS (str): The config, with comments.
    RAISES (ValueError): If a file of costs can't be read, or doesn't fit the labels.
    """
    labels = corpora.size.labels if corpora.size is not None else ()
    scale = score_per_cost(largest_cost(plan.costs, labels), plan.costs.tree is not None)
    sections = _for_size(plan.model, _template(plan.model), corpora.size)
    paths = {"train": corpora.train, "dev": corpora.dev, **cost_paths(plan.costs)}
    given = {f"paths.{name}": str(file) for name, file in paths.items() if file is not None}
    sections = set_values(sections, {"nlp.lang": lang, **given})
    if plan.model == "transformer":
        sections = set_values(sections, _of_transformer(lang, transformer))
    n_later = max(1, len(plan.losses) - 1) if is_schedule(plan.losses) else 0
    loss = loss_sections(plan, scale, ends(n_later, sections))
    sections = replace(sections, LOSS, loss)
    sections = replace(sections, DECODING, decoding_sections(plan, sections))
    if plan.has_cost:
        sections = replace(sections, SCORER, scorer_sections(plan))
        sections = _put(sections, score_weights(plan))
    if plan.aim == "guarantee":
        ner = next(section for section in sections if section.name == "components.ner")
        off = f"{CONFIDENCE.rpartition('.')[2]} = null"
        body = tuple(line for line in ner.body if line != off)
        sections = [ner._replace(body=body) if each == ner else each for each in sections]
        sections = _put(sections, confidence_section())
    text = render(_head(plan, corpora, command, path), sections)
    check_settings(Config().from_str(text, interpolate=False), path)
    return text


def _template(model: str) -> List[Section]:
    """The config of a model, with batches in it."""
    _, whole = read(MODELS[model])
    sections = [section for section in whole if not _is_empty(section, whole)]
    if find(sections, "training.batcher") is None:
        for section in below(read("base")[1], "training.batcher"):
            sections = _put(sections, section)
    return sections


def _is_empty(section: Section, sections: Sequence[Section]) -> bool:
    """Whether a section outside of the components says nothing."""
    is_leaf = len(below(sections, section.name)) == 1 and not section.body
    return is_leaf and not section.name.startswith("components")


def _for_size(model: str, sections: List[Section], size: Optional[Size]) -> List[Section]:
    return sections if size is None else set_values(sections, settings(model, size, sections))


def _of_transformer(lang: str, name: Optional[str]) -> Dict[str, Any]:
    """The transformer that `spacy init config` chooses for the language."""
    known = RECOMMENDATIONS.get(lang, RECOMMENDATIONS["__default__"])["transformer"]["efficiency"]
    return {
        "components.transformer.model.name": name or known["name"],
        "training.accumulate_gradient": known["size_factor"],
    }


def _put(sections: Sequence[Section], section: Section) -> List[Section]:
    """Replace a section, or add it after the others of its parent."""
    if find(sections, section.name) is not None:
        return replace(sections, section.name, [section])
    at = sections.index(below(sections, section.name.rpartition(".")[0])[-1])
    return [*sections[: at + 1], section, *sections[at + 1 :]]


def _head(plan: Plan, corpora: Corpora, command: str, path: str) -> List[str]:
    """The comment at the head: the command, what it chose, and the next commands."""
    lines = [f"Made by spacy-costner {spacy_costner.__version__}:", "", f"    {command}", ""]
    lines += [f"{name + ':':<10}{words}" for name, words in describe(plan)]
    if corpora.size is not None:
        lines.append(f"{'corpus:':<10}{describe_size(corpora.size)}")
    lines += ["", "Next:", "", *(f"    {each}" for each in next_commands(plan, corpora, path))]
    return lines


def describe_size(size: Size) -> str:
    """A size in words."""
    counts = f"{size.docs:,} docs, {size.sentences:,} sentences, {size.words:,} words"
    if not size.labels:
        return f"about {size.sentences:,} sentences"
    return f"{counts}, {size.entities:,} entities of {len(size.labels)} labels"


def next_commands(plan: Plan, corpora: Corpora, path: str) -> List[str]:
    """The commands to run with a config.

    plan (Plan): What it has.
    corpora (Corpora): The corpora; those that are missing are named train.spacy and dev.spacy.
    path (str): Where the config is.
    RETURNS (List[str]): The commands, in order.
    """
    dev = shlex.quote(str(corpora.dev or "dev.spacy"))
    missing = "" if corpora.train else " --paths.train train.spacy"
    missing += "" if corpora.dev else f" --paths.dev {dev}"
    config = shlex.quote(path)
    commands = [
        f"python -m spacy costner check {config}{missing}",
        f"python -m spacy train {config}{missing} --output training",
    ]
    model = "training/model-best"
    if plan.is_calibrated:
        commands.append(
            f"python -m spacy costner calibrate {model} {dev} --output training/calibrated"
        )
        model = "training/calibrated"
    if plan.is_tuned:
        by = "" if plan.has_probabilities else " --parameter bias"
        aim = f" --{plan.aim} {plan.required}" if plan.required is not None else ""
        commands.append(
            f"python -m spacy costner tune {model} {dev} --output training/tuned{by}{aim}"
        )
        model = "training/tuned"
    if plan.aim == "guarantee":
        options = "--miss 0.05 --output training/guaranteed"
        commands.append(f"python -m spacy costner guarantee {model} other.spacy {options}")
        report = "training/guaranteed test.spacy --output report.html"
        return [*commands, f"python -m spacy costner report {report}"]
    return [*commands, f"python -m spacy evaluate {model} test.spacy --output scores.json"]
