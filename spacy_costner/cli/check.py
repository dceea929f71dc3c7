"""Check data and config before training.

`spacy debug data` checks the data of spaCy's own `ner` only.
"""

from collections import Counter
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import typer
from spacy.cli._util import import_code
from spacy.schemas import ConfigSchemaInit, ConfigSchemaTraining
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import load_config, load_model_from_config, registry, resolve_dot_names
from typer import Argument, Option

from ..metrics import text_table
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers import CorpusInfo
from ..readers.corpus import AnyCorpus
from ..readers.schemes import IO_WITHOUT_PREFIXES
from ..settings import check_overrides, check_settings
from ..tags import Tags
from ..training.evaluation import Evaluations, count_evaluations
from ..training.token_attrs import first_words
from .options import CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result
from .predictions import get_component

FEW = 20
"""Labels with fewer entities get a warning."""

SHORT = 5
"""Docs with fewer tokens, such as numbers and headings, are often equal by chance."""

LONG = 500
"""Tokens that no sentence has."""

MOST_CUT = 2
"""Letters that are left of labels such as LOC and MISC, cut by two."""

ONE_SENTENCE = (
    f"docs of {LONG} tokens or more are one sentence. `spacy convert` doesn't know separators of "
    "white space, and joins the sentences: use `costner convert`"
)

ERROR, WARNING = "error", "warning"


class Place(NamedTuple):
    """The place of a finding.

    doc (int): The index of the doc in its corpus.
    words (str): The first words of the doc.
    text (str): The text found; empty for the whole doc.
    """

    doc: int
    words: str
    text: str = ""


class Finding(NamedTuple):
    """A problem in data or config.

    severity (str): "error" or "warning".
    corpus (str): "config", "train" or "dev".
    message (str): The problem and its effect.
    places (List[Place]): All places.
    """

    severity: str
    corpus: str
    message: str
    places: List[Place]


class Check(NamedTuple):
    """The result of a check.

    component (str): The name of the component.
    docs (Dict[str, int]): Number of docs of each corpus.
    tokens (Dict[str, int]): Number of tokens of each corpus.
    counts (List[Tuple[str, int, int]]): Each label, in alphabetical order, with the number of its
        entities in the training and in the development corpus.
    findings (List[Finding]): Errors, then warnings.
    """

    component: str
    docs: Dict[str, int]
    tokens: Dict[str, int]
    counts: List[Tuple[str, int, int]]
    findings: List[Finding]

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == ERROR for finding in self.findings)


