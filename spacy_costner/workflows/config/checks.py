"""Check data and config before training. (`spacy debug data` checks the data of spaCy's own `ner`
only.)

A finding is one problem of a corpus or of the config, with all docs where it was found. It is an
error if training or prediction can't be right with it, and a warning if it may be a mistake.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ORTH
from spacy.language import Language
from spacy.schemas import ConfigSchemaInit, ConfigSchemaTraining
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.training.initialize import load_vectors_into_model
from spacy.util import load_model_from_config, registry
from thinc.types import Array1d, Ints1d

from ...annotation import iob as ent_iob
from ...annotation.spans import keep_longest, spans_as_entities
from ...annotation.tokens import first_words
from ...features import check_vectors, measure_coverage, scaled_vectors
from ...ml import linear_part
from ...pipeline.component import CostSensitiveNER
from ...pipeline.reading import begins_sentences
from ...progress import progress
from ...readers import DEFAULTS, CorpusInfo, CorpusSummary, ReadOptions, with_info
from ...readers.schemes import IO_WITHOUT_PREFIXES
from ...tags import Tags
from ...training.eval_frequency import Evaluations, count_evaluations
from ..components import get_component
from ..corpora import corpus_path, find_corpora
from ..evaluation.recurrence import KnownText, note_copies, note_known
from .loading import read_config, with_reading
from .trainable import can_be_fitted
from .unknown_settings import check_settings

LEAST_COVERAGE = 0.5
"""If a smaller share of words has a static vector, the vectors may be those of another language."""

FEW_ENTITIES = 20
"""Labels with fewer entities get a warning."""

LONG = 500
"""A doc with so many tokens can't be a single sentence."""

SHIFT_RATIO = 1.1
"""There is a warning if the annotation would be so much more consistent if all entities were one
token earlier or later: see `check_shift`. In the Spanish corpus of CoNLL-2002 the ratio is 0.5, in
GENIA 0.8."""

MIN_NAME_TOKENS = 3
"""A word that occurs less often isn't taken for a name: see `check_lost_annotation`."""

MIN_NAME_SHARE = 0.9
"""A word is taken for a name if at least this share of its tokens is in entities."""

MAX_LOST_SHARE = 0.08
"""There is a warning if more than this share of docs have names and no entities. In CoNLL-2002 it
is 0.2 %, in GENIA 0.5 %."""

MOJIBAKE = re.compile(r"\S*(?:[ÂÃÐÑ][\x80-\xba\xbc-\xbf]|â[\x80€]|\ufffd)\S*")
"""A word with UTF-8 that was read as Latin-1 or Windows-1252 ("Ã©" for "é"), or with the character
that stands for bytes that can't be read."""

INVISIBLE = re.compile(r"\S*[\xad\u200b\u2060\ufeff]\S*")
"""A word with a soft hyphen, a zero-width space, a word joiner or a byte order mark. (Zero-width
joiners are allowed, as some scripts need them.)"""

MAX_CUT_LENGTH = 2
"""`spacy convert` takes two letters off some labels: MISC becomes SC. If no label is longer than
this, that may have happened."""

CONTRADICTION = "docs with the same words have different entities"

OTHER_LABELS = "entities of labels that the component doesn't have: they count as O"

NO_DEV = "expected a development corpus for `spacy train`, got none: name one with --paths.dev"

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
    "can't be predicted if the pipeline cuts docs there"
)

STARTS = frozenset(("token.is_sent_start", "doc.sents"))
"""A component that sets sentence starts (senter, sentencizer, parser) has one of these in the
`assigns` of its metadata."""

NO_STARTS = (
    "docs have sentence starts, and no component of the pipeline sets them: the chain is trained "
    "with and without them, and measured without. `fit` prints the score with a sentencizer, too"
)

LOST_SPANS = (
    "spans overlap with longer ones of the same component: give their labels to several "
    "components, or lose these spans by filter_spans = true"
)

