"""The size of a corpus, and the settings of training that depend on it."""

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Sized,
    Tuple,
)

import spacy
from spacy.pipeline import Sentencizer
from spacy.util import registry
from thinc.api import Config

from ...readers import read_docs
from ...tags import SINGLE
from .sections import Section, below, find, make_section, render, set_values

LAST_STEP = "training.optimizer.learn_rate.total_steps"

WORDS = 25
"""Words of a sentence, where only the number of sentences is known."""

SENTENCES = 3
"""Sentences of a doc, on average, from which a second pass of a linear model pays."""

MANY_LABELS = 20
"""More labels have a single O: see docs/linear.md."""

UPDATES = 100
"""Updates of a linear model in an epoch, at least; batches of a small corpus are smaller."""

BATCHES = 100
"""The same for a Tok2Vec, at its largest batches."""

SHUFFLED = 0.9
"""Share of the batches that an epoch has at least, however docs are shuffled."""

EPOCHS = 5
"""Epochs that a large corpus is trained for at least, unless there is no better score."""

FIRST_EPOCHS, FIRST_STEPS, LATER_EPOCHS = 5, 500, 2
"""Epochs and steps of the first loss of a schedule, at least; epochs of each later one."""

ROWS = 1000
"""Rows of the table of words, at least."""


class Size(NamedTuple):
    """The size of a training corpus.

    lengths (Tuple[int, ...]): Number of tokens of each doc.
    sentences (int): Number of sentences: see `look`.
    forms (Optional[int]): Number of different words, if known.
    entities (int): Number of entities.
    labels (Tuple[str, ...]): Their labels, in alphabetical order.
    """

    lengths: Tuple[int, ...]
    sentences: int
    forms: Optional[int] = None
    entities: int = 0
    labels: Tuple[str, ...] = ()

    @property
    def docs(self) -> int:
        return len(self.lengths)

    @property
    def words(self) -> int:
        return sum(self.lengths)


def look(path: Path, lang: str) -> Size:
    """Read a training corpus and measure it. Where docs have no sentence starts, as texts without
    tokens, sentences end with punctuation, as spaCy's `sentencizer` has it.

    path (Path): The corpus.
    lang (str): Its language.
    RETURNS (Size): Its size.
    RAISES (ValueError): If it has no entities.
    """
    lengths: List[int] = []
    forms: Set[int] = set()
    labels: Set[str] = set()
    sentences = entities = 0
    sentencizer = Sentencizer()
    for doc in read_docs(spacy.blank(lang), path):
        lengths.append(len(doc))
        split = doc if doc.has_annotation("SENT_START") else sentencizer(doc)
        sentences += sum(1 for _ in split.sents)
        forms.update(token.norm for token in doc)
        labels.update(ent.label_ for ent in doc.ents)
        entities += len(doc.ents)
    if not entities:
        raise ValueError(f"{path}: expected docs with entities, got none in {len(lengths)} docs")
    return Size(tuple(lengths), sentences, len(forms), entities, tuple(sorted(labels)))


def size_of_sentences(number: int) -> Size:
    """The size of a corpus of which only the number of sentences is known."""
    return Size((WORDS,) * number, number)


def settings(model: str, size: Size, sections: Sequence[Section]) -> Dict[str, Any]:
    """The settings of training that fit the size of a corpus: at least one evaluation an epoch.

    model (str): The model: "linear", "cnn", "hybrid" or "transformer".
    size (Size): The size of the corpus.
    sections (Sequence[Section]): The config without them. Its settings are for large corpora.
    RETURNS (Dict[str, Any]): Values by path, such as "training.eval_frequency".
    """
    if model == "linear":
        return _of_linear(size, sections)
    chosen = {} if model == "transformer" else _of_tok2vec(size, sections)
    if model == "hybrid":
        chosen.update(_of_tags(size))
    n_batches = _count_batches(size, set_values(sections, chosen))
    return {**chosen, **_of_steps(max(1, int(n_batches * SHUFFLED)), sections)}


