"""Compare our reading of tags with seqeval in strict mode, and with the rules of conlleval.

For each scheme, random entities are written as tags. The scheme must be detected from the tags, and
the entities read must equal the original entities and the entities read by seqeval. Random tags of
the scheme, most of which break its rules, must then be read as by conlleval.

    pip install seqeval
    python -m scripts.compare_schemes --sequences 12000
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import numpy
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, IOE2, Entities

from spacy_costner.readers.files import FilePlace
from spacy_costner.readers.schemes import (
    PREFIXES_OF_SCHEME,
    SUFFIX,
    DecodedTags,
    TagCounts,
    decode_tags,
    find_scheme,
)

Entity = tuple[int, int, str]
"""The start and end (exclusive) token of an entity, and its label."""

LABELS = ["PER", "LOC", "E-MAIL"]

SEQEVAL = {
    "IOB1": IOB1,
    "IOB2": IOB2,
    "IOE2": IOE2,
    "BILUO": BILOU,
    "IOBES": IOBES,
    "BMES": IOBES,
}
"""The schemes of seqeval. BMES is IOBES with M for I. seqeval doesn't support IO, and its IOE1,
which "hasn't yet been able to handle some cases", drops an entity that is a single token with E."""

MULTIPLE = {"BILUO": "BIL", "IOBES": "BIE", "BMES": "BME"}
"""The prefixes for the first, inner and last tokens of an entity."""

SINGLE = {"BILUO": "U", "IOBES": "S", "BMES": "S"}
"""The prefix for entities of a single token."""


def draw_entities(rng: random.Random, n_tokens: int, *, touching: bool) -> list[Entity]:
    """Generate random entities for a sentence. Entities with the same label are only adjacent if
    the scheme can express it."""
    entities: list[Entity] = []
    start = rng.randrange(3)
    while start < n_tokens:
        end = min(n_tokens, start + rng.randint(1, 3))
        label = rng.choice(LABELS)
        follows_same = bool(entities) and entities[-1][1:] == (start, label)
        if touching or not follows_same:
            entities.append((start, end, label))
        start = end + rng.choice([0, 0, 1, 2])
    return entities


def write_tags(entities: Sequence[Entity], n_tokens: int, scheme: str) -> list[str]:
    """Write entities as tags."""
    tags = ["O"] * n_tokens
    by_start = {(start, label): True for start, _, label in entities}
    by_end = {(end, label): True for _, end, label in entities}
    for start, end, label in entities:
        prefixes = ["I"] * (end - start)
        if scheme == "IOB2" or (scheme == "IOB1" and (start, label) in by_end):
            prefixes[0] = "B"
        elif scheme == "IOE2" or (scheme == "IOE1" and (end, label) in by_start):
            prefixes[-1] = "E"
        elif scheme in MULTIPLE:
            of_first, of_inner, of_last = [*MULTIPLE[scheme]]
            prefixes = [of_first, *[of_inner] * (end - start - 2), of_last]
            if end - start == 1:
                prefixes = [SINGLE[scheme]]
        tags[start:end] = [f"{prefix}-{label}" for prefix in prefixes]
    return tags


def with_prefix_behind(tags: Sequence[str]) -> list[str]:
    """Move the prefix of each tag after its label."""
    return [tag if tag == "O" else f"{tag[2:]}-{tag[0]}" for tag in tags]


def entities_by_conlleval(tags: Sequence[str]) -> list[Entity]:
    """Read the entities of a sentence by the rules of conlleval.pl, which knows B, I, E and O. S
    and U are both B and E, L is E, and M is I."""
    entities: list[Entity] = []
    begin: int | None = None
    before, label_before = "O", ""
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, label = tag.partition("-")
        ends = prefix in "BSUO" or before in "ELSU" or label != label_before
        if begin is not None and ends:
            entities.append((begin, i, label_before))
            begin = None
        starts = (
            prefix in "BSU"
            or (before in "ELSU" and prefix in "EILM")
            or (before == "O" and prefix in "EILM")
            or label != label_before
        )
        if prefix != "O" and starts:
            begin = i
        before, label_before = prefix, label
    return entities


def read_entities(decoded: DecodedTags, lengths: Sequence[int]) -> list[list[Entity]]:
    """Get the entities of each sentence from spaCy's ENT_IOB of all tokens."""
    sentences: list[list[Entity]] = []
    first = 0
    for length in lengths:
        entities: list[Entity] = []
        for i in range(length):
            iob = int(decoded.iob[first + i])
            if iob == 3:
                entities.append((i, i + 1, decoded.labels[int(decoded.label[first + i])]))
            elif iob == 1:
                start, _, label = entities[-1]
                entities[-1] = (start, i + 1, label)
        sentences.append(entities)
        first += length
    return sentences