ERROR = "error"
WARNING = "warning"


class DocPlace(NamedTuple):
    """A doc with a problem."""

    doc: int  # the index of the doc in its corpus
    words: str  # the first words of the doc
    text: str  # the text with the problem, such as an entity; empty if it is the whole doc


class Finding(NamedTuple):
    """A problem in data or config."""

    severity: str  # "error" or "warning"
    corpus: str  # "train" or "dev", or "config"
    message: str  # what the problem is, and its effect
    places: Sequence[DocPlace] = ()  # the docs where it was found


class Problem(NamedTuple):
    """A problem of a single doc."""

    severity: str  # "error" or "warning"
    message: str  # what the problem is, and its effect
    text: str = ""  # the text with the problem, such as an entity


class AnnotatedDoc(NamedTuple):
    """A doc whose tokens are all annotated."""

    number: int  # the index of the doc in its corpus
    ents: set[tuple[str, str, int]]  # the text, the label and the first token of each entity


class EntityWords(NamedTuple):
    """The words of all docs with entities, and which of their tokens are in entities. The tokens of
    the docs stand one after another, with a placeholder before and after each doc.

    words (Array1d): The W distinct words, as hashes. The first is 0, the placeholder. Shape: (W,)
    n_tokens (Ints1d): How many of the N tokens have each word. Shape: (W,)
    word_of_token (Ints1d): The word of each token, as an index of `words`. Shape: (N,)
    entity_tokens (Ints1d): The tokens in entities, as indices of `word_of_token`.
    """

    words: Array1d
    n_tokens: Ints1d
    word_of_token: Ints1d
    entity_tokens: Ints1d

    def count_in_entities(self, shift: int = 0) -> Ints1d:
        """Count the tokens of each word that are in entities or, with a shift, that would be in
        entities if all entities were so many tokens later. Shape: (W,)"""
        shifted_words = self.word_of_token[self.entity_tokens + shift]
        n_in_entities = numpy.bincount(shifted_words, minlength=len(self.words))
        # Word 0 is the placeholder. An entity at the end of a doc may have been shifted to it.
        n_in_entities[0] = 0
        return n_in_entities

    def share_elsewhere(self, n_in_entities: Ints1d) -> float:
        """Compute how consistent the annotation is: if a token is in an entity, how probably
        another token with the same word is in an entity, too. This is the mean over all tokens in
        entities.

        n_in_entities (Ints1d): How many tokens of each word are in entities. Shape: (W,)
        """
        # A word has m tokens, and n of them are in entities. For each of these n tokens there are
        # m - 1 others, of which n - 1 are in entities: the share is (n - 1) / (m - 1).
        # If m is 1, n (n - 1) is 0, so any divisor but 0 will do.
        n_other_tokens = numpy.maximum(self.n_tokens - 1, 1)
        sums_of_shares = n_in_entities * (n_in_entities - 1) / n_other_tokens
        return float(sums_of_shares.sum() / max(n_in_entities.sum(), 1))


class Check(NamedTuple):
    """The result of a check."""

    component: str  # the name of the component
    docs: dict[str, int]  # the number of docs of "train" and of "dev"
    tokens: dict[str, int]  # the number of tokens of each corpus
    counts: list[tuple[str, int, int]]  # each label, with its number of entities in train and dev
    findings: list[Finding]  # errors first
    corpora: Mapping[str, CorpusSummary] = {}  # how "train" and "dev" were read

    @property
    def has_errors(self) -> bool:
        """Whether there is any error among the findings."""
        return any(finding.severity == ERROR for finding in self.findings)


