"""Save pipelines without the strings that they have seen at run time.

The vocab of a pipeline keeps the string of each word that was ever in a doc, in training and in
evaluation, and spaCy saves all of them. Our components don't need them: their models save the words
of their features themselves. So most strings are left out. They would be a third of the size of a
pipeline, and names of people are among them.
"""

from collections.abc import Iterator
from pathlib import Path

from spacy.language import Language
from spacy.strings import StringStore
from spacy.vectors import Vectors
from thinc.api import Model

from ..files.saving import save_folder
from ..ml import has_linear_part, linear_part
from ..pipeline.component import CostSensitiveNER
from ..progress import phase

WITHOUT_STRINGS = frozenset(
    [
        "cost_sensitive_ner",
        "tok2vec",
        "transformer",
        "curated_transformer",
        "senter",
        "sentencizer",
    ]
)
"""The factories of components that don't need saved strings. They need the strings of their labels,
and add these when they are loaded. Other components may need others: nothing is known of them."""


def save_pipeline(path: str | Path, nlp: Language) -> None:
    """Save a pipeline, as a whole or not at all: see `save_folder`. Strings that nothing needs are
    not saved: see `keeps_strings` and `needed_strings`. The pipeline itself isn't changed.

    path (str | Path): The folder.
    nlp (Language): The pipeline.
    RAISES (ValueError): See `save_folder`.
    """

    def write(folder: Path) -> None:
        """Write the pipeline to a folder. Then overwrite its strings by the needed ones."""
        nlp.to_disk(folder)
        if not keeps_strings(nlp):
            strings = StringStore(needed_strings(nlp))
            strings.to_disk(folder / "vocab" / "strings.json")

    with phase("write"):
        save_folder(path, write)


def keeps_strings(nlp: Language) -> bool:
    """Whether a pipeline is saved with all its strings. It is, if it has a component or vectors
    that may need them, or a linear model whose user wants to keep all (`keep_all`)."""
    for name in nlp.component_names:
        if nlp.get_pipe_meta(name).factory not in WITHOUT_STRINGS:
            return True
    for model in linear_models(nlp):
        _, weights = linear_part(model)
        if weights.keep_all:
            return True
    # Vectors of another class may need strings.
    return not isinstance(nlp.vocab.vectors, Vectors)


def needed_strings(nlp: Language) -> Iterator[str]:
    """The strings that people may look up in a saved pipeline: the words that have static vectors,
    and the words of clusters, which `explain` shows as examples."""
    strings = nlp.vocab.strings
    for key in nlp.vocab.vectors.key2row:
        if key in strings:
            yield strings[key]
    for model in linear_models(nlp):
        features, _ = linear_part(model)
        yield from features.words_in(strings)


def linear_models(nlp: Language) -> Iterator[Model]:
    """The models of a pipeline that have a linear part. Disabled components count, too."""
    for _, pipe in nlp.components:
        if isinstance(pipe, CostSensitiveNER) and has_linear_part(pipe.model):
            yield pipe.model
