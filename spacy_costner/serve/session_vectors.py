"""Learn static word vectors from the texts of an annotation session, for use in its models.

The vectors improve models trained on 50 to 300 annotated texts. See docs/serve.md. Evaluation texts
are excluded to keep the evaluation unbiased.
"""

import json
from pathlib import Path

from ..files.saving import save_text
from ..training.raw_sentences import are_learned_vectors
from ..workflows.vectors import DIR_VECTORS, learn_vectors
from .store import AnnotationStore

RAW_FILE = Path("raw.jsonl")
"""The file with the raw texts for learning vectors, in the session's folder."""


def learn_session_vectors(store: AnnotationStore, lang: str) -> Path | None:
    """Learn vectors from the training texts of a session. If they were already learned from the
    same texts, they are reused.

    store (AnnotationStore): The store of the session.
    lang (str): Language code.
    RETURNS (Path | None): The directory of the pipeline with the vectors. None if no vectors can be
        learned because the texts contain too few words, SciPy or the language isn't available, or
        the directory contains other files.
    """
    # Sort by key, so that the same texts always produce the same file.
    lines: list[str] = []
    for stored in sorted(store.texts.values(), key=lambda stored: stored.key):
        if not stored.is_evaluation:
            lines.append(json.dumps({"text": stored.text}, ensure_ascii=False) + "\n")
    raw_text = "".join(lines)
    if not raw_text:
        return None
    # The raw texts are saved after the vectors. If a crash occurs in between, the vectors are
    # learned again.
    raw_path = store.folder / RAW_FILE
    vectors_path = store.folder / DIR_VECTORS
    # If the user has saved the file in another encoding, the texts differ.
    known_text = raw_path.read_text(encoding="utf8", errors="replace") if raw_path.exists() else ""
    if known_text == raw_text and are_learned_vectors(vectors_path):
        return vectors_path
    with store.working_folder() as folder:
        path = folder / RAW_FILE
        path.write_text(raw_text, encoding="utf8")
        try:
            learn_vectors([path], vectors_path, lang=lang)
        except (ValueError, ImportError):
            return None
    save_text(raw_path, raw_text)
    return vectors_path