def read(sentences: Sequence[Sequence[str]], name: str | None) -> tuple[str, list[list[Entity]]]:
    """Read tags with our reader. Returns the scheme, and the entities of each sentence."""
    tags = [tag for sentence in sentences for tag in sentence]
    starts = [i == 0 for sentence in sentences for i in range(len(sentence))]
    counts = TagCounts()
    counts.add(tags, numpy.asarray(starts), lambda token: FilePlace(Path("tags"), token + 1))
    scheme = find_scheme(counts, name)
    decoded = decode_tags(tags, numpy.asarray(starts), scheme)
    return scheme.name, read_entities(decoded, [len(sentence) for sentence in sentences])


def read_by_seqeval(
    sentences: Sequence[Sequence[str]], scheme: str, *, is_behind: bool
) -> list[list[Entity]]:
    """Read tags with seqeval in strict mode."""
    prefix = -1 if is_behind else 0  # its index in a tag
    rows: list[list[str]] = []
    for sentence in sentences:
        row: list[str] = []
        for tag in sentence:
            if scheme == "BMES" and tag[prefix] == "M":
                tag = f"{tag[:-1]}I" if is_behind else f"I{tag[1:]}"
            row.append(tag)
        rows.append(row)
    found = Entities(rows, SEQEVAL[scheme], is_behind)
    return [[(entity.start, entity.end, entity.tag) for entity in row] for row in found.entities]


def compare(scheme: str, n_sequences: int, rng: random.Random, *, is_behind: bool) -> None:
    """Compare all readings of one scheme, and print the number of sentences."""
    written: list[list[Entity]] = []
    sentences: list[list[str]] = []
    for _ in range(n_sequences):
        n_tokens = rng.randint(1, 12)
        entities = draw_entities(rng, n_tokens, touching=scheme != "IO")
        tags = write_tags(entities, n_tokens, scheme)
        written.append(entities)
        sentences.append(with_prefix_behind(tags) if is_behind else tags)
    our_name = "IOE" if scheme.startswith("IOE") else scheme
    expected_name = our_name + SUFFIX if is_behind else our_name
    # PER-I could be a whole label, so the scheme isn't guessed.
    told = expected_name if expected_name == "IO-suffix" else None
    name, ours = read(sentences, told)
    assert name == expected_name, (name, scheme)
    assert ours == written
    if scheme in SEQEVAL:
        assert read_by_seqeval(sentences, scheme, is_behind=is_behind) == ours

    tag_set = [f"{prefix}-{label}" for prefix in PREFIXES_OF_SCHEME[our_name] for label in LABELS]
    tag_set += ["O"] * 3
    sentences = [rng.choices(tag_set, k=rng.randint(1, 12)) for _ in range(n_sequences)]
    by_conlleval = [entities_by_conlleval(sentence) for sentence in sentences]
    if is_behind:
        sentences = [with_prefix_behind(sentence) for sentence in sentences]
    assert read(sentences, name)[1] == by_conlleval
    print(f"{name} ({scheme}): {n_sequences:,} sentences, {sum(map(len, ours)):,} entities: equal")


def main() -> None:
    """Compare all schemes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for scheme in ["IO", "IOB1", "IOB2", "IOE1", "IOE2", "BILUO", "IOBES", "BMES"]:
        for is_behind in (False, True):
            compare(scheme, options.sequences, rng, is_behind=is_behind)


if __name__ == "__main__":
    main()
