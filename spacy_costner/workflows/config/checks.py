"""Check data and config before training. (`spacy debug data` only checks the data of spaCy's
built-in `ner`.)

A finding is a problem in a corpus or in the config, with all docs in which it occurs. It is an
error if it makes correct training or prediction impossible, and a warning if it may be a mistake.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.schemas import ConfigSchemaInit, ConfigSchemaTraining
from spacy.tokens import Doc
from spacy.training import Example
from spacy.training.initialize import load_vectors_into_model
from spacy.util import load_model_from_config, registry

from ...annotation.spans import keep_longest, spans_as_entities
from ...features import check_vectors, measure_coverage, scaled_vectors
from ...ml import is_linear, linear_part
from ...pipeline.component import CostSensitiveNER
from ...pipeline.reading import begins_sentences
from ...progress import progress
from ...readers import DEFAULTS, CorpusInfo, CorpusSummary, ReadOptions, with_info
from ...readers.schemes import IO_WITHOUT_PREFIXES
from ...tags import Tags
from ...training.eval_frequency import Evaluations, count_evaluations
from ...training.soft_targets import count_expected_entities, has_soft_targets
from ...training.stages import find_schedule_problem
from ..components import get_component
from ..corpora import corpus_path, find_corpora
from ..evaluation.recurrence import KnownText, note_copies, note_known
from .annotation_consistency import check_words
from .doc_checks import check_docs
from .findings import ERROR, WARNING, DocPlace, Finding, join_findings, place_in_doc
from .loading import read_config, with_reading
from .trainable import can_be_fitted
from .unknown_settings import check_settings

LEAST_COVERAGE = 0.5
"""If a smaller share of words has static vectors, the vectors may be for a different language."""

FEW_ENTITIES = 20
"""Labels with fewer entities trigger a warning."""

MAX_CUT_LENGTH = 2
"""`spacy convert` strips two letters from some labels: MISC becomes SC. This may have happened if
no label is longer than this."""

NO_DEV = "expected a development corpus for `spacy train`, got none: set paths.dev"

NO_PREFIXES = "tags have no prefixes such as B-: entities of a label that touch are read as one"

CUT = (
    "`spacy convert` strips two letters from tags without a prefix such as B-: if these are not "
    "your labels, use `costner convert`"
)

STARTS = frozenset(("token.is_sent_start", "doc.sents"))
"""Components that set sentence starts (senter, sentencizer, parser) list one of these attributes
under `assigns` in their metadata."""

NO_STARTS = (
    "docs have sentence starts, and no component of the pipeline sets them: the chain is trained "
    "with and without them, and evaluated without. `fit` prints the score with a sentencizer, too"
)

LOST_SPANS = (
    "spans overlap with longer ones of the same component: give their labels to several "
    "components, or lose these spans by filter_spans = true"
)


class Check(NamedTuple):
    """The result of a check.

    component (str): The name of the component.
    docs (dict[str, int]): The number of docs in "train" and "dev".
    tokens (dict[str, int]): The number of tokens in each corpus.
    counts (list[tuple[str, int, int]]): Each label with its number of entities in train and dev.
    findings (list[Finding]): The findings, errors first.
    corpora (Mapping[str, CorpusSummary]): A summary of how "train" and "dev" were read.
    """

    component: str
    docs: dict[str, int]
    tokens: dict[str, int]
    counts: list[tuple[str, int, int]]
    findings: list[Finding]
    corpora: Mapping[str, CorpusSummary] = {}

    @property
    def has_errors(self) -> bool:
        """Whether any of the findings is an error."""
        return any(finding.severity == ERROR for finding in self.findings)


def check(
    config_path: Path,
    *,
    overrides: dict[str, Any] = {},  # noqa: B006
    name: str | None = None,
    reading: ReadOptions = DEFAULTS,
) -> Check:
    """Check the corpora of a config for `spacy train` or `fit`, and whether the config is suitable
    for them. The development corpus may be missing if `fit` can train the config.

    config_path (Path): The path of the config.
    overrides (dict[str, Any]): Settings to override, e.g. "paths.train".
    name (str | None): Name of the component, if the config has several.
    reading (ReadOptions): Options for reading the corpora. They override the settings in the
        config.
    RETURNS (Check): The counts of the corpora, and the findings.
    RAISES (ValueError): If the component is missing, a setting is unknown, or the config or a
        corpus can't be read.
    """
    config = with_reading(read_config(config_path, overrides), reading)
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
    init = registry.resolve(interpolated["initialize"], schema=ConfigSchemaInit)

    # Read the corpora.
    corpora: dict[str, list[Example]] = {}
    summaries: dict[str, CorpusSummary] = {}
    file_findings: list[Finding] = []
    for corpus, read in zip(("train", "dev"), find_corpora(nlp)):
        if read is None:  # no development corpus
            if not can_be_fitted(config):
                file_findings.append(Finding(ERROR, "config", NO_DEV))
            continue
        examples, info = read_corpus(nlp, corpus, read, ner.annotation.spans_key)
        corpora[corpus] = examples
        summaries[corpus] = info.summary()
        file_findings += find_file_problems(corpus, info)

    # Check the corpora. The `before_init` callback may increase the frequency of evaluations.
    labels = init["components"].get(ner.name, {}).get("labels")
    evaluations = count_evaluations(training, corpora["train"], init["before_init"])
    paths = {name: corpus_path(interpolated, f"{name}_corpus") for name in ("train", "dev")}
    result = check_corpora(ner, corpora, labels, evaluations, paths)
    train_docs = [eg.reference for eg in corpora["train"]]
    vector_findings = check_static_vectors(nlp, ner, init["vectors"], train_docs)
    border_findings = check_sentence_starts(nlp, ner, corpora)
    findings = [*result.findings, *file_findings, *vector_findings, *border_findings]
    counted = None if is_linear(ner.model) else lambda: corpora["train"]
    objection = find_schedule_problem(ner.objective.loss, interpolated["training"], counted)
    if objection:
        findings.append(Finding(WARNING, "config", objection))
    return result._replace(findings=join_findings(findings), corpora=summaries)


def read_corpus(
    nlp: Language,
    corpus: str,
    read: Callable[[Language], Iterable[Example]],
    spans_key: str | None,
) -> tuple[list[Example], CorpusInfo]:
    """Read the "train" or "dev" corpus of a config. Returns its examples and the information
    reported by the reader."""
    read, info = with_info(read, spans_key)
    return list(progress(read(nlp), desc=f"read {corpus}", unit="doc")), info


def find_file_problems(corpus: str, info: CorpusInfo) -> Iterator[Finding]:
    """Convert the problems reported by the reader of a corpus, "train" or "dev", to findings."""
    for problem in info.problems:
        yield Finding(WARNING, corpus, problem.as_text())
    if IO_WITHOUT_PREFIXES in info.schemes:
        yield Finding(WARNING, corpus, NO_PREFIXES)


def check_sentence_starts(
    nlp: Language, ner: CostSensitiveNER, corpora: Mapping[str, Sequence[Example]]
) -> Iterator[Finding]:
    """Find corpora with sentence starts that the component uses during training, but that aren't
    available at prediction time because no earlier component sets them."""
    if not ner.annotation.sentence_boundaries:
        return
    for name in nlp.pipe_names[: nlp.pipe_names.index(ner.name)]:
        # Check the metadata instead of the output, because the component may not be trained yet.
        if STARTS.intersection(nlp.get_pipe_meta(name).assigns):
            return
    for corpus, examples in corpora.items():
        are_annotated = any(begins_sentences(eg.reference) for eg in examples)
        are_predicted = any(begins_sentences(eg.predicted) for eg in examples)
        if are_annotated and not are_predicted:
            yield Finding(WARNING, corpus, NO_STARTS)


def check_static_vectors(
    nlp: Language, ner: CostSensitiveNER, vectors: str | None, docs: Sequence[Doc]
) -> Iterator[Finding]:
    """Check that the words in the training docs have static vectors, if the model uses them as
    input: missing vectors are an error, and low coverage is a warning. The vectors of
    `initialize.vectors` are loaded into the pipeline, as during initialization."""
    # Only linear models and hybrids have this attribute and a feature template.
    if "build_vocab" not in ner.model.attrs:
        return
    features, _ = linear_part(ner.model)
    if not features.template.include_static_vectors:
        return
    try:
        if vectors is not None:
            load_vectors_into_model(nlp, vectors)
        check_vectors(nlp.vocab.vectors)
    except OSError as error:
        yield Finding(ERROR, "config", f"initialize.vectors: {error}")
        return
    except ValueError as error:
        yield Finding(ERROR, "config", str(error))
        return
    word_counts: Counter[str] = Counter()
    for doc in docs:
        word_counts.update(token.text for token in doc)
    lexemes = [nlp.vocab[word] for word in word_counts]
    # The coverage doesn't depend on the scale.
    inputs = scaled_vectors(nlp.vocab.vectors, scale=1.0)
    coverage = measure_coverage(inputs, lexemes, list(word_counts.values()))
    if coverage.n_words and coverage.share < LEAST_COVERAGE:
        yield Finding(WARNING, "train", f"{coverage.as_text()}: see initialize.vectors")


def check_corpora(
    ner: CostSensitiveNER,
    corpora: dict[str, list[Example]],
    labels: Sequence[str] | None = None,
    evaluations: Evaluations | None = None,
    paths: Mapping[str, str | None] = {},
) -> Check:
    """Check the "train" corpus and, if it exists, the "dev" corpus for a component that will be
    initialized. If `labels` is None, the labels of the training corpus are used. A component from
    another pipeline (`source`) keeps its labels. If `evaluations` is None, the
    frequency of evaluations isn't checked."""
    findings: list[Finding] = []
    # With a `spans_key`, the component's spans replace the entities in all following checks.
    spans_key = ner.annotation.spans_key
    if spans_key is not None:
        # The labels of the component's own spans, or None for all labels
        own_labels = ner.annotation.own_labels or labels
        severity = WARNING if ner.annotation.filter_spans else ERROR
        findings += check_overlaps(corpora, spans_key, own_labels, severity)
        corpora = {
            corpus: [with_spans_of_key(eg, spans_key, own_labels) for eg in examples]
            for corpus, examples in corpora.items()
        }

    # Labels, and the config
    counts = {corpus: count_labels(examples) for corpus, examples in corpora.items()}
    if labels is None:
        labels = sorted(counts["train"])
    labels = list(dict.fromkeys([*ner.labels, *labels]))
    if labels:
        findings += check_config(ner, Tags(labels, ner.cfg["scheme"]))
    else:
        findings.append(Finding(ERROR, "train", "no entities and no labels"))
    findings += check_labels(counts, labels)
    if evaluations is not None and not evaluations.are_enough:
        # If the only evaluation is after the first step, `spacy train` saves that model.
        severity = WARNING if evaluations.are_after_training else ERROR
        findings.append(Finding(severity, "config", evaluations.objection()))

    # Docs
    n_docs = {"train": 0, "dev": 0}
    n_tokens = {"train": 0, "dev": 0}
    for corpus, examples in corpora.items():
        docs = [eg.reference for eg in examples]
        n_docs[corpus] = len(docs)
        n_tokens[corpus] = sum(len(doc) for doc in docs)
        findings += check_docs(corpus, examples, ner, labels)
        findings += check_words(corpus, docs)
    findings += check_recurrence(corpora, paths)

    train_counts = counts["train"]
    dev_counts = counts.get("dev", Counter())
    shown_labels = sorted({*labels, *train_counts, *dev_counts})
    return Check(
        component=ner.name,
        docs=n_docs,
        tokens=n_tokens,
        counts=[(label, train_counts[label], dev_counts[label]) for label in shown_labels],
        findings=join_findings(findings),
    )


