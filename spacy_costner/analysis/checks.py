"""Check data and config before training.

`spacy debug data` checks the data of spaCy's own `ner` only.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ORTH
from spacy.schemas import ConfigSchemaInit, ConfigSchemaTraining
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import load_model_from_config, registry, resolve_dot_names
from thinc.types import Array1d, Ints1d

from ..borders import find_borders
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers import CorpusInfo
from ..readers.corpus import AnyCorpus
from ..readers.schemes import IO_WITHOUT_PREFIXES
from ..settings import check_settings
from ..spans import keep_longest, spans_as_entities
from ..tags import Tags
from ..token_attrs import first_words
from ..training.eval_frequency import Evaluations, count_evaluations
from .loading import read_config
from .predictions import get_component

FEW_ENTITIES = 20
"""Labels with fewer entities get a warning."""

SHORT = 5
"""Docs with fewer tokens, such as numbers and headings, are often equal by chance."""

LONG = 500
"""Tokens that no sentence has."""

SHIFTED = 1.1
"""How many times as often words are in entities, if entities were a token earlier or later, for a
warning. In the Spanish corpus of CoNLL-2002 it is 0.5, in GENIA 0.8."""

MANY, SURE = 3, 0.9
"""Words of at least this number and share of tokens in entities are names."""

LOST = 0.08
"""If more than this share of docs have names and no entities, annotation is lost: 0.2 % in
CoNLL-2002, 0.5 % in GENIA."""

MOJIBAKE = re.compile(r"\S*(?:[ÂÃÐÑ][\x80-\xba\xbc-\xbf]|â[\x80€]|\ufffd)\S*")
"""UTF-8 that was read as Latin-1 or Windows-1252, and the mark for what can't be read."""

INVISIBLE = re.compile(r"\S*[\xad\u200b\u2060\ufeff]\S*")
"""Soft hyphens, zero-width spaces and byte order marks. Zero-width joiners are part of words."""

MOST_CUT = 2
"""Letters that are left of labels such as LOC and MISC, cut by two."""

CONTRADICTION = "docs with the same words have different entities"

OTHER_LABELS = "entities of labels that the component doesn't have: they count as O"

LEAKED = "docs are in the training corpus as well"

MISALIGNED = "entities don't begin and end with tokens: their tokens count as missing values"

NO_PREFIXES = "tags have no prefixes such as B-: entities of a label that touch are read as one"

CUT = (
    "`spacy convert` takes two letters off tags without a prefix such as B-: if these are not your "
    "labels, use `costner convert`"
)

ONE_SENTENCE = (
    f"docs of {LONG} tokens or more are one sentence. `spacy convert` doesn't know separators of "
    "white space, and joins the sentences: use `costner convert`"
)

CROSSING = (
    "entities cross a sentence start or line break (sentence_boundaries): they are learned, but "
    "can't be predicted"
)

LOST_SPANS = (
    "spans overlap with longer ones of the same component: give their labels to several "
    "components, or lose these spans by filter_spans = true"
)

ERROR, WARNING = "error", "warning"


class DocPlace(NamedTuple):
    """A place with a problem."""

    doc: int  # the number of the doc in its corpus, from 0
    words: str  # the first ones of the doc
    text: str  # what is there


class Finding(NamedTuple):
    """A problem in data or config."""

    severity: str  # "error" or "warning"
    corpus: str  # "config", "train" or "dev"
    message: str  # what its effect is
    places: Sequence[DocPlace] = ()


class Check(NamedTuple):
    """The result of a check."""

    component: str
    docs: dict[str, int]  # by corpus
    tokens: dict[str, int]
    counts: list[tuple[str, int, int]]  # labels with their entities in train and dev
    findings: list[Finding]  # errors first

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == ERROR for finding in self.findings)