def _of_entity(
    ent: Span, ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[Tuple[str, str]]:
    """The problems of an entity of a reference doc: severity and message."""
    if ner.sentence_boundaries and any(token.is_sent_start for token in ent[1:]):
        yield ERROR, "entities cross the beginning of a sentence: their docs are not used"
    incorrect = ent.doc.spans.get(ner.objective.incorrect_spans_key or "", ())
    place = (ent.start, ent.end)
    if any((s.start, s.end) == place and s.label_ in ("", ent.label_) for s in incorrect):
        yield ERROR, "entities are among the incorrect spans: their docs are not used"
    if ent.label_ not in labels:
        yield WARNING, "entities of labels that the component doesn't have: they count as O"
    if all(token.is_space for token in ent):
        yield WARNING, "entities are only whitespace: they are not used"
    elif ent[0].is_space or ent[-1].is_space:
        yield WARNING, "entities begin or end with whitespace: it is removed"


def check(
    config_path: Path,
    *,
    overrides: Mapping[str, Any] = {},
    name: Optional[str] = None,
) -> Check:
    """Check the corpora of a config, and whether the config fits them.

    config_path (Path): The config, as for `spacy train`.
    overrides (Mapping[str, Any]): Settings to override, such as "paths.train".
    name (Optional[str]): The name of the component. Optional if the config has only one.
    RETURNS (Check): The result.
    RAISES (ValueError): If the config has no `cost_sensitive_ner`, or several and none is named,
        or an unknown setting.
    """
    check_overrides(load_config(config_path, interpolate=False), overrides)
    config = load_config(config_path, overrides=dict(overrides), interpolate=False)
    check_settings(config, config_path)
    nlp = load_model_from_config(config, auto_fill=True)
    name = name or _only(
        [other for other, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    )
    interpolated = nlp.config.interpolate()
    training = registry.resolve(interpolated["training"], schema=ConfigSchemaTraining)
    readers = resolve_dot_names(interpolated, [training["train_corpus"], training["dev_corpus"]])
    corpora: Dict[str, List[Example]] = {}
    of_files: List[Finding] = []
    for corpus, read in zip(("train", "dev"), readers):
        found = CorpusInfo()
        if isinstance(read, AnyCorpus):
            read.info = found
        corpora[corpus] = list(progress(read(nlp), desc=f"read {corpus}", unit="doc"))
        of_files += _of_files(corpus, found)
    init = registry.resolve(interpolated["initialize"], schema=ConfigSchemaInit)
    given = init["components"].get(name, {}).get("labels")
    evaluations = count_evaluations(training, corpora["train"], init["before_init"])
    result = look(get_component(nlp, name), corpora, given, evaluations)
    return result._replace(findings=[*result.findings, *of_files])


def _of_files(corpus: str, found: CorpusInfo) -> Iterator[Finding]:
    """What the reader `spacy_costner.read.v1` found in the files of a corpus."""
    for problem in found.problems:
        yield Finding(WARNING, corpus, problem.describe(), [])
    if IO_WITHOUT_PREFIXES in found.schemes:
        message = "tags have no prefixes such as B-: entities of a label that touch are read as one"
        yield Finding(WARNING, corpus, message, [])


def _only(names: List[str]) -> str:
    if len(names) != 1:
        raise ValueError(
            f"expected a config with one cost_sensitive_ner, or the name of one, got {names}"
        )
    return names[0]


def look(
    ner: CostSensitiveNER,
    corpora: Mapping[str, Sequence[Example]],
    given: Optional[Sequence[str]] = None,
    evaluations: Optional[Evaluations] = None,
) -> Check:
    """Check corpora for a component.

    ner (CostSensitiveNER): The component, not initialized.
    corpora (Mapping[str, Sequence[Example]]): "train" and "dev".
    given (Optional[Sequence[str]]): Its labels. None: the labels of the training corpus.
    evaluations (Optional[Evaluations]): When training evaluates, if that is known.
    RETURNS (Check): The result.
    """
    counts = {
        corpus: Counter(ent.label_ for eg in examples for ent in eg.reference.ents)
        for corpus, examples in corpora.items()
    }
    labels = tuple(sorted(counts["train"]) if given is None else given)
    findings = [*_of_config(ner, labels), *_of_labels(counts, labels)]
    if evaluations is not None and (objection := evaluations.objection()):
        severity = WARNING if evaluations.are_after_training else ERROR
        findings.append(Finding(severity, "config", objection, []))
    for corpus, examples in corpora.items():
        findings += _of_corpus(corpus, examples, ner, labels)
    findings += _of_both(corpora["train"], corpora["dev"])
    every = sorted({*labels, *counts["train"], *counts["dev"]})
    return Check(
        component=ner.name,
        docs={corpus: len(examples) for corpus, examples in corpora.items()},
        tokens={corpus: sum(len(eg.reference) for eg in egs) for corpus, egs in corpora.items()},
        counts=[(label, counts["train"][label], counts["dev"][label]) for label in every],
        findings=sorted(findings, key=lambda finding: finding.severity != ERROR),
    )


def _of_config(ner: CostSensitiveNER, labels: Sequence[str]) -> Iterator[Finding]:
    """Check that costs, weights and decoding fit the labels."""
    if not labels:
        yield Finding(ERROR, "train", "no entities and no labels", [])
        return
    tags = Tags(labels, ner.cfg["scheme"])
    for check_fit in (ner.objective.prepare, ner.check_decoding):
        try:
            check_fit(tags)
        except ValueError as error:
            yield Finding(ERROR, "config", str(error), [])


def _of_labels(counts: Mapping[str, Counter], labels: Sequence[str]) -> Iterator[Finding]:
    of_train = counts["train"]
    if few := [f"{label} ({of_train[label]})" for label in labels if of_train[label] < FEW]:
        message = f"labels of fewer than {FEW} entities: {', '.join(few)}"
        yield Finding(WARNING, "train", message, [])
    if unknown := [label for label in labels if not counts["dev"][label]]:
        message = f"labels of no entity, their scores are unknown: {', '.join(unknown)}"
        yield Finding(WARNING, "dev", message, [])
    if labels and all(len(label) <= MOST_CUT for label in labels):
        message = (
            f"all labels are very short: {', '.join(labels)}. `spacy convert` takes two letters "
            "off tags without a prefix such as B-: if these are not your labels, use `costner "
            "convert`"
        )
        yield Finding(WARNING, "train", message, [])


def _of_corpus(
    corpus: str, examples: Sequence[Example], ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[Finding]:
    """Problems of docs and entities."""
    places: Dict[Tuple[str, str], List[Place]] = {}
    is_outside = False
    for i, eg in enumerate(examples):
        is_outside = is_outside or any(token.ent_iob == 2 for token in eg.reference)
        for severity, message, text in _of_doc(eg, ner, labels):
            place = Place(i, first_words(eg.reference), text)
            places.setdefault((severity, message), []).append(place)
    for (severity, message), found in places.items():
        yield Finding(severity, corpus, message, found)
    if not is_outside:
        message = "no token is annotated as O: the model can't learn what is not an entity"
        yield Finding(ERROR if corpus == "train" else WARNING, corpus, message, [])
    yield from _contradictions(corpus, examples)


def _of_doc(
    eg: Example, ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[Tuple[str, str, str]]:
    """The problems of a doc: severity, message and text."""
    doc = eg.reference
    if len(doc) and not any(token.ent_iob for token in doc):
        yield WARNING, "docs without annotation of entities: they are not used", ""
    has_sentences = len(doc) >= LONG and doc.has_annotation("SENT_START", require_complete=True)
    if has_sentences and not (doc.to_array("SENT_START")[1:] == 1).any():
        yield WARNING, ONE_SENTENCE, ""
    for ent in doc.ents:
        for severity, message in _of_entity(ent, ner, labels):
            yield severity, message, f"{ent.text!r} {ent.label_}"
    if [token.text for token in doc] != [token.text for token in eg.predicted]:
        message = "entities don't begin and end with tokens: their tokens count as missing values"
        for ent in doc.ents:
            if not eg.get_aligned_spans_y2x([ent]):
                yield WARNING, message, f"{ent.text!r} {ent.label_}"


def _contradictions(corpus: str, examples: Sequence[Example]) -> Iterator[Finding]:
    """Docs with the same words and other entities, without those that are partly annotated."""
    first: Dict[Tuple[str, ...], int] = {}
    places = []
    for i, eg in enumerate(examples):
        doc = eg.reference
        if not len(doc) or not all(token.ent_iob for token in doc):
            continue
        before = first.setdefault(tuple(token.text for token in doc), i)
        here, there = _entities(doc), _entities(examples[before].reference)
        if here != there:
            text = f"{[*here - there]} against {[*there - here]} in doc {before}"
            places.append(Place(i, first_words(doc), text))
    if places:
        yield Finding(WARNING, corpus, "docs with the same words have different entities", places)


def _entities(doc: Doc) -> Set[Tuple[str, str, int]]:
    return {(ent.text, ent.label_, ent.start) for ent in doc.ents}


def _of_both(train: Sequence[Example], dev: Sequence[Example]) -> Iterator[Finding]:
    known = {eg.reference.text for eg in train}
    places = [
        Place(i, first_words(eg.reference))
        for i, eg in enumerate(dev)
        if eg.reference.text in known and len(eg.reference) >= SHORT
    ]
    if places:
        yield Finding(WARNING, "dev", "docs are in the training corpus as well", places)


def check_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to train with", exists=True)],
    name: Annotated[Optional[str], Option("--name", help="Name of the component")] = None,
    n_places: Annotated[int, Option("--places", "-n", help="Docs to show per finding")] = 3,
    print_json: JsonOption = False,
    code_path: CodeOption = None,
) -> None:
    """
    Check your data and config before training: entities per label, annotation that can't be
    learned, and whether costs, label trees and weights fit the labels. Override settings as in
    `spacy train`, e.g. --paths.train ./train.spacy. The exit code is 1 if there are errors.
    """
    overrides = read_overrides(ctx)
    with errors_shown():
        import_code(code_path)
        found = check(config_path, overrides=overrides, name=name)
    print_result(found, describe(found, n_places), print_json)
    if found.has_errors:
        raise typer.Exit(1)


def describe(found: Check, n_places: int) -> str:
    """The counts, the findings with their first places, and how many there are."""
    totals = (("docs", found.docs), ("tokens", found.tokens))
    rows = [
        ["label", "train", "dev"],
        *found.counts,
        *([what, numbers["train"], numbers["dev"]] for what, numbers in totals),
    ]
    lines = [found.component, "", text_table(rows)]
    for finding in found.findings:
        number = f" ({len(finding.places)})" if finding.places else ""
        lines.append(f"\n{finding.severity}: {finding.corpus}: {finding.message}{number}")
        lines += [
            f"    doc {place.doc}: {place.words} {place.text}".rstrip()
            for place in finding.places[:n_places]
        ]
    severities = [finding.severity for finding in found.findings]
    return "\n".join([*lines, "", f"{count(severities, ERROR)}, {count(severities, WARNING)}"])


def count(severities: List[str], severity: str) -> str:
    """How many findings have a severity, in words."""
    n = severities.count(severity)
    return f"{n or 'no'} {severity}{'' if n == 1 else 's'}"