def check(
    config_path: Path,
    *,
    overrides: dict[str, Any] = {},  # noqa: B006
    name: str | None = None,
    reading: ReadOptions = DEFAULTS,
) -> Check:
    """Check the corpora of a config for `spacy train` or `fit`, and whether the config fits them.
    The config may lack a development corpus if `fit` can train it.

    config_path (Path): The config.
    overrides (dict[str, Any]): Settings to override, such as "paths.train".
    name (str | None): The name of the component, if the config has several.
    reading (ReadOptions): How to read the corpora. These options replace those of the config.
    RETURNS (Check): The counts of the corpora, and what was found.
    RAISES (ValueError): If there is no such component or an unknown setting, or the config or a
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
        if read is None:  # There is no development corpus.
            if not can_be_fitted(config):
                file_findings.append(Finding(ERROR, "config", NO_DEV))
            continue
        examples, info = read_corpus(nlp, corpus, read, ner.annotation.spans_key)
        corpora[corpus] = examples
        summaries[corpus] = info.summary()
        file_findings += find_file_problems(corpus, info)

    # Check them. The callback `before_init` may make evaluations more frequent.
    labels = init["components"].get(ner.name, {}).get("labels")
    evaluations = count_evaluations(training, corpora["train"], init["before_init"])
    paths = {name: corpus_path(interpolated, f"{name}_corpus") for name in ("train", "dev")}
    result = check_corpora(ner, corpora, labels, evaluations, paths)
    train_docs = [eg.reference for eg in corpora["train"]]
    vector_findings = check_static_vectors(nlp, ner, init["vectors"], train_docs)
    border_findings = check_sentence_starts(nlp, ner, corpora)
    findings = [*result.findings, *file_findings, *vector_findings, *border_findings]
    return result._replace(findings=join_findings(findings), corpora=summaries)


def read_corpus(
    nlp: Language,
    corpus: str,
    read: Callable[[Language], Iterable[Example]],
    spans_key: str | None,
) -> tuple[list[Example], CorpusInfo]:
    """Read a corpus of the config.

    nlp (Language): The pipeline.
    corpus (str): "train" or "dev".
    read (Callable[[Language], Iterable[Example]]): The reader: our own or another one.
    spans_key (str | None): The key of `doc.spans` that has the entities of the component.
    RETURNS (tuple[list[Example], CorpusInfo]): The examples, and what the reader reports.
    """
    read, info = with_info(read, spans_key)
    return list(progress(read(nlp), desc=f"read {corpus}", unit="doc")), info


def find_file_problems(corpus: str, info: CorpusInfo) -> Iterator[Finding]:
    """What is wrong with the files of a corpus.

    corpus (str): "train" or "dev".
    info (CorpusInfo): What its reader reports.
    YIELDS (Finding): The findings.
    """
    for problem in info.problems:
        yield Finding(WARNING, corpus, problem.as_text())
    if IO_WITHOUT_PREFIXES in info.schemes:
        yield Finding(WARNING, corpus, NO_PREFIXES)


def check_sentence_starts(
    nlp: Language, ner: CostSensitiveNER, corpora: Mapping[str, Sequence[Example]]
) -> Iterator[Finding]:
    """Find corpora with sentence starts that the component uses in training, but doesn't see in
    prediction, because no component before it sets them.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component.
    corpora (Mapping[str, Sequence[Example]]): The examples of each corpus, by its name.
    YIELDS (Finding): A finding for each such corpus.
    """
    if not ner.annotation.sentence_boundaries:
        return
    for name in nlp.pipe_names[: nlp.pipe_names.index(ner.name)]:
        # The component may not be trained yet, so its metadata are asked, not what it does.
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
    """Check that words of the training docs have static vectors, if these are inputs of the model.
    The vectors are loaded into the pipeline, as in initialization.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component.
    vectors (str | None): The package or folder with the vectors: `initialize.vectors`.
    docs (Sequence[Doc]): The training docs.
    YIELDS (Finding): An error if there are no vectors, a warning if too few words have one.
    """
    # Only linear models and hybrids have this attribute, and features.
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
    # Only their number counts, so any scale will do.
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
    """Check the corpora "train" and "dev" for a component that is not initialized.

    ner (CostSensitiveNER): The component.
    corpora (dict[str, list[Example]]): The examples of both corpora, or only of "train".
    labels (Sequence[str] | None): The labels of the component. None: those of the training corpus.
    evaluations (Evaluations | None): How often training evaluates. None: that isn't known.
    paths (Mapping[str, str | None]): The paths of the corpora, as far as they are known.
    RETURNS (Check): The counts of the corpora, and what was found.
    """
    findings: list[Finding] = []
    # With a `spans_key`, spans take the place of entities in all later checks.
    spans_key = ner.annotation.spans_key
    if spans_key is not None:
        # The labels of the spans that are the component's own. None: all labels.
        own_labels = ner.annotation.own_labels or labels
        severity = WARNING if ner.annotation.filter_spans else ERROR
        findings += check_overlaps(corpora, spans_key, own_labels, severity)
        span_corpora = corpora
        corpora = {}
        for corpus, examples in span_corpora.items():
            corpora[corpus] = [with_spans_of_key(eg, spans_key, own_labels) for eg in examples]

    # Labels, and the config
    counts = {corpus: count_labels(examples) for corpus, examples in corpora.items()}
    if labels is None:
        labels = sorted(counts["train"])
    if labels:
        findings += check_config(ner, Tags(labels, ner.cfg["scheme"]))
    else:
        findings.append(Finding(ERROR, "train", "no entities and no labels"))
    findings += check_labels(counts, labels)
    if evaluations is not None and not evaluations.are_enough:
        # If only the model of the first step is evaluated, `spacy train` saves that one.
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
    """Find the spans that a component can't learn, as they overlap with longer ones.

    corpora (Mapping[str, Sequence[Example]]): The examples by corpus.
    spans_key (str): The key of these spans in `doc.spans`.
    labels (Collection[str] | None): The labels of the component. None: all labels.
    severity (str): The severity of the findings: "error" or "warning".
    """
    for corpus, examples in corpora.items():
        for i, eg in enumerate(examples):
            _, lost_spans = keep_longest(eg.reference, spans_key, labels)
            for span in lost_spans:
                place = place_in_doc(i, eg.reference, f"{span.text!r} {span.label_}")
                yield Finding(severity, corpus, LOST_SPANS, [place])


def with_spans_of_key(eg: Example, spans_key: str, labels: Collection[str] | None) -> Example:
    """Make an example whose entities are the spans that a component with a `spans_key` learns.
    Where spans overlap, that is the longest one.

    labels (Collection[str] | None): The labels of the component. None: all labels.
    """
    annotated = spans_as_entities(eg.reference, spans_key, labels, longest=True)
    return Example(eg.predicted, annotated)


def count_labels(examples: Iterable[Example]) -> Counter[str]:
    """Count the annotated entities of each label."""
    counts: Counter[str] = Counter()
    for eg in examples:
        counts.update(ent.label_ for ent in eg.reference.ents)
    return counts


def check_config(ner: CostSensitiveNER, tags: Tags) -> Iterator[Finding]:
    """Check that the loss and the decoding of a component fit its tags."""
    # Both functions raise an error if a cost table, a label tree or a weight of a label in the
    # config is for other labels.
    for check_tags in (ner.objective.check_costs, ner.check_decoding):
        try:
            check_tags(tags)
        except ValueError as error:
            yield Finding(ERROR, "config", str(error))


def check_recurrence(
    corpora: Mapping[str, Sequence[Example]], paths: Mapping[str, str | None]
) -> Iterator[Finding]:
    """Find texts that recur, in the training corpus and in the development corpus, or several times
    in one of them: see `recurrence`. A finding names the development docs that recur. See
    `check_corpora` for the arguments."""
    docs_of = {name: [eg.reference for eg in examples] for name, examples in corpora.items()}
    if "dev" in docs_of:
        known = KnownText.of_docs(docs_of["train"], paths.get("train"))
        for note in note_known(known, docs_of["dev"], paths.get("dev") or "dev"):
            places: list[DocPlace] = []
            for i, doc in enumerate(docs_of["dev"]):
                if known.knows(doc):
                    places.append(place_in_doc(i, doc))
            yield Finding(WARNING, "dev", note, places)
    for name, docs in docs_of.items():
        for note in note_copies(docs, paths.get(name) or name):
            yield Finding(WARNING, name, note)


def join_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Join all findings of the same problem, so that it is shown once with all docs where it was
    found. Errors come first."""
    places_of_problem: dict[tuple[str, str, str], list[DocPlace]] = {}
    for severity, corpus, message, places in findings:
        places_of_problem.setdefault((severity, corpus, message), []).extend(places)
    errors: list[Finding] = []
    warnings: list[Finding] = []
    for (severity, corpus, message), places in places_of_problem.items():
        finding = Finding(severity, corpus, message, places)
        if severity == ERROR:
            errors.append(finding)
        else:
            warnings.append(finding)
    return errors + warnings


