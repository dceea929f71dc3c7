"""Raw text in which cities have the same neighbours, and names have others."""

CITIES = ["rome", "oslo", "lima", "bonn"]
NAMES = ["ana", "eva", "ben", "tom"]


def make_sentences() -> list[list[str]]:
    """24 sentences: two for each of 12 pairs of a city and a name."""
    sentences: list[list[str]] = []
    for city, name in zip(CITIES * 3, NAMES * 2 + NAMES[::-1]):
        sentences.append([name, "lives", "in", city, "."])
        sentences.append(["today", name, "left", "for", city, "now"])
    return sentences


SENTENCES = make_sentences()
"""Cities after "in" and "for", names before verbs."""

N_TOKENS = 12 * (5 + 6)
"""Of `SENTENCES`: 12 pairs of a sentence of five words and one of six."""
