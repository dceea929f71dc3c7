"""`vectors`: learn static word vectors from raw text, and save a pipeline that has them.

Raw text is text without annotation. Words that occur in similar contexts get similar vectors: see
`training/word_vectors.py`.
"""

import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy
import spacy
from spacy.attrs import ORTH
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vectors import Vectors
from thinc.types import Floats2d

from ..files.saving import check_folder, save_folder
from ..progress import phase, progress
from ..readers import DEFAULTS, ReadOptions
from ..readers.raw_text import BoundedPipeline, find_raw_files, map_docs
from ..training.known_text import sentence_ids_of_texts, sentence_starts
from ..training.raw_sentences import are_learned_vectors, save_raw_sentences
from ..training.word_vectors import WordVectors, learn_word_vectors, require_scipy

N_EXAMPLES = 6
"""The number of words that are shown with their neighbours: the words whose vectors are most
similar."""

N_NEIGHBOURS = 5
"""The number of neighbours of a word that are shown."""

FIRST_EXAMPLE = 100
"""The rank of the most frequent word that is shown. More frequent ones are words such as "the"."""

DIR_VECTORS = "vectors"
"""The folder of the vectors that `fit` and `init` learn. It is next to the config."""

N_SKIPPED = 5
"""The number of skipped files that are named."""


class LearnedVectors(NamedTuple):
    """Vectors that were learned from text, and saved.

    path (Path): The folder of the pipeline that has the vectors.
    n_tokens (int): The number of tokens of the text.
    n_words (int): The number of words that have a vector.
    dim (int): The length of the vectors.
    wanted_dim (int): The requested length.
    seconds (float): How long it took.
    neighbours (dict[str, list[str]]): Some words, from frequent to rare ones, and for each the
        words with the most similar vectors.
    skipped (list[Path]): The files of folders that were not read.
    """

    path: Path
    n_tokens: int
    n_words: int
    dim: int
    wanted_dim: int
    seconds: float
    neighbours: dict[str, list[str]]
    skipped: list[Path]

    def as_text(self) -> str:
        """Report the learned vectors, and show some words with their neighbours."""
        lines = self.summary()
        lines.append("")
        for word, neighbours in self.neighbours.items():
            lines.append(f"{word:>20}  {' '.join(neighbours)}")
        return "\n".join([*lines, ""])

    def summary(self) -> list[str]:
        """Report how much was read and learned, and what was skipped. Returns the lines."""
        lines = [
            f"{self.n_tokens:,} tokens, {self.n_words:,} words with a vector of {self.dim} "
            f"numbers, {self.seconds:.1f} s"
        ]
        if self.dim < self.wanted_dim:
            lines.append(f"a dimension of {self.wanted_dim} needs more words")
        if self.skipped:
            names = ", ".join(str(path) for path in self.skipped[:N_SKIPPED])
            if len(self.skipped) > N_SKIPPED:
                names += f" and {len(self.skipped) - N_SKIPPED:,} others"
            lines.append(f"skipped (not text, or about the texts): {names}")
        return lines


def learn_vectors(
    raw_paths: Sequence[Path],
    output_path: Path,
    *,
    lang: str = "en",
    dim: int = 100,
    min_count: int = 3,
    seed: int = 0,
    reading: ReadOptions = DEFAULTS,
) -> LearnedVectors:
    """Learn static word vectors from raw text, and save a pipeline that has them: see
    `learn_word_vectors`. All forms of a word in the text, such as "The" and "the", have the same
    vector.

    raw_paths (Sequence[Path]): Text files with a sentence or a paragraph on each line, any corpora,
        whose annotation isn't used, and folders of these. - is standard input.
    output_path (Path): The folder for the pipeline.
    lang (str): Code of the language, whose tokenizer is used for texts without tokens.
    dim (int): Length of the vectors: less if there are fewer words.
    min_count (int): Minimum number of times that a word occurs.
    seed (int): Random seed.
    reading (ReadOptions): How to read corpora.
    RETURNS (LearnedVectors): The folder, and statistics of the vectors.
    RAISES (ValueError): If `dim` is below 1, something can't be read, the text has too few words,
        or the folder must not be replaced: see `check_folder`.
    RAISES (ImportError): If SciPy is missing, or spaCy has no such language.
    """
    # What would make an error at the end is checked before the texts are read.
    require_scipy()
    check_folder(output_path)
    began = time.perf_counter()
    pipeline = BoundedPipeline(partial(spacy.blank, lang))
    files = find_raw_files(raw_paths)
    text = RawText(pipeline, files.paths, reading)
    sentences = progress(text, desc="vectors", unit="sent")
    with phase("vectors"):
        vectors = learn_word_vectors(sentences, dim=dim, min_count=min_count, seed=seed)

    def write(folder: Path) -> None:
        """Write the pipeline, and the hashes of the sentences that were read."""
        make_pipeline(vectors, lang).to_disk(folder)
        save_raw_sentences(folder, text.sentence_ids)

    with phase("write"):
        save_folder(output_path, write)
    return LearnedVectors(
        path=output_path,
        n_tokens=vectors.n_tokens,
        n_words=len(vectors.words),
        dim=vectors.data.shape[1],
        wanted_dim=dim,
        seconds=time.perf_counter() - began,
        neighbours=find_neighbours(vectors),
        skipped=files.skipped,
    )