def check_labels(counts: dict[str, Counter], labels: Sequence[str]) -> Iterator[Finding]:
    """Check the labels: each has enough entities, no two are nearly the same, and `spacy convert`
    has not cut off their first letters (see `MAX_CUT_LENGTH`).

    counts (dict[str, Counter]): The number of entities of each label, for "train" and, if there is
        a development corpus, for "dev".
    labels (Sequence[str]): The labels of the component.
    """
    train_counts = counts["train"]
    dev_counts = counts.get("dev", Counter())
    rare: list[str] = []
    for label in labels:
        if train_counts[label] < FEW_ENTITIES:
            rare.append(f"{label} ({train_counts[label]})")
    if rare:
        message = f"labels of fewer than {FEW_ENTITIES} entities: {', '.join(rare)}"
        yield Finding(WARNING, "train", message)

    not_in_dev = [label for label in labels if not dev_counts[label]]
    if not_in_dev and "dev" in counts:
        message = f"labels of no entity, their scores are unknown: {', '.join(not_in_dev)}"
        yield Finding(WARNING, "dev", message)

    # The labels that have the same letters in lower case
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


def check_words(corpus: str, docs: Sequence[Doc]) -> Iterator[Finding]:
    """Check that the same words are annotated alike in all docs. If they aren't, all entities may
    be one token away from their place, or some docs may have lost their annotation."""
    entity_words = find_entity_words(docs)
    yield from check_shift(corpus, entity_words)
    yield from check_lost_annotation(corpus, docs, entity_words)