def check_overlaps(
    corpora: Mapping[str, Sequence[Example]],
    spans_key: str,
    labels: Collection[str] | None,
    severity: str,
) -> Iterator[Finding]:
    """Find the spans that a component can't learn because they overlap with longer spans. If
    `labels` is None, spans with any label are included."""
    for corpus, examples in corpora.items():
        for i, eg in enumerate(examples):
            _, lost_spans = keep_longest(eg.reference, spans_key, labels)
            for span in lost_spans:
                place = place_in_doc(i, eg.reference, f"{span.text!r} {span.label_}")
                yield Finding(severity, corpus, LOST_SPANS, [place])


def with_spans_of_key(eg: Example, spans_key: str, labels: Collection[str] | None) -> Example:
    """Create an example whose entities are the spans that a component with a `spans_key` learns. If
    spans overlap, only the longest one is included. If `labels` is None, spans with any label are
    included."""
    annotated = spans_as_entities(eg.reference, spans_key, labels, longest=True)
    return Example(eg.predicted, annotated)


def count_labels(examples: Iterable[Example]) -> Counter[str]:
    """Count the annotated entities of each label. For soft targets, the expected number of entities
    is counted."""
    counts: Counter[str] = Counter()
    expected_counts: Counter[str] = Counter()
    for eg in examples:
        if has_soft_targets(eg):
            expected_counts.update(count_expected_entities(eg.reference))
        else:
            counts.update(ent.label_ for ent in eg.reference.ents)
    for label, n in expected_counts.items():
        counts[label] += max(round(n), 1)
    return counts