class RawText:
    """Files of raw text. Iterating over them yields the words of one sentence after another. They
    are to be read only once, as standard input may be among them. The attribute `sentence_ids` has
    the hashes of the long sentences that were read so far: see `training.known_text.sentence_ids`.

    pipeline (BoundedPipeline): A pipeline, for its tokenizer.
    paths (Iterable[Path]): The files.
    reading (ReadOptions): How to read corpora.
    """

    def __init__(
        self, pipeline: BoundedPipeline, paths: Iterable[Path], reading: ReadOptions = DEFAULTS
    ) -> None:
        self.pipeline = pipeline
        self.paths = paths
        self.reading = reading
        self.sentence_ids = array("L")  # unsigned integers, which take less memory than a list
        self._text_of_orth: dict[int, str] = {}

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.paths:
            for sentences in map_docs(self._read_doc, self.pipeline, path, self.reading):
                yield from sentences

    def _read_doc(self, doc: Doc) -> list[list[str]]:
        """Return the words of each sentence of a doc, and keep the hashes of its long sentences."""
        texts = self._token_texts(doc)
        is_start = sentence_starts(doc)
        self.sentence_ids.extend(sentence_ids_of_texts(texts, is_start))
        return split_sentences(texts, is_start)

    def _token_texts(self, doc: Doc) -> list[str]:
        """The texts of the tokens of a doc. They are looked up by their ids, as `token.text` is
        slower: spaCy makes an object for each token."""
        text_of_orth = self._text_of_orth
        orths = doc.to_array(ORTH).tolist()
        for orth in orths:
            if orth not in text_of_orth:
                text_of_orth[orth] = doc.vocab.strings[orth]
        return [text_of_orth[orth] for orth in orths]


def split_sentences(texts: Sequence[str], is_start: Sequence[bool]) -> list[list[str]]:
    """Divide the texts of the tokens of a doc into sentences. Whitespace is left out."""
    starts = [i for i, starts_here in enumerate(is_start) if starts_here and i > 0]
    sentences: list[list[str]] = []
    for start, end in pairwise([0, *starts, len(texts)]):
        sentences.append([text for text in texts[start:end] if not text.isspace()])
    return sentences


def learn_with_corpus(
    raw_paths: Sequence[Path],
    train_path: Path | None,
    output_path: Path,
    lang: str,
    reading: ReadOptions = DEFAULTS,
) -> LearnedVectors:
    """Learn vectors from raw text and from the text of a training corpus. Vectors that an earlier
    run has learned in the output folder are replaced.

    raw_paths (Sequence[Path]): Files and folders of text: see `learn_vectors`.
    train_path (Path | None): The training corpus, if there is one.
    output_path (Path): The folder for the pipeline with the vectors.
    lang (str): Code of the language.
    reading (ReadOptions): How to read the training corpus.
    RETURNS (LearnedVectors): The folder, and statistics of the vectors.
    RAISES (ValueError): If the folder exists and doesn't have learned vectors. See also
        `learn_vectors`.
    """
    if output_path.exists() and not are_learned_vectors(output_path):
        raise ValueError(
            f"{output_path}: expected a new folder, or vectors that were learned from raw text, "
            "got something else: remove it, or choose another output"
        )
    texts = [*raw_paths]
    if train_path is not None:
        texts.append(train_path)
    return learn_vectors(texts, output_path, lang=lang, reading=reading)


def make_pipeline(vectors: WordVectors, lang: str) -> Language:
    """Make a pipeline without components whose vocab has vectors. Each form of a word, such as
    "The" and "the", refers to the same row. (spaCy could look up words in lower case, but doesn't
    save that.)"""
    nlp = spacy.blank(lang)
    table = Vectors(strings=nlp.vocab.strings, data=vectors.data, name="vectors")
    for form, row in vectors.row_of_form.items():
        table.add(form, row=row)
    nlp.vocab.vectors = table
    return nlp


def find_neighbours(vectors: WordVectors) -> dict[str, list[str]]:
    """Choose some words, from frequent to rare ones, and find the neighbours of each. Words are in
    the order of their frequency, and the rank of a word is its index in this order. The ranks of
    chosen words grow by about a constant factor."""
    n_words = len(vectors.words)
    first_rank = min(FIRST_EXAMPLE, n_words // N_EXAMPLES)
    # `geomspace` can't begin at 0, so it gets ranks that are counted from 1.
    ranks_from_1 = numpy.geomspace(first_rank + 1, n_words, N_EXAMPLES + 1).astype(int)
    ranks = ranks_from_1[:-1] - 1  # without the last one, of the rarest word
    neighbours: dict[str, list[str]] = {}
    for rank in ranks.tolist():
        # Take the first word from this rank on that only has letters, not digits or punctuation.
        for i in range(rank, n_words):
            if vectors.words[i].isalpha():
                neighbours[vectors.words[i]] = nearest_words(vectors.words, vectors.data, i)
                break
    return neighbours


def nearest_words(words: Sequence[str], vectors: Floats2d, index: int) -> list[str]:
    """Find the neighbours of a word: the words whose vectors have the largest cosine with its own.
    All vectors have unit length. Shape: (words, dim)"""
    cosines = vectors @ vectors[index]
    cosines[index] = -numpy.inf  # A word is not a neighbour of itself.
    n_nearest = min(N_NEIGHBOURS, len(words) - 1)
    nearest = numpy.argsort(-cosines, kind="stable")[:n_nearest]
    return [words[i] for i in nearest]
