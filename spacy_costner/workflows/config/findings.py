"""The findings of `check`: problems and the docs in which they occur."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spacy.tokens import Doc

from ...annotation.tokens import first_words

ERROR = "error"

WARNING = "warning"


class DocPlace(NamedTuple):
    """A doc with a problem.

    doc (int): The index of the doc in its corpus.
    words (str): The first words of the doc.
    text (str): The affected text, e.g. an entity. Empty if the whole doc is affected.
    """

    doc: int
    words: str
    text: str


class Finding(NamedTuple):
    """A problem in the data or in the config.

    severity (str): "error" or "warning".
    corpus (str): "train", "dev" or "config".
    message (str): The problem and its effect.
    places (Sequence[DocPlace]): The docs in which the problem occurs.
    """

    severity: str
    corpus: str
    message: str
    places: Sequence[DocPlace] = ()


def join_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Merge all findings of the same problem into a single finding with all affected docs. Errors
    come first."""
    places_of_problem: dict[tuple[str, str, str], list[DocPlace]] = {}
    for severity, corpus, message, places in findings:
        places_of_problem.setdefault((severity, corpus, message), []).extend(places)
    errors: list[Finding] = []
    warnings: list[Finding] = []
    for (severity, corpus, message), places in places_of_problem.items():
        finding = Finding(severity, corpus, message, places)
        if severity == ERROR:
            errors.append(finding)
        else:
            warnings.append(finding)
    return errors + warnings


def place_in_doc(number: int, doc: Doc, text: str = "") -> DocPlace:
    """Create the `DocPlace` for a problem.

    number (int): The index of the doc in its corpus.
    text (str): The affected text.
    """
    return DocPlace(number, first_words(doc), text)