def check_config(ner: CostSensitiveNER, tags: Tags) -> Iterator[Finding]:
    """Check that the loss and the decoding of a component match its tags."""
    # Both functions raise an error if a cost table, label tree or label weight in the config is
    # defined for other labels.
    for check_tags in (ner.objective.check_costs, ner.check_decoding):
        try:
            check_tags(tags)
        except ValueError as error:
            yield Finding(ERROR, "config", str(error))


def check_recurrence(
    corpora: Mapping[str, Sequence[Example]], paths: Mapping[str, str | None]
) -> Iterator[Finding]:
    """Find texts of the training corpus that recur in the development corpus, and texts that occur
    several times in one corpus: see `recurrence`. The findings list the affected development docs.
    For the arguments, see `check_corpora`."""
    docs_of = {name: [eg.reference for eg in examples] for name, examples in corpora.items()}
    if "dev" in docs_of:
        known = KnownText.from_docs(docs_of["train"], paths.get("train"))
        for note in note_known(known, docs_of["dev"], paths.get("dev") or "dev"):
            places: list[DocPlace] = []
            for i, doc in enumerate(docs_of["dev"]):
                if known.knows(doc):
                    places.append(place_in_doc(i, doc))
            yield Finding(WARNING, "dev", note, places)
    for name, docs in docs_of.items():
        for note in note_copies(docs, paths.get(name) or name):
            yield Finding(WARNING, name, note)


