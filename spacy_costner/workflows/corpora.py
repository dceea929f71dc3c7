"""Create the corpora in a config and count the sentences in docs."""

from collections.abc import Callable, Iterable

from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import dot_to_object, resolve_dot_names
from thinc.api import Config

FEW_SENTENCES = 1000
"""A corpus with fewer sentences is considered small, and the model is trained on all of its docs at
once."""

SENTENCIZER = Sentencizer()
"""The component for counting the sentences in docs without sentence starts."""

Corpus = Callable[[Language], Iterable[Example]]
"""A corpus reader created from a config, such as `spacy_costner.read.v1`."""


def corpus_path(config: Config, setting: str) -> str | None:
    """Get the path of a corpus from a config. Return None if the corpus has no path.

    config (Config): The interpolated config.
    setting (str): The name of the setting in [training]: "train_corpus" or "dev_corpus".
    """
    block = dot_to_object(config, config["training"][setting])
    return block.get("path") if isinstance(block, dict) else None


def lacks_path(config: Config, corpus_name: str) -> bool:
    """Check whether the path of a corpus is null, which means that the corpus doesn't exist. This
    is False if the reader has no `path` setting, because a custom reader may not need one.

    config (Config): The interpolated config.
    corpus_name (str): The name of the corpus in the config, such as "corpora.dev".
    """
    block = dot_to_object(config, corpus_name)
    return isinstance(block, dict) and "path" in block and block["path"] is None


def find_corpora(nlp: Language) -> tuple[Corpus, Corpus | None]:
    """Create the training corpus and the development corpus from a pipeline's config. The
    development corpus is None if its path is null."""
    config = nlp.config.interpolate()
    train_name = config["training"]["train_corpus"]
    dev_name = config["training"]["dev_corpus"]
    if lacks_path(config, dev_name):
        # `resolve_dot_names` creates all readers in a section, and fails if a path is null. To
        # avoid this, remove the block of this corpus.
        section, _, key = dev_name.partition(".")
        del config[section][key]
        (train_corpus,) = resolve_dot_names(config, [train_name])
        return train_corpus, None
    train_corpus, dev_corpus = resolve_dot_names(config, [train_name, dev_name])
    return train_corpus, dev_corpus


def count_sentences(doc: Doc) -> int:
    """Count the sentences in a doc. If it has no sentence starts, it is split at punctuation."""
    if doc.has_annotation("SENT_START"):
        return len(list(doc.sents))
    # For each token, whether it starts a sentence
    (starts_sentence,) = SENTENCIZER.predict([doc])
    return sum(starts_sentence)


def are_few(docs: Iterable[Doc]) -> bool:
    """Check whether docs contain fewer than `FEW_SENTENCES` sentences in total. Stop reading docs
    as soon as this number is reached."""
    n_sentences = 0
    for doc in docs:
        n_sentences += count_sentences(doc)
        if n_sentences >= FEW_SENTENCES:
            return False
    return True