def find_entity_words(docs: Iterable[Doc]) -> EntityWords:
    """Collect the words of all docs with entities: see `EntityWords`."""
    # For each token the hash of its word and its ENT_IOB. Shape: (N, 2). Before and after each doc
    # is a row of zeros, the placeholder. So an entity that is shifted by one token never reaches
    # the words of another doc. There is one such row even if no doc has entities.
    token_arrays = [numpy.zeros((1, 2), "uint64")]
    for doc in docs:
        if doc.ents:
            token_array = doc.to_array([ORTH, ENT_IOB])
            token_arrays.append(numpy.pad(token_array, ((1, 1), (0, 0))))
    word_hashes, iob = numpy.concatenate(token_arrays).T
    words, word_of_token, n_tokens = numpy.unique(
        word_hashes, return_inverse=True, return_counts=True
    )
    is_in_entity = (iob == ent_iob.INSIDE) | (iob == ent_iob.BEGIN)
    return EntityWords(words, n_tokens, word_of_token, numpy.flatnonzero(is_in_entity))


def check_shift(corpus: str, entity_words: EntityWords) -> Iterator[Finding]:
    """Check that entities are not shifted: the annotation must not be more consistent, by the
    factor `SHIFT_RATIO`, if all entities are moved by one token. It is consistent if the other
    tokens with the word of an entity's token are in entities, too."""
    share = entity_words.share_elsewhere(entity_words.count_in_entities())
    for shift, direction in ((-1, "earlier"), (1, "later")):
        shifted_share = entity_words.share_elsewhere(entity_words.count_in_entities(shift))
        if shifted_share > SHIFT_RATIO * share:
            message = (
                f"where a word is in an entity, on average {share:.0%} of its other tokens are; "
                f"{shifted_share:.0%} would be if entities began one token {direction}"
            )
            yield Finding(WARNING, corpus, message)


