"""Static word vectors for the models of an annotation session, learned from its texts.

They improve models that are trained on 50 to 300 annotated texts: see docs/serve.md. Evaluation
texts are left out, so that a model knows nothing of them before it is evaluated.
"""

import json
from pathlib import Path

from ..files.saving import save_text
from ..training.raw_sentences import are_learned_vectors
from ..workflows.vectors import DIR_VECTORS, learn_vectors
from .store import AnnotationStore

RAW_FILE = Path("raw.jsonl")
"""The file of the texts that vectors are learned from, in the folder of a session."""


def learn_session_vectors(store: AnnotationStore, lang: str) -> Path | None:
    """Learn vectors from the training texts of a session, unless they were learned from the same
    texts before.

    store (AnnotationStore): The session.
    lang (str): Code of the language.
    RETURNS (Path | None): The folder of the pipeline that has the vectors. None if no vectors can
        be learned: the texts have too few words, SciPy or the language is missing, or the folder
        has other files.
    """
    # Sorted by key, so that the same texts always make the same file
    lines: list[str] = []
    for stored in sorted(store.texts.values(), key=lambda stored: stored.key):
        if not stored.is_evaluation:
            lines.append(json.dumps({"text": stored.text}, ensure_ascii=False) + "\n")
    raw_text = "".join(lines)
    if not raw_text:
        return None
    # The file of the texts is written after the vectors: after a crash in between, the vectors are
    # learned again.
    raw_path = store.folder / RAW_FILE
    vectors_path = store.folder / DIR_VECTORS
    # If somebody has saved the file in another encoding, the texts differ.
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
