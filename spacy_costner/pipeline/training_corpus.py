"""Read the training corpus of a component: its labels, features and known text.

The *known text* is the text of the training corpus and the raw text that static vectors were
trained on. The component stores hashes of the known text, so that commands such as `guarantee` can
reject docs with known text: see `training.known_text`.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Model

from ..annotation.settings import Annotation
from ..training.known_text import Recurring, pack_ids, passage_ids
from ..training.raw_sentences import read_raw_sentences
from ..training.soft_targets import labels_of, labels_of_teacher
from ..training.targets import NEGATED


class TrainingCorpus(NamedTuple):
    """The statistics of a training corpus, collected before training.

    labels (set[str]): The labels of the entities.
    n_examples (int): The number of examples.
    times_of_passage (Counter[int]): The number of occurrences of each passage, keyed by its hash.
    """

    labels: set[str]
    n_examples: int
    times_of_passage: Counter[int]

    def to_cfg(self) -> dict[str, Any]:
        """Convert the statistics to the values that are saved in `cfg`."""
        return {
            "n_examples": self.n_examples,
            "trained_on": pack_ids(self.times_of_passage),
            **Recurring.from_counts(self.times_of_passage.values())._asdict(),
        }


def read_training_corpus(
    examples: Iterable[Example],
    model: Model,
    annotation: Annotation,
    vocab: Vocab,
    *,
    expected_labels: set[str] | None,
) -> TrainingCorpus:
    """Count the examples and passages of a corpus, collect its labels, and build the feature
    vocabulary of a linear model. The corpus is only read once, because it may not fit in memory.

    examples (Iterable[Example]): The training examples, with annotated references.
    model (Model): The model of the component. Linear models are modified in place.
    annotation (Annotation): Where annotation is stored in docs.
    vocab (Vocab): The vocab of the pipeline, which contains its static vectors. The references may
        have other vocabs.
    expected_labels (set[str] | None): The labels of the spans to read, if the component has a
        `spans_key`. If None, spans with any label are read.
    RETURNS (TrainingCorpus): The labels and the counts.
    RAISES (ValueError): If spans overlap: see `Annotation.as_entities`.
    """
    labels: set[str] = set()
    times_of_passage: Counter[int] = Counter()
    n_examples = 0

    def read_references() -> Iterator[Doc]:
        """Yield the reference of each example, and update the labels and the counts."""
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
        build_vocab(model, references, vocab)
    deque(references, maxlen=0)  # consume the docs that the model hasn't read
    return TrainingCorpus(labels, n_examples, times_of_passage)


def find_new_labels(
    examples: Iterable[Example], annotation: Annotation, known_labels: Collection[str]
) -> set[str]:
    """Find labels in a batch that are new to a component. The labels of annotated entities and of
    soft targets are checked.

    examples (Iterable[Example]): The batch.
    annotation (Annotation): Where annotation is stored in docs.
    known_labels (Collection[str]): The existing labels.
    RETURNS (set[str]): The new labels, except labels that start with "!". When the annotation is
        read, they raise an error that includes the first words of the doc.
    """
    labels: set[str] = set()
    for eg in examples:
        labels |= labels_of_teacher(eg.reference)
        # Converting spans to entities is slow, and most batches don't contain new labels.
        if annotation.has_other_labels(eg.reference, known_labels):
            labels |= labels_of(annotation.as_entities(eg, None).reference)
    return {
        label for label in labels if label not in known_labels and not label.startswith(NEGATED)
    }


def pack_raw_text(nlp: Language | None) -> str:
    """Return the packed hashes, for `cfg`, of the sentences in the raw text that a pipeline's
    static vectors were trained on. Empty if the vectors weren't created by `learn_vectors`."""
    vectors_path = None
    if nlp is not None:
        vectors_path = nlp.config.interpolate()["initialize"]["vectors"]
    return pack_ids(read_raw_sentences(vectors_path).tolist())