def check_lost_annotation(
    corpus: str, docs: Sequence[Doc], entity_words: EntityWords
) -> Iterator[Finding]:
    """Check that no docs have lost their annotation. A doc has perhaps lost it if it has no entity,
    but has a name: a word that is nearly always in an entity in the docs that have entities.

    corpus (str): The name of the corpus.
    docs (Sequence[Doc]): All its docs.
    entity_words (EntityWords): The words of those docs that have entities.
    YIELDS (Finding): A finding if too many docs have perhaps lost it.
    """
    n_tokens = entity_words.n_tokens
    is_mostly_in_entities = entity_words.count_in_entities() >= MIN_NAME_SHARE * n_tokens
    is_frequent = n_tokens >= MIN_NAME_TOKENS
    names = entity_words.words[is_frequent & is_mostly_in_entities]  # as hashes
    places: list[DocPlace] = []
    for i, doc in enumerate(docs):
        is_outside = doc.to_array(ENT_IOB) == ent_iob.OUTSIDE
        if not len(doc) or not is_outside.all():
            continue
        is_name = numpy.isin(doc.to_array(ORTH), names)
        if is_name.any():
            first_name = doc[int(is_name.argmax())]  # `argmax` finds the first True.
            places.append(place_in_doc(i, doc, first_name.text))
    if len(places) > MAX_LOST_SHARE * len(docs):
        message = "docs have no entities, but words that are in entities in other docs"
        yield Finding(WARNING, corpus, message, places)


def place_in_doc(number: int, doc: Doc, text: str = "") -> DocPlace:
    """Make the place of a problem.

    number (int): The index of the doc in its corpus.
    text (str): The text with the problem.
    """
    return DocPlace(number, first_words(doc), text)


