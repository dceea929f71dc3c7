"""Learn static word vectors from raw text and save them in a pipeline.

Raw text is unannotated text. Words that occur in similar contexts get similar vectors (see
`training/word_vectors.py`).
"""

import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy
import spacy
from confection import SimpleFrozenDict
from spacy.attrs import ORTH
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vectors import Vectors
from thinc.types import Floats2d

from ..files.saving import check_folder, save_folder
from ..progress import phase, progress
from ..readers import DEFAULTS, ReadOptions
from ..readers.raw_text import BoundedPipeline, find_raw_files, identify, map_docs
from ..training.known_text import sentence_ids_of_texts, sentence_starts
from ..training.raw_sentences import are_learned_vectors, save_raw_sentences
from ..training.word_vectors import WordVectors, learn_word_vectors, require_scipy

N_EXAMPLES = 6
"""The number of example words to show with their nearest neighbours."""

N_NEIGHBOURS = 5
"""The number of nearest neighbours to show per word."""

FIRST_EXAMPLE = 100
"""The frequency rank of the first example word. More frequent words are mostly function words such
as "the"."""

DIR_VECTORS = "vectors"
"""The directory, next to the config, in which `fit` and `init` save learned vectors."""

N_SKIPPED = 5
"""The number of skipped files to list."""


