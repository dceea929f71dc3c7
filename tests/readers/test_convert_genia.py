"""GENIA from XML to columns: scripts/convert_genia.py."""

import io
import tarfile
from collections import Counter
from xml.etree import ElementTree

import convert_genia as genia
import pytest
from convert_genia import GOLD, PLAIN, Entity, Sentence, convert, encode, read_terms, tag

from experiments import corpora

ARCHIVE = corpora.ASSETS / "genia" / "GENIAcorpus3.02.tgz"
ARTICLE = """
<article><articleinfo><bibliomisc>{abstract}</bibliomisc></articleinfo>
<title><sentence>{title}</sentence></title>
<abstract><sentence>{text}</sentence><sentence> </sentence></abstract></article>
"""


OUTERMOST = """The <cons sem="G#other"><cons sem="G#DNA_N/A">IL-2 gene</cons> expression</cons>,
<cons sem="G#virus">HIV</cons>."""
JOINED = '<cons sem="(AND G#cell G#cell)"><cons>CD4</cons> and <cons>CD8</cons></cons>'
OF_TWO = '<cons sem="(OR G#virus G#a)">a <cons sem="G#virus">b</cons> <cons>c</cons></cons> d'


@pytest.mark.parametrize(
    "xml, text, expected",
    [
        (OUTERMOST, "The IL-2 gene expression,\nHIV.", [(4, 24, "other"), (26, 29, "virus")]),
        (JOINED, "CD4 and CD8", [(0, 11, "cell")]),
        (OF_TWO, "a b c d", [(2, 3, "virus")]),
    ],
    ids=["outermost", "coordination of one category", "coordination of two categories"],
)
def test_terms(xml, text, expected):
    """A term is an outermost one. A coordination of one category is one term. In a coordination of
    two categories the terms within count, if they have a category: "c" has none."""
    assert read_terms(ElementTree.fromstring(f"<sentence>{xml}</sentence>")) == (text, expected)


NESTED = [(4, 24, "other"), (4, 13, "DNA_N/A"), (26, 29, "virus")]
"""All terms of OUTERMOST, as first character, end and category."""


def test_nested_terms_are_all_read():
    element = ElementTree.fromstring(f"<sentence>{OUTERMOST}</sentence>")
    _, terms = read_terms(element, nested=True)
    assert [tuple(term) for term in terms] == NESTED


def test_nested_terms_become_spans_of_the_tokens_that_they_touch():
    """The characters 10 to 12 are within "gene", 9 to 13."""
    text = "The IL-2 gene expression,\nHIV."
    terms = [Entity(*term) for term in NESTED]
    within_token = Entity(10, 12, "part")

    task = genia.nested_task(Sentence("1", "title", text, [], [*terms, within_token]))

    assert task["spans"] == sorted([*NESTED, (9, 13, "part")])
    assert task["text"] == text
    assert task["abstract"] == "1"


@pytest.mark.parametrize(
    "text, plain, joined, borders",
    [
        ("NF-kappa B", "NF - kappa B", "NF-kappa B", ()),
        ("5'-end of 0.5", "5 ' - end of 0.5", "5 ' - end of 0.5", ()),
        ("1,000 (CD4+)", "1,000 ( CD4 + )", "1,000 ( CD4 + )", ()),
        ("a,b 1.2x c.", "a , b 1 . 2x c .", "a , b 1.2x c .", ()),
        ("CD28-mediated one", "CD28 - mediated one", "CD28 -mediated one", [0, 4, 13]),
    ],
)
def test_tokens(text, plain, joined, borders):
    """`plain` and `joined` are the tokens of both patterns, with blanks between them. Borders cut
    what a pattern would join: "CD28-mediated" is cut after the 4 characters of the entity CD28."""
    for pattern, expected in ((genia.PLAIN_TOKEN, plain), (genia.JOINED_TOKEN, joined)):
        tokens = [text[begin:end] for begin, end in genia.tokenize(text, pattern, borders)]
        assert tokens == expected.split()


THREE_TOKENS = [(0, 4), (4, 5), (6, 10)]
"""First character and end of each."""


def test_entities_that_end_within_a_token_have_all_of_it():
    """Of two entities in the last token, the first counts."""
    entities = [Entity(0, 5, "a"), Entity(6, 8, "b"), Entity(8, 10, "c")]
    assert encode(THREE_TOKENS, entities) == ["B-a", "I-a", "B-b"]


def test_an_entity_between_tokens_has_none():
    assert encode(THREE_TOKENS, [Entity(5, 6, "a")]) == ["O", "O", "O"]


def test_gold_tokens_end_where_entities_end():
    sentence = Sentence("1", "title", "CD28-mediated", [Entity(0, 4, "virus")])
    assert tag(sentence, PLAIN) == (["CD28", "-", "mediated"], ["B-virus", "O", "O"])
    assert tag(sentence, GOLD) == (["CD28", "-mediated"], ["B-virus", "O"])


def write_archive(path, articles):
    """Write a corpus of articles as GENIA is published: XML in a compressed archive."""
    data = f"<set>{''.join(articles)}</set>".encode()
    with tarfile.open(path, "w:gz") as files:
        member = tarfile.TarInfo("folder/corpus.xml")
        member.size = len(data)
        files.addfile(member, io.BytesIO(data))


def test_convert(tmp_path):
    """Three articles, of which the last is the first again: it is left out. The sentences are "A",
    "HIV-1 is", "B" and "C-1 .": 1 + 4 + 1 + 4 plain tokens, in which hyphens are tokens, and
    1 + 2 + 1 + 2 gold tokens, in which they join. The empty sentence of ARTICLE doesn't count."""
    first = ARTICLE.format(abstract="1", title="A", text='<cons sem="G#virus">HIV-1</cons> is')
    second = ARTICLE.format(abstract="2", title="B", text="C-1.")
    first_again = ARTICLE.format(abstract="1", title="A", text="x")
    write_archive(tmp_path / "genia.tgz", [first, second, first_again])

    counts = convert(tmp_path / "genia.tgz", tmp_path / "corpus")

    assert counts[PLAIN] == Counter(sentences=4, tokens=10, entities=1, marked=1)
    assert counts[GOLD] == Counter(sentences=4, tokens=6, entities=1, marked=1)
    docs, abstracts = corpora.read_genia(PLAIN, tmp_path / "corpus")
    assert [doc.text.strip() for doc in docs] == ["A", "HIV - 1 is", "B", "C - 1 ."]
    assert [(ent.text, ent.label_) for ent in docs[1].ents] == [("HIV - 1", "virus")]
    assert abstracts == ["1", "1", "2", "2"]


def test_a_corpus_that_was_not_converted_names_the_script(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"convert_genia\.py"):
        corpora.read_genia(PLAIN, tmp_path)


@pytest.mark.skipif(not ARCHIVE.exists(), reason="GENIA is not in assets/genia")
def test_published_corpus(tmp_path):
    """An entity is lost if all its tokens are of entities before it. This happens to two of the
    marked ones with plain tokens, and to none with gold tokens, which end where entities end."""
    counts = convert(ARCHIVE, tmp_path)
    assert counts[PLAIN] == Counter(sentences=18535, tokens=557979, entities=76555, marked=76557)
    assert counts[GOLD] == Counter(sentences=18535, tokens=499241, entities=76557, marked=76557)
    for name in (PLAIN, GOLD):
        other = corpora.ASSETS / "genia" / f"{name}.iob2"
        if other.exists():
            assert (tmp_path / other.name).read_bytes() == other.read_bytes()