def check_docs(
    corpus: str, examples: Sequence[Example], ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[Finding]:
    """Check each doc of a corpus by itself (`check_doc`). Then compare docs: those with the same
    words must have the same entities. Finally check the corpus as a whole: at least one of its
    tokens must be annotated as O.

    YIELDS (Finding): A finding for each problem of each doc. `join_findings` joins those that are
        alike.
    """
    first_doc_with_words: dict[tuple[str, ...], AnnotatedDoc] = {}
    has_outside = False
    for i, eg in enumerate(examples):
        doc = eg.reference
        iob = doc.to_array(ENT_IOB)
        problems = list(check_doc(eg, ner, labels))
        is_annotated = (iob != ent_iob.MISSING).all()
        if len(doc) and is_annotated:
            words = tuple(token.text for token in doc)
            ents = {(ent.text, ent.label_, ent.start) for ent in doc.ents}
            first_doc = first_doc_with_words.setdefault(words, AnnotatedDoc(i, ents))
            if ents != first_doc.ents:
                only_in_this_doc = sorted(ents - first_doc.ents)
                only_in_first_doc = sorted(first_doc.ents - ents)
                text = f"{only_in_this_doc} against {only_in_first_doc} in doc {first_doc.number}"
                problems.append(Problem(WARNING, CONTRADICTION, text))
        for severity, message, text in problems:
            yield Finding(severity, corpus, message, [place_in_doc(i, doc, text)])
        if (iob == ent_iob.OUTSIDE).any():
            has_outside = True
    if not has_outside:
        severity = ERROR if corpus == "train" else WARNING
        message = "no token is annotated as O: the model can't learn what is not an entity"
        yield Finding(severity, corpus, message)


def check_doc(eg: Example, ner: CostSensitiveNER, labels: Sequence[str]) -> Iterator[Problem]:
    """Find what is wrong with a doc: its text, its sentences, and its entities.

    eg (Example): The doc, as the reference of an example.
    ner (CostSensitiveNER): The component.
    labels (Sequence[str]): The labels of the component.
    YIELDS (Problem): The problems.
    """
    doc = eg.reference
    if len(doc) and (doc.to_array(ENT_IOB) == ent_iob.MISSING).all():
        yield Problem(WARNING, "docs without annotation of entities: they are not used")
    has_sentences = doc.has_annotation("SENT_START", require_complete=True)
    if len(doc) >= LONG and has_sentences:
        # spaCy's value for the start of a sentence is 1. The first token is left out: it starts a
        # sentence in every doc.
        starts_sentence = doc.to_array("SENT_START")[1:] == 1
        if not starts_sentence.any():
            yield Problem(WARNING, ONE_SENTENCE)
    misread = MOJIBAKE.search(doc.text)
    if misread is not None:
        message = "texts were read in another encoding than their own (mojibake)"
        yield Problem(WARNING, message, repr(misread[0]))
    invisible = INVISIBLE.search(doc.text)
    if invisible is not None:
        message = "texts have characters that can't be seen, which make other words of their words"
        yield Problem(WARNING, message, ascii(invisible[0]))
    yield from check_entities(eg, ner, labels)


def check_entities(eg: Example, ner: CostSensitiveNER, labels: Sequence[str]) -> Iterator[Problem]:
    """Find the annotated entities of a doc that a component can't learn, can't predict, or learns
    with a change.

    eg (Example): The doc.
    ner (CostSensitiveNER): The component.
    labels (Sequence[str]): The labels of the component.
    """
    doc = eg.reference
    has_same_tokens = [token.text for token in doc] == [token.text for token in eg.predicted]
    # The spans that annotators have rejected, as (begin, end, label)
    rejected_spans = doc.spans.get(ner.annotation.incorrect_spans_key or "", ())
    rejected = {(span.start, span.end, span.label_) for span in rejected_spans}
    borders = ner.annotation.find_training_borders([eg])
    for ent in doc.ents:
        text = f"{ent.text!r} {ent.label_}"
        # Most docs have no border. Then the entity needn't be aligned, which takes time.
        if borders.any() and crosses_border(eg, ent, borders):
            yield Problem(WARNING, CROSSING, text)
        # A rejected span without a label rejects all labels.
        if rejected & {(ent.start, ent.end, ""), (ent.start, ent.end, ent.label_)}:
            message = "entities are among the incorrect spans: their docs are not used"
            yield Problem(ERROR, message, text)
        if ent.label_ not in labels:
            yield Problem(WARNING, OTHER_LABELS, text)
        if all(token.is_space for token in ent):
            yield Problem(WARNING, "entities are only whitespace: they are not used", text)
        elif ent[0].is_space or ent[-1].is_space:
            yield Problem(WARNING, "entities begin or end with whitespace: it is removed", text)
        elif not any(map(str.isalnum, ent.text)):
            yield Problem(WARNING, "entities without a letter or digit", text)
        if not has_same_tokens and not eg.get_aligned_spans_y2x([ent]):
            yield Problem(WARNING, MISALIGNED, text)


def crosses_border(eg: Example, ent: Span, borders: Array1d) -> bool:
    """Whether an entity can't be predicted, as a part of it is in one sequence of the chain and a
    part in the next. White space at its ends doesn't count.

    eg (Example): The doc. The chain is cut in the predicted doc.
    ent (Span): An entity of the annotated doc.
    borders (Array1d): True for the first token of each sequence of the predicted doc. Shape: (T,)
    """
    for span in eg.get_aligned_spans_y2x([ent]):
        words = [token.i for token in span if not token.is_space]
        if not words:
            continue
        # A sequence may begin at the first word of the entity, but not at a later one.
        after_first_word = words[0] + 1
        after_last_word = words[-1] + 1
        if borders[after_first_word:after_last_word].any():
            return True
    return False
