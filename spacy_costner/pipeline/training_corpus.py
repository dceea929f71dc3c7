"""The training corpus as a component reads it: labels, features, and the known text.

The *known text* is the text of the training corpus, and the raw text from which static vectors were
learned. A component keeps hashes of it, so that `guarantee`, for example, can refuse docs whose
text the component knows: see `training.known_text`.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model

from ..annotation.settings import Annotation
from ..training.known_text import Recurring, pack_ids, passage_ids
from ..training.raw_sentences import read_raw_sentences
from ..training.soft_targets import labels_of, labels_of_teacher
from ..training.targets import NEGATED


class TrainingCorpus(NamedTuple):
    """The statistics of a training corpus that a component collects before training.

    labels (set[str]): The labels of the entities.
    n_examples (int): The number of examples.
    times_of_passage (Counter[int]): How often each passage is in the corpus, keyed by its hash.
    """

    labels: set[str]
    n_examples: int
    times_of_passage: Counter[int]

    def to_cfg(self) -> dict[str, Any]:
        """The keys of `cfg` that save the corpus."""
        return {
            "n_examples": self.n_examples,
            "trained_on": pack_ids(self.times_of_passage),
            **Recurring.from_counts(self.times_of_passage.values())._asdict(),
        }


def read_training_corpus(
    examples: Iterable[Example],
    model: Model,
    annotation: Annotation,
    *,
    expected_labels: set[str] | None,
) -> TrainingCorpus:
    """Count the examples and the passages of a corpus, find its labels, and let a linear model
    collect its features. The corpus is read once, as it may be too large to keep.

    examples (Iterable[Example]): The training examples, with annotated references.
    model (Model): The model of the component. If it is linear, it is changed.
    annotation (Annotation): Where the annotation is in docs.
    expected_labels (set[str] | None): With a `spans_key`, spans with other labels are left out.
        None: all labels are expected.
    RETURNS (TrainingCorpus): The labels and the counts.
    RAISES (ValueError): If spans overlap: see `Annotation.as_entities`.
    """
    labels: set[str] = set()
    times_of_passage: Counter[int] = Counter()
    n_examples = 0

    def read_references() -> Iterator[Doc]:
        """Yield the reference of each example to the model, which collects features. This also
        counts labels and passages."""
        nonlocal n_examples
        for eg in examples:
            reference = annotation.as_entities(eg, expected_labels).reference
            labels.update(labels_of(reference))
            times_of_passage.update(passage_ids(reference))
            n_examples += 1
            yield reference

    references = read_references()
    build_vocab = model.attrs.get("build_vocab")
    if build_vocab is not None:
        build_vocab(model, references)  # collects the features of the model
    deque(references, maxlen=0)  # reads the docs that the model has not read
    return TrainingCorpus(labels, n_examples, times_of_passage)


def find_new_labels(
    examples: Iterable[Example], annotation: Annotation, known_labels: Collection[str]
) -> set[str]:
    """Find the labels of a batch that a component doesn't know yet: the labels of annotated
    entities and of soft targets.

    examples (Iterable[Example]): The batch.
    annotation (Annotation): Where the annotation is in docs.
    known_labels (Collection[str]): The labels that the component knows.
    RETURNS (set[str]): The new labels, without labels that begin with "!": these are refused where
        the annotation is read, with the doc that has one.
    """
    labels: set[str] = set()
    for eg in examples:
        labels |= labels_of_teacher(eg.reference)
        # Making entities of spans takes time, and most batches have no new label.
        if annotation.has_other_labels(eg.reference, known_labels):
            labels |= labels_of(annotation.as_entities(eg, None).reference)
    return {
        label for label in labels if label not in known_labels and not label.startswith(NEGATED)
    }


def pack_raw_text(nlp: Language | None) -> str:
    """Return the hashes of the sentences of the raw text from which the static vectors of a
    pipeline were learned, packed for `cfg`. Empty if `learn_vectors` didn't make the vectors."""
    vectors_path = None
    if nlp is not None:
        vectors_path = nlp.config.interpolate()["initialize"]["vectors"]
    return pack_ids(read_raw_sentences(vectors_path).tolist())