def _count_batches(size: Size, sections: Sequence[Section]) -> int:
    """The number of batches of an epoch, at their largest."""
    return sum(1 for _ in _batcher(sections)([range(length) for length in size.lengths]))


def _of_linear(size: Size, sections: Sequence[Section]) -> Dict[str, Any]:
    """Smaller batches in a small corpus, and two evaluations an epoch. In docs of several
    sentences, a second pass sees the labels of words elsewhere in the doc."""
    chosen = _of_tags(size)
    if size.sentences >= SENTENCES * size.docs:
        chosen["components.ner.model.features.document"] = {"LOWER": 1}
    most = value(sections, "training.batcher.size")
    chosen["training.batcher.size"] = max(1, min(most, size.words // UPDATES))
    n_batches = _count_batches(size, set_values(sections, chosen))
    return {**chosen, "training.eval_frequency": max(1, int(n_batches * SHUFFLED) // 2)}


def _of_tags(size: Size) -> Dict[str, Any]:
    """One tag for O with many labels, which would have as many tags more."""
    return {"components.ner.outside": SINGLE} if len(size.labels) > MANY_LABELS else {}


def _of_tok2vec(size: Size, sections: Sequence[Section]) -> Dict[str, Any]:
    """Smaller batches in a small corpus, and no more rows for words than there are words."""
    start, most = (value(sections, f"training.batcher.size.{end}") for end in ("start", "stop"))
    chosen = {"training.batcher.size.stop": max(start, min(most, size.words // BATCHES))}
    if size.forms is not None:
        path = "components.tok2vec.model.embed.rows"
        rows, *others = value(sections, path)
        chosen[path] = [min(rows, max(ROWS, size.forms)), *others]
    return chosen


def _batcher(sections: Sequence[Section]) -> Callable[[Iterable[Sized]], Iterable[List[Sized]]]:
    """The batcher of a config, with its largest batches."""
    names = [make_section("training"), *below(sections, "training.batcher")]
    block = Config().from_str(render([], names))["training"]["batcher"]
    if isinstance(block["size"], dict):
        block["size"] = block["size"]["stop"]
    return registry.resolve({"batcher": block})["batcher"]


def _of_steps(epoch: int, sections: Sequence[Section]) -> Dict[str, Any]:
    """When to evaluate and to stop, where an epoch has about this number of steps. A learning rate
    that falls to 0 does so at the last step."""
    max_steps = max(value(sections, "training.max_steps"), EPOCHS * epoch)
    chosen = {
        "training.eval_frequency": min(value(sections, "training.eval_frequency"), epoch),
        "training.patience": max(value(sections, "training.patience"), 2 * epoch),
        "training.max_steps": max_steps,
    }
    with suppress(KeyError):
        value(sections, LAST_STEP)
        chosen[LAST_STEP] = max_steps
    return chosen


def ends(n_later: int, sections: Sequence[Section]) -> List[float]:
    """The epochs after which the losses of a schedule end.

    n_later (int): The number of losses after the first.
    sections (Sequence[Section]): The config, with its settings of training.
    RETURNS (List[float]): The ends of all losses but the last. Where the number of epochs is fixed,
        each later loss has the last ones.
    """
    try:
        first = value(sections, "training.max_epochs") - LATER_EPOCHS * n_later
    except KeyError:
        first = math.ceil(FIRST_STEPS / value(sections, "training.eval_frequency"))
        first = max(first, FIRST_EPOCHS)
    return [float(max(1, first) + LATER_EPOCHS * i) for i in range(n_later)]


def value(sections: Sequence[Section], path: str) -> Any:
    """The value of a setting.

    sections (Sequence[Section]): The config.
    path (str): The setting, such as "training.max_steps".
    RETURNS (Any): JSON.
    RAISES (KeyError): If there is none.
    """
    name, _, setting = path.rpartition(".")
    section = find(sections, name)
    for line in section.body if section is not None else ():
        if line.split("=")[0].strip() == setting:
            return json.loads(line.split("=", 1)[1])
    raise KeyError(path)