def check_labels(counts: dict[str, Counter], labels: Sequence[str]) -> Iterator[Finding]:
    """Check that each label has enough entities, that no two labels are nearly identical, and that
    `spacy convert` hasn't cut off the first letters of the labels (see `MAX_CUT_LENGTH`). `counts`
    contains the number of entities of each label in "train" and, if it exists, in "dev"."""
    train_counts = counts["train"]
    dev_counts = counts.get("dev", Counter())
    rare: list[str] = []
    for label in labels:
        if train_counts[label] < FEW_ENTITIES:
            rare.append(f"{label} ({train_counts[label]})")
    if rare:
        message = (
            f"labels of fewer than {FEW_ENTITIES} entities: {', '.join(rare)}. `forecast` says "
            "what more docs add to their scores"
        )
        yield Finding(WARNING, "train", message)

    not_in_dev = [label for label in labels if not dev_counts[label]]
    if not_in_dev and "dev" in counts:
        message = f"labels without entities, whose scores are unknown: {', '.join(not_in_dev)}"
        yield Finding(WARNING, "dev", message)

    # Group the labels by their letters, ignoring case and punctuation.
    labels_by_letters: dict[str, list[str]] = {}
    for label in sorted({*labels, *train_counts, *dev_counts}):
        letters = re.sub(r"[\W_]", "", label).casefold()
        labels_by_letters.setdefault(letters, []).append(label)
    similar = [" and ".join(names) for names in labels_by_letters.values() if len(names) > 1]
    if similar:
        message = f"labels differ only in capitals or punctuation: {', '.join(similar)}"
        yield Finding(WARNING, "train", message)

    if labels and all(len(label) <= MAX_CUT_LENGTH for label in labels):
        yield Finding(WARNING, "train", f"all labels are very short: {', '.join(labels)}. {CUT}")
