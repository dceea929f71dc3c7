"""Save pipelines without strings that were only added to the vocab at runtime.

The vocab of a pipeline stores each word that occurred in a doc during training and evaluation, and
spaCy saves all of these strings. The components of this package don't need them, because their
models save the words of their features. Most strings are therefore not saved. They would make up a
third of the size of a pipeline and may include personal names.
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
"""The factories of components that don't need saved strings. They only need the strings of their
labels and add them when they are loaded. Other components may rely on saved strings."""


def save_pipeline(path: str | Path, nlp: Language) -> None:
    """Save a pipeline atomically (see `save_folder`). Strings that aren't needed are not saved (see
    `keeps_strings` and `needed_strings`). The pipeline object isn't modified.

    path (str | Path): The output directory.
    nlp (Language): The pipeline to save.
    RAISES (ValueError): If the pipeline can't be saved to this path. See `check_folder`.
    """

    def write(folder: Path) -> None:
        """Write the pipeline to a directory and overwrite its strings with the needed strings."""
        nlp.to_disk(folder)
        if not keeps_strings(nlp):
            strings = StringStore(needed_strings(nlp))
            strings.to_disk(folder / "vocab" / "strings.json")

    with phase("write"):
        save_folder(path, write)


def keeps_strings(nlp: Language) -> bool:
    """Check whether to save all strings of a pipeline. This is the case if a component or the
    vectors may need them, or if `keep_all` is set for a linear model."""
    for name in nlp.component_names:
        if nlp.get_pipe_meta(name).factory not in WITHOUT_STRINGS:
            return True
    for model in linear_models(nlp):
        _, weights = linear_part(model)
        if weights.keep_all:
            return True
    # Custom vectors may need strings.
    return not isinstance(nlp.vocab.vectors, Vectors)


def needed_strings(nlp: Language) -> Iterator[str]:
    """Yield the strings to save with a pipeline: the words with static vectors, and the words in
    clusters, which `explain` shows as examples."""
    strings = nlp.vocab.strings
    for key in nlp.vocab.vectors.key2row:
        if key in strings:
            yield strings[key]
    for model in linear_models(nlp):
        features, _ = linear_part(model)
        yield from features.words_in(strings)


def linear_models(nlp: Language) -> Iterator[Model]:
    """Yield the models with a linear part in a pipeline, including disabled components."""
    for _, pipe in nlp.components:
        if isinstance(pipe, CostSensitiveNER) and has_linear_part(pipe.model):
            yield pipe.model