class LearnedVectors(NamedTuple):
    """The result of learning vectors from text.

    path (Path): The directory of the pipeline with the vectors.
    n_tokens (int): The number of tokens in the text.
    n_words (int): The number of words with a vector.
    dim (int): The dimension of the vectors.
    wanted_dim (int): The requested dimension.
    seconds (float): The time taken, in seconds.
    neighbours (dict[str, list[str]]): The nearest neighbours of some example words, sorted from
        frequent to rare.
    skipped (list[Path]): The skipped files in the input directories.
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
        """Format the result as text, with example words and their nearest neighbours."""
        lines = self.summary()
        lines.append("")
        for word, neighbours in self.neighbours.items():
            lines.append(f"{word:>20}  {' '.join(neighbours)}")
        return "\n".join([*lines, ""])

    def summary(self) -> list[str]:
        """Summarize the text, the vectors and the skipped files. Return a list of lines."""
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
    corpora: Mapping[Path, ReadOptions] = SimpleFrozenDict(),
) -> LearnedVectors:
    """Learn static word vectors from raw text and save a pipeline with the vectors. See
    `learn_word_vectors`. All forms of a word in the text, such as "The" and "the", share a vector.

    raw_paths (Sequence[Path]): Text files with one sentence or paragraph per line, corpora in any
        format, and directories of these. Annotations aren't used. "-" reads standard input.
    output_path (Path): The output directory for the pipeline.
    lang (str): Language code of the tokenizer for texts without tokens.
    dim (int): Dimension of the vectors. It is reduced if there are fewer words.
    min_count (int): Minimum frequency of a word.
    seed (int): Random seed.
    reading (ReadOptions): The options for reading corpora.
    corpora (Mapping[Path, ReadOptions]): Files and directories in `raw_paths` that are read with
        other options.
    RETURNS (LearnedVectors): The output directory and statistics of the vectors.
    RAISES (ValueError): If `dim` is less than 1, an input can't be read, the text contains too few
        words, or the output directory must not be overwritten (see `check_folder`).
    RAISES (ImportError): If SciPy isn't installed, or if spaCy doesn't support the language.
    """
    # Fail early, before the texts are read.
    require_scipy()
    check_folder(output_path)
    began = time.perf_counter()
    pipeline = BoundedPipeline(partial(spacy.blank, lang))
    files = find_raw_files(raw_paths)
    options_of_file: dict[Path, ReadOptions] = {}
    for corpus_path, options in corpora.items():
        for file in find_raw_files([corpus_path]).paths:
            options_of_file[identify(file)] = options
    text = RawText(pipeline, files.paths, reading, options_of_file)
    sentences = progress(text, desc="vectors", unit="sent")
    with phase("vectors"):
        vectors = learn_word_vectors(sentences, dim=dim, min_count=min_count, seed=seed)

    def write(folder: Path) -> None:
        """Write the pipeline and the hashes of the sentences that were read."""
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
    """An iterable over the sentences in raw text files. Each sentence is a list of words. It can
    only be iterated over once, because the files may include standard input. The attribute
    `sentence_ids` contains the hashes of the long sentences read so far (see
    `training.known_text.sentence_ids`).

    pipeline (BoundedPipeline): The pipeline that provides the tokenizer.
    paths (Iterable[Path]): The files to read.
    reading (ReadOptions): The options for reading corpora.
    options_of_file (Mapping[Path, ReadOptions]): The options for reading files whose options
        differ, keyed by their identity: see `identify`.
    """

    def __init__(
        self,
        pipeline: BoundedPipeline,
        paths: Iterable[Path],
        reading: ReadOptions = DEFAULTS,
        options_of_file: Mapping[Path, ReadOptions] = SimpleFrozenDict(),
    ) -> None:
        self.pipeline = pipeline
        self.paths = paths
        self.reading = reading
        self.options_of_file = options_of_file
        self.sentence_ids = array("L")  # unsigned integers; uses less memory than a list
        self._text_of_orth: dict[int, str] = {}

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.paths:
            options = self.options_of_file.get(identify(path), self.reading)
            for sentences in map_docs(self._read_doc, self.pipeline, path, options):
                yield from sentences

    def _read_doc(self, doc: Doc) -> list[list[str]]:
        """Return the words of each sentence in a doc, and store the hashes of long sentences."""
        texts = self._token_texts(doc)
        is_start = sentence_starts(doc)
        self.sentence_ids.extend(sentence_ids_of_texts(texts, is_start))
        return split_sentences(texts, is_start)

    def _token_texts(self, doc: Doc) -> list[str]:
        """Return the token texts of a doc. They are looked up by ID, which is faster than
        `token.text` because no `Token` objects are created."""
        text_of_orth = self._text_of_orth
        orths = doc.to_array(ORTH).tolist()
        for new_orth in {*orths}.difference(text_of_orth):
            text_of_orth[new_orth] = doc.vocab.strings[new_orth]
        return [*map(text_of_orth.__getitem__, orths)]


def split_sentences(texts: Sequence[str], is_start: Sequence[bool]) -> list[list[str]]:
    """Split the token texts of a doc into sentences. Whitespace tokens are removed."""
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
    reading_of_corpus: ReadOptions | None = None,
) -> LearnedVectors:
    """Learn vectors from raw text and the text of a training corpus. Vectors from an earlier run in
    the output directory are overwritten. If the training corpus is also part of the raw text, it is
    read once.

    raw_paths (Sequence[Path]): Files and directories of text. See `learn_vectors`.
    train_path (Path | None): The training corpus, if any.
    output_path (Path): The output directory for the pipeline with the vectors.
    lang (str): Language code.
    reading (ReadOptions): The options for reading corpora.
    reading_of_corpus (ReadOptions | None): The options for reading the training corpus, if they
        differ.
    RETURNS (LearnedVectors): The output directory and statistics of the vectors.
    RAISES (ValueError): If the output directory exists and doesn't contain learned vectors. See
        also `learn_vectors`.
    """
    if output_path.exists() and not are_learned_vectors(output_path):
        raise ValueError(
            f"{output_path}: expected a new folder, or vectors that were learned from raw text, "
            "got something else: remove it, or choose another output"
        )
    texts = [*raw_paths]
    corpora: dict[Path, ReadOptions] = {}
    if train_path is not None:
        texts.append(train_path)
        corpora[train_path] = reading if reading_of_corpus is None else reading_of_corpus
    return learn_vectors(texts, output_path, lang=lang, reading=reading, corpora=corpora)


def make_pipeline(vectors: WordVectors, lang: str) -> Language:
    """Create a pipeline without components whose vocab contains the vectors. All forms of a word,
    such as "The" and "the", are mapped to the same row. (spaCy can be configured to look up vectors
    by lowercase form, but this setting isn't saved.)"""
    nlp = spacy.blank(lang)
    table = Vectors(strings=nlp.vocab.strings, data=vectors.data, name="vectors")
    for form, row in vectors.row_of_form.items():
        table.add(form, row=row)
    nlp.vocab.vectors = table
    return nlp


def find_neighbours(vectors: WordVectors) -> dict[str, list[str]]:
    """Choose example words and find their nearest neighbours. The words are sorted by frequency,
    and the ranks of the chosen words increase by an approximately constant factor."""
    n_words = len(vectors.words)
    first_rank = min(FIRST_EXAMPLE, n_words // N_EXAMPLES)
    # `geomspace` can't start at 0, so count ranks from 1.
    ranks_from_1 = numpy.geomspace(first_rank + 1, n_words, N_EXAMPLES + 1).astype(int)
    ranks = ranks_from_1[:-1] - 1  # without the last rank (the rarest word)
    neighbours: dict[str, list[str]] = {}
    for rank in ranks.tolist():
        # From this rank on, use the first word that only consists of letters.
        for i in range(rank, n_words):
            if vectors.words[i].isalpha():
                neighbours[vectors.words[i]] = nearest_words(vectors.words, vectors.data, i)
                break
    return neighbours


def nearest_words(words: Sequence[str], vectors: Floats2d, index: int) -> list[str]:
    """Find the nearest neighbours of a word by cosine similarity. All vectors must have unit
    length. Shape: (words, dim)"""
    cosines = vectors @ vectors[index]
    cosines[index] = -numpy.inf  # exclude the word itself
    n_nearest = min(N_NEIGHBOURS, len(words) - 1)
    nearest = numpy.argsort(-cosines, kind="stable")[:n_nearest]
    return [words[i] for i in nearest]
