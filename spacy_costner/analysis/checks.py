"""Check data and config before training.

`spacy debug data` checks the data of spaCy's own `ner` only.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ORTH
from spacy.schemas import ConfigSchemaInit, ConfigSchemaTraining
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_model_from_config, registry, resolve_dot_names

from ..borders import find_borders
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers import CorpusInfo
from ..readers.corpus import AnyCorpus
from ..readers.schemes import IO_WITHOUT_PREFIXES
from ..settings import check_settings
from ..spans import spans_as_entities, without_overlap
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

MANY, SURE, LOST = 3, 0.9, 0.08
"""Words of at least this number and share of tokens in entities are names. If more than this share
of docs have names and no entities, annotation is lost: 0.2 % in CoNLL-2002, 0.5 % in GENIA."""

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


class Finding(NamedTuple):
    """A problem in data or config."""

    severity: str  # "error" or "warning"
    corpus: str  # "config", "train" or "dev"
    message: str  # what its effect is
    places: Sequence[dict[str, Any]] = ()  # number and first words of a doc, and what is there


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

    overrides (dict[str, Any]): Settings to override, such as "paths.train".
    name (str | None): The name of the component, if the config has several.
    RAISES (ValueError): If there is no such component, or an unknown setting.
    """
    config = read_config(config_path, overrides)
    check_settings(config, config_path)
    nlp = load_model_from_config(config, auto_fill=True)
    ours = [other for other, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if name is None and len(ours) != 1:
        raise ValueError(
            f"expected a config with one cost_sensitive_ner, or the name of one, got {ours}"
        )
    ner = get_component(nlp, name or ours[0])
    interpolated = nlp.config.interpolate()
    training = registry.resolve(interpolated["training"], schema=ConfigSchemaTraining)
    readers = resolve_dot_names(interpolated, [training["train_corpus"], training["dev_corpus"]])
    corpora, of_files = {}, []
    for corpus, read in zip(("train", "dev"), readers):
        found = CorpusInfo()
        if isinstance(read, AnyCorpus):
            read.info = found
        corpora[corpus] = list(progress(read(nlp), desc=f"read {corpus}", unit="doc"))
        of_files += [Finding(WARNING, corpus, each.describe()) for each in found.problems]
        if IO_WITHOUT_PREFIXES in found.schemes:
            of_files.append(Finding(WARNING, corpus, NO_PREFIXES))
    init = registry.resolve(interpolated["initialize"], schema=ConfigSchemaInit)
    labels = init["components"].get(ner.name, {}).get("labels")
    evaluations = count_evaluations(training, corpora["train"], init["before_init"])
    result = check_corpora(ner, corpora, labels, evaluations)
    return result._replace(findings=[*result.findings, *of_files])


def check_corpora(
    ner: CostSensitiveNER,
    corpora: dict[str, list[Example]],
    labels: Sequence[str] | None = None,
    evaluations: Evaluations | None = None,
) -> Check:
    """Check the corpora "train" and "dev" for a component that is not initialized. Its labels are
    those of the training corpus by default."""
    findings: list[Finding] = []
    if (key := ner.annotation.spans_key) is not None:  # its spans are the entities
        own = ner.annotation.own_labels or labels
        severity = WARNING if ner.annotation.filter_spans else ERROR
        for corpus, examples in corpora.items():
            for i, eg in enumerate(examples):
                for span in without_overlap(eg.reference, key, own)[1]:
                    place = _place(i, eg.reference, f"{span.text!r} {span.label_}")
                    findings.append(Finding(severity, corpus, LOST_SPANS, [place]))

        def as_entities(eg: Example) -> Example:
            return Example(eg.predicted, spans_as_entities(eg.reference, key, own, longest=True))

        corpora = {corpus: [*map(as_entities, egs)] for corpus, egs in corpora.items()}
    counts = {
        corpus: Counter(ent.label_ for eg in egs for ent in eg.reference.ents)
        for corpus, egs in corpora.items()
    }
    labels = sorted(counts["train"]) if labels is None else labels
    if not labels:
        findings.append(Finding(ERROR, "train", "no entities and no labels"))
    for check_fit in (ner.objective.prepare, ner.check_decoding) if labels else ():
        try:
            check_fit(Tags(labels, ner.cfg["scheme"]))
        except ValueError as error:
            findings.append(Finding(ERROR, "config", str(error)))
    findings += check_labels(counts, labels)
    if evaluations is not None and (objection := evaluations.objection()):
        severity = WARNING if evaluations.are_after_training else ERROR
        findings.append(Finding(severity, "config", objection))
    for corpus, examples in corpora.items():
        findings += check_docs(corpus, examples, ner, labels)
        findings += check_words(corpus, [eg.reference for eg in examples])
    known = {eg.reference.text for eg in corpora["train"]}
    for i, eg in enumerate(corpora["dev"]):
        if eg.reference.text in known and len(eg.reference) >= SHORT:
            findings.append(Finding(WARNING, "dev", LEAKED, [_place(i, eg.reference)]))

    # The same problem of several docs is one finding.
    places: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for finding in findings:
        places.setdefault(finding[:3], []).extend(finding.places)
    every = sorted({*labels, *counts["train"], *counts["dev"]})
    return Check(
        component=ner.name,
        docs={corpus: len(examples) for corpus, examples in corpora.items()},
        tokens={corpus: sum(len(eg.reference) for eg in egs) for corpus, egs in corpora.items()},
        counts=[(label, counts["train"][label], counts["dev"][label]) for label in every],
        findings=sorted(
            (Finding(*problem, places=found) for problem, found in places.items()),
            key=lambda finding: finding.severity != ERROR,
        ),
    )


def check_labels(counts: dict[str, Counter], labels: Sequence[str]) -> Iterator[Finding]:
    """Check that there are enough entities of all labels, and that labels were not cut."""
    train, dev = counts["train"], counts["dev"]
    if few := [f"{label} ({train[label]})" for label in labels if train[label] < FEW_ENTITIES]:
        message = f"labels of fewer than {FEW_ENTITIES} entities: {', '.join(few)}"
        yield Finding(WARNING, "train", message)
    if unknown := [label for label in labels if not dev[label]]:
        message = f"labels of no entity, their scores are unknown: {', '.join(unknown)}"
        yield Finding(WARNING, "dev", message)
    spellings: dict[str, list[str]] = {}
    for label in sorted({*labels, *train, *dev}):
        spellings.setdefault(re.sub(r"[\W_]", "", label).casefold(), []).append(label)
    if alike := [" and ".join(names) for names in spellings.values() if len(names) > 1]:
        message = f"labels differ only in capitals or punctuation: {', '.join(alike)}"
        yield Finding(WARNING, "train", message)
    if labels and all(len(label) <= MOST_CUT for label in labels):
        yield Finding(WARNING, "train", f"all labels are very short: {', '.join(labels)}. {CUT}")


def check_words(corpus: str, docs: Sequence[Doc]) -> Iterator[Finding]:
    """Check that the annotation of words is the same in all docs: it may be lost in some docs, or
    shifted by a token in all."""
    with_entities = [doc for doc in docs if doc.ents]
    arrays = [numpy.pad(doc.to_array([ORTH, ENT_IOB]), ((1, 1), (0, 0))) for doc in with_entities]
    words, iob = numpy.concatenate([numpy.zeros((1, 2), "uint64"), *arrays]).T
    keys, ids, n_times = numpy.unique(words, return_inverse=True, return_counts=True)
    at = numpy.flatnonzero((iob == 1) | (iob == 3))
    for shift, how in ((0, ""), (-1, "earlier"), (1, "later")):
        counts = numpy.bincount(ids[at + shift], minlength=len(keys))
        counts[0] = 0  # what is before and after docs
        others = counts * (counts - 1) / numpy.maximum(n_times - 1, 1)
        share = others.sum() / max(counts.sum(), 1)
        if shift == 0:
            own, known = share, keys[(n_times >= MANY) & (counts >= SURE * n_times)]
        elif share > SHIFTED * own:
            message = (
                f"of words in entities, {own:.0%} are in entities elsewhere, too, but "
                f"{share:.0%} would be if entities began one token {how}"
            )
            yield Finding(WARNING, corpus, message)
    places = []
    for i, doc in enumerate(docs):
        if len(doc) and not doc.ents and (doc.to_array(ENT_IOB) == 2).all():
            is_known = numpy.isin(doc.to_array(ORTH), known)
            if is_known.any():
                places.append(_place(i, doc, doc[int(is_known.argmax())].text))
    if len(places) > LOST * len(docs):
        message = "docs have no entities, but words that are in entities in other docs"
        yield Finding(WARNING, corpus, message, places)


def _place(i: int, doc: Doc, text: str = "") -> dict[str, Any]:
    return {"doc": i, "words": first_words(doc), "text": text}


def check_docs(
    corpus: str, examples: Sequence[Example], ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[Finding]:
    """Check the docs of a corpus."""
    first: dict[tuple[str, ...], tuple[int, set[Any]]] = {}
    for i, eg in enumerate(examples):
        problems = [*check_doc(eg, ner, labels)]
        if len(eg.reference) and all(token.ent_iob for token in eg.reference):
            ents = {(ent.text, ent.label_, ent.start) for ent in eg.reference.ents}
            words = tuple(token.text for token in eg.reference)
            before, others = first.setdefault(words, (i, ents))
            if ents != others:
                text = f"{[*ents - others]} against {[*others - ents]} in doc {before}"
                problems.append((WARNING, CONTRADICTION, text))
        for severity, message, text in problems:
            yield Finding(severity, corpus, message, [_place(i, eg.reference, text)])
    if not any(token.ent_iob == 2 for eg in examples for token in eg.reference):
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
    if match := MOJIBAKE.search(doc.text):
        message = "texts were read in another encoding than their own (mojibake)"
        yield WARNING, message, repr(match[0])
    if match := INVISIBLE.search(doc.text):
        message = "texts have characters that can't be seen, which make other words of their words"
        yield WARNING, message, ascii(match[0])
    are_aligned = [token.text for token in doc] == [token.text for token in eg.predicted]
    incorrect = doc.spans.get(ner.annotation.incorrect_spans_key or "", ())
    refused = {(span.start, span.end, span.label_) for span in incorrect}
    borders = find_borders([eg.predicted], ner.annotation.sentence_boundaries)
    for ent in doc.ents:
        text = f"{ent.text!r} {ent.label_}"
        aligned = eg.get_aligned_spans_y2x([ent]) if borders.any() else []
        words = [[token.i for token in span if not token.is_space] for span in aligned]
        if any(borders[some[0] + 1 : some[-1] + 1].any() for some in words if some):
            yield WARNING, CROSSING, text
        if refused & {(ent.start, ent.end, label) for label in ("", ent.label_)}:
            yield ERROR, "entities are among the incorrect spans: their docs are not used", text
        if ent.label_ not in labels:
            yield WARNING, OTHER_LABELS, text
        if all(token.is_space for token in ent):
            yield WARNING, "entities are only whitespace: they are not used", text
        elif ent[0].is_space or ent[-1].is_space:
            yield WARNING, "entities begin or end with whitespace: it is removed", text
        elif not any(map(str.isalnum, ent.text)):
            yield WARNING, "entities without a letter or digit", text
        if not are_aligned and not eg.get_aligned_spans_y2x([ent]):
            yield WARNING, MISALIGNED, text
