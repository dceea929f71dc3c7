"""The corpora that a config names, and the sentences of their docs."""

from collections.abc import Callable, Iterable

from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import dot_to_object, resolve_dot_names
from thinc.api import Config

FEW_SENTENCES = 1000
"""Docs with fewer sentences are few: the model is trained on all of them at once."""

SENTENCIZER = Sentencizer()
"""Finds the sentences of docs without sentence starts, to count them."""

Corpus = Callable[[Language], Iterable[Example]]
"""A reader of a corpus, as the config has it: see `spacy_costner.read.v1`."""


def corpus_path(config: Config, setting: str) -> str | None:
    """The path of a corpus in an interpolated config. None if it has no path.

    setting (str): The setting of [training] that names it: "train_corpus" or "dev_corpus".
    """
    block = dot_to_object(config, config["training"][setting])
    return block.get("path") if isinstance(block, dict) else None


def lacks_path(config: Config, corpus_name: str) -> bool:
    """Whether the path of a corpus is null, so that there is no such corpus. (A reader that has no
    path, such as a custom function, may find its docs elsewhere.)

    config (Config): The config, interpolated.
    corpus_name (str): The name of the corpus in the config, such as "corpora.dev".
    """
    block = dot_to_object(config, corpus_name)
    return isinstance(block, dict) and "path" in block and block["path"] is None


def find_corpora(nlp: Language) -> tuple[Corpus, Corpus | None]:
    """Make the readers of the training corpus and of the development corpus in the config of a
    pipeline. The second one is None if the path of the development corpus is null."""
    config = nlp.config.interpolate()
    train_name = config["training"]["train_corpus"]
    dev_name = config["training"]["dev_corpus"]
    if lacks_path(config, dev_name):
        # `resolve_dot_names` makes all readers of a section, and none can be made for a path of
        # null. So the block of this one is removed.
        section, _, key = dev_name.partition(".")
        del config[section][key]
        (train_corpus,) = resolve_dot_names(config, [train_name])
        return train_corpus, None
    train_corpus, dev_corpus = resolve_dot_names(config, [train_name, dev_name])
    return train_corpus, dev_corpus


def count_sentences(doc: Doc) -> int:
    """Count the sentences of a doc. If the doc has no sentence starts, a sentence ends at
    punctuation."""
    if doc.has_annotation("SENT_START"):
        return len(list(doc.sents))
    # Whether each token of the only doc starts a sentence
    (starts_sentence,) = SENTENCIZER.predict([doc])
    return sum(starts_sentence)


def are_few(docs: Iterable[Doc]) -> bool:
    """Whether docs have fewer than `FEW_SENTENCES` sentences together. No more docs are read than
    it takes to know that."""
    n_sentences = 0
    for doc in docs:
        n_sentences += count_sentences(doc)
        if n_sentences >= FEW_SENTENCES:
            return False
    return True