def check(
    config_path: Path,
    *,
    overrides: dict[str, Any] = {},  # noqa: B006
    name: str | None = None,
) -> Check:
    """Check the corpora of a config for `spacy train`, and whether the config fits them.

    config_path (Path): The config.
    overrides (dict[str, Any]): Settings to override, such as "paths.train".
    name (str | None): The name of the component, if the config has several.
    RETURNS (Check): The counts of the corpora, and what was found.
    RAISES (ValueError): If there is no such component, or an unknown setting.
    """
    config = read_config(config_path, overrides)
    check_settings(config, config_path)
    nlp = load_model_from_config(config, auto_fill=True)
    names = [pipe.name for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if name is None and len(names) != 1:
        raise ValueError(
            f"expected a config with one cost_sensitive_ner, or the name of one, got {names}"
        )
    ner = get_component(nlp, name or names[0])
    interpolated = nlp.config.interpolate()
    training = registry.resolve(interpolated["training"], schema=ConfigSchemaTraining)
    readers = resolve_dot_names(interpolated, [training["train_corpus"], training["dev_corpus"]])
    corpora: dict[str, list[Example]] = {}
    file_findings: list[Finding] = []
    for corpus, read in zip(("train", "dev"), readers):
        info = CorpusInfo()
        if isinstance(read, AnyCorpus):
            read.info = info
        corpora[corpus] = list(progress(read(nlp), desc=f"read {corpus}", unit="doc"))
        for problem in info.problems:
            file_findings.append(Finding(WARNING, corpus, problem.as_text()))
        if IO_WITHOUT_PREFIXES in info.schemes:
            file_findings.append(Finding(WARNING, corpus, NO_PREFIXES))
    init = registry.resolve(interpolated["initialize"], schema=ConfigSchemaInit)
    labels = init["components"].get(ner.name, {}).get("labels")
    evaluations = count_evaluations(training, corpora["train"], init["before_init"])
    result = check_corpora(ner, corpora, labels, evaluations)
    return result._replace(findings=[*result.findings, *file_findings])


def check_corpora(
    ner: CostSensitiveNER,
    corpora: dict[str, list[Example]],
    labels: Sequence[str] | None = None,
    evaluations: Evaluations | None = None,
) -> Check:
    """Check the corpora "train" and "dev" for a component that is not initialized. Its labels are
    those of the training corpus by default."""
    findings: list[Finding] = []
    spans_key = ner.annotation.spans_key
    if spans_key is not None:
        own_labels = ner.annotation.own_labels or labels
        severity = WARNING if ner.annotation.filter_spans else ERROR
        findings += check_overlaps(corpora, spans_key, own_labels, severity)
        corpora = {
            corpus: [with_spans_as_entities(eg, spans_key, own_labels) for eg in examples]
            for corpus, examples in corpora.items()
        }
    counts = {corpus: count_labels(examples) for corpus, examples in corpora.items()}
    if labels is None:
        labels = sorted(counts["train"])
    if labels:
        findings += check_config(ner, Tags(labels, ner.cfg["scheme"]))
    else:
        findings.append(Finding(ERROR, "train", "no entities and no labels"))
    findings += check_labels(counts, labels)
    objection = "" if evaluations is None else evaluations.objection()
    if evaluations is not None and objection:
        severity = WARNING if evaluations.are_after_training else ERROR
        findings.append(Finding(severity, "config", objection))
    for corpus, examples in corpora.items():
        findings += check_docs(corpus, examples, ner, labels)
        findings += check_words(corpus, [eg.reference for eg in examples])
    findings += check_leaks(corpora)

    shown_labels = sorted({*labels, *counts["train"], *counts["dev"]})
    return Check(
        component=ner.name,
        docs={corpus: len(examples) for corpus, examples in corpora.items()},
        tokens={corpus: sum(len(eg.reference) for eg in egs) for corpus, egs in corpora.items()},
        counts=[(label, counts["train"][label], counts["dev"][label]) for label in shown_labels],
        findings=join_findings(findings),
    )


def check_overlaps(
    corpora: Mapping[str, Sequence[Example]],
    spans_key: str,
    labels: Collection[str] | None,
    severity: str,
) -> Iterator[Finding]:
    """Name the spans of a component that are lost, as they overlap with longer ones."""
    for corpus, examples in corpora.items():
        for i, eg in enumerate(examples):
            _, lost_spans = keep_longest(eg.reference, spans_key, labels)
            for span in lost_spans:
                place = place_in_doc(i, eg.reference, f"{span.text!r} {span.label_}")
                yield Finding(severity, corpus, LOST_SPANS, [place])


def with_spans_as_entities(eg: Example, spans_key: str, labels: Collection[str] | None) -> Example:
    """An example whose entities are the spans that a component with a `spans_key` learns."""
    return Example(eg.predicted, spans_as_entities(eg.reference, spans_key, labels, longest=True))


def count_labels(examples: Iterable[Example]) -> Counter[str]:
    """The number of entities of each label."""
    counts: Counter[str] = Counter()
    for eg in examples:
        counts.update(ent.label_ for ent in eg.reference.ents)
    return counts


def check_config(ner: CostSensitiveNER, tags: Tags) -> Iterator[Finding]:
    """Check that costs, weights and label trees of a component fit its labels."""
    for check_fit in (ner.objective.prepare, ner.check_decoding):
        try:
            check_fit(tags)
        except ValueError as error:
            yield Finding(ERROR, "config", str(error))


def check_leaks(corpora: Mapping[str, Sequence[Example]]) -> Iterator[Finding]:
    """Name the development docs whose text is in the training corpus."""
    train_texts = {eg.reference.text for eg in corpora["train"]}
    for i, eg in enumerate(corpora["dev"]):
        if eg.reference.text in train_texts and len(eg.reference) >= SHORT:
            yield Finding(WARNING, "dev", LEAKED, [place_in_doc(i, eg.reference)])


def join_findings(findings: Iterable[Finding]) -> list[Finding]:
    """The same problem of several docs is one finding. Errors come first."""
    places: dict[tuple[str, str, str], list[DocPlace]] = {}
    for finding in findings:
        problem = (finding.severity, finding.corpus, finding.message)
        places.setdefault(problem, []).extend(finding.places)
    joined = [Finding(*problem, places=doc_places) for problem, doc_places in places.items()]
    return sorted(joined, key=lambda finding: finding.severity != ERROR)


def check_labels(counts: dict[str, Counter], labels: Sequence[str]) -> Iterator[Finding]:
    """Check that there are enough entities of all labels, and that labels were not cut."""
    train = counts["train"]
    dev = counts["dev"]
    rare = [f"{label} ({train[label]})" for label in labels if train[label] < FEW_ENTITIES]
    if rare:
        message = f"labels of fewer than {FEW_ENTITIES} entities: {', '.join(rare)}"
        yield Finding(WARNING, "train", message)
    unknown = [label for label in labels if not dev[label]]
    if unknown:
        message = f"labels of no entity, their scores are unknown: {', '.join(unknown)}"
        yield Finding(WARNING, "dev", message)
    spellings: dict[str, list[str]] = {}
    for label in sorted({*labels, *train, *dev}):
        spellings.setdefault(re.sub(r"[\W_]", "", label).casefold(), []).append(label)
    alike = [" and ".join(names) for names in spellings.values() if len(names) > 1]
    if alike:
        message = f"labels differ only in capitals or punctuation: {', '.join(alike)}"
        yield Finding(WARNING, "train", message)
    if labels and all(len(label) <= MOST_CUT for label in labels):
        yield Finding(WARNING, "train", f"all labels are very short: {', '.join(labels)}. {CUT}")


def check_words(corpus: str, docs: Sequence[Doc]) -> Iterator[Finding]:
    """Check that the annotation of words is the same in all docs: it may be lost in some docs, or
    shifted by a token in all."""
    # A row for each token of docs with entities, and a row of zeros on either side of each doc, so
    # that a shift by one stays in the doc. Shape: (N', 2)
    arrays = [numpy.zeros((1, 2), "uint64")]
    for doc in docs:
        if doc.ents:
            arrays.append(numpy.pad(doc.to_array([ORTH, ENT_IOB]), ((1, 1), (0, 0))))
    words, iob = numpy.concatenate(arrays).T
    forms, form_of_token, n_times = numpy.unique(words, return_inverse=True, return_counts=True)
    entity_tokens = numpy.flatnonzero((iob == 1) | (iob == 3))

    def count_in_entities(shift: int) -> Ints1d:
        """How often each form is in entities, if these were shifted. Shape: (forms,)"""
        n_in_entities = numpy.bincount(form_of_token[entity_tokens + shift], minlength=len(forms))
        n_in_entities[0] = 0  # the zeros beside docs
        return n_in_entities

    def share_elsewhere(n_in_entities: Ints1d) -> float:
        """Of the other occurrences of words in entities, the share that is in entities, too."""
        in_entities = n_in_entities * (n_in_entities - 1) / numpy.maximum(n_times - 1, 1)
        return float(in_entities.sum() / max(n_in_entities.sum(), 1))

    n_in_entities = count_in_entities(0)
    share = share_elsewhere(n_in_entities)
    for shift, direction in ((-1, "earlier"), (1, "later")):
        shifted_share = share_elsewhere(count_in_entities(shift))
        if shifted_share > SHIFTED * share:
            message = (
                f"of words in entities, {share:.0%} are in entities elsewhere, too, but "
                f"{shifted_share:.0%} would be if entities began one token {direction}"
            )
            yield Finding(WARNING, corpus, message)

    names = forms[(n_times >= MANY) & (n_in_entities >= SURE * n_times)]
    places: list[DocPlace] = []
    for i, doc in enumerate(docs):
        if doc.ents or not len(doc) or not (doc.to_array(ENT_IOB) == 2).all():
            continue
        is_name = numpy.isin(doc.to_array(ORTH), names)
        if is_name.any():
            first_name = doc[int(is_name.argmax())]
            places.append(place_in_doc(i, doc, first_name.text))
    if len(places) > LOST * len(docs):
        message = "docs have no entities, but words that are in entities in other docs"
        yield Finding(WARNING, corpus, message, places)


def place_in_doc(i: int, doc: Doc, text: str = "") -> DocPlace:
    """The place of a problem in a doc with this number."""
    return DocPlace(i, first_words(doc), text)


def check_docs(
    corpus: str, examples: Sequence[Example], ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[Finding]:
    """Check the docs of a corpus."""
    # The first doc of these words: its number and its entities
    first_docs: dict[tuple[str, ...], tuple[int, set[Any]]] = {}
    has_outside = False
    for i, eg in enumerate(examples):
        doc = eg.reference
        problems = list(check_doc(eg, ner, labels))
        if len(doc) and all(token.ent_iob for token in doc):
            ents = {(ent.text, ent.label_, ent.start) for ent in doc.ents}
            words = tuple(token.text for token in doc)
            first_doc, first_ents = first_docs.setdefault(words, (i, ents))
            if ents != first_ents:
                text = f"{[*ents - first_ents]} against {[*first_ents - ents]} in doc {first_doc}"
                problems.append((WARNING, CONTRADICTION, text))
        for severity, message, text in problems:
            yield Finding(severity, corpus, message, [place_in_doc(i, doc, text)])
        has_outside = has_outside or any(token.ent_iob == 2 for token in doc)
    if not has_outside:
        message = "no token is annotated as O: the model can't learn what is not an entity"
        yield Finding(ERROR if corpus == "train" else WARNING, corpus, message)


def check_doc(
    eg: Example, ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """The problems of a doc: severity, message and text."""
    doc = eg.reference
    if len(doc) and not any(token.ent_iob for token in doc):
        yield WARNING, "docs without annotation of entities: they are not used", ""
    has_sentences = len(doc) >= LONG and doc.has_annotation("SENT_START", require_complete=True)
    if has_sentences and not (doc.to_array("SENT_START")[1:] == 1).any():
        yield WARNING, ONE_SENTENCE, ""
    misread = MOJIBAKE.search(doc.text)
    if misread is not None:
        message = "texts were read in another encoding than their own (mojibake)"
        yield WARNING, message, repr(misread[0])
    invisible = INVISIBLE.search(doc.text)
    if invisible is not None:
        message = "texts have characters that can't be seen, which make other words of their words"
        yield WARNING, message, ascii(invisible[0])
    yield from check_entities(eg, ner, labels)


def check_entities(
    eg: Example, ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """The problems of the entities of a doc: severity, message and text."""
    doc = eg.reference
    has_same_tokens = [token.text for token in doc] == [token.text for token in eg.predicted]
    incorrect = doc.spans.get(ner.annotation.incorrect_spans_key or "", ())
    refused = {(span.start, span.end, span.label_) for span in incorrect}
    borders = find_borders([eg.predicted], ner.annotation.sentence_boundaries)
    for ent in doc.ents:
        text = f"{ent.text!r} {ent.label_}"
        if borders.any() and crosses_border(eg, ent, borders):
            yield WARNING, CROSSING, text
        # An incorrect span without a label refuses all labels.
        if refused & {(ent.start, ent.end, ""), (ent.start, ent.end, ent.label_)}:
            yield ERROR, "entities are among the incorrect spans: their docs are not used", text
        if ent.label_ not in labels:
            yield WARNING, OTHER_LABELS, text
        if all(token.is_space for token in ent):
            yield WARNING, "entities are only whitespace: they are not used", text
        elif ent[0].is_space or ent[-1].is_space:
            yield WARNING, "entities begin or end with whitespace: it is removed", text
        elif not any(map(str.isalnum, ent.text)):
            yield WARNING, "entities without a letter or digit", text
        if not has_same_tokens and not eg.get_aligned_spans_y2x([ent]):
            yield WARNING, MISALIGNED, text


def crosses_border(eg: Example, ent: Span, borders: Array1d) -> bool:
    """Whether the chain of the predicted doc is cut within an entity. White space at its ends
    doesn't count. True in `borders` is the first token of a sequence. Shape: (T,)"""
    for span in eg.get_aligned_spans_y2x([ent]):
        words = [token.i for token in span if not token.is_space]
        if words and borders[words[0] + 1 : words[-1] + 1].any():
            return True
    return False
