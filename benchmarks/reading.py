"""Reading a corpus of each format against reading the same corpus from .spacy with spaCy's reader.

    python benchmarks/reading.py [columns]

CoNLL-2002 Spanish (training part) unless told otherwise, from files to examples for training.
Both take turns in one process, each with a new vocabulary, and in changing order. Seconds are
those of the processor. The .spacy file of a row has the same docs.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import spacy
from spacy.tokens import DocBin
from spacy.training import Corpus

from spacy_costner.readers import ReadOptions, doc_to_task, make_reader, read_docs, write_tasks

COLUMNS = Path(__file__).parent.parent / "assets" / "conll2002_es" / "esp.train"
TURNS = 10


class Files(NamedTuple):
    """A corpus in two formats.

    binary (Path): The .spacy file.
    other (Path): The file of another format.
    n_sents (Optional[int]): Sentences of a doc.
    """

    binary: Path
    other: Path
    n_sents: Optional[int] = None


def make_files(columns: Path, folder: Path) -> Dict[str, Files]:
    """Write the corpus in each format."""
    docs = list(read_docs(spacy.blank("es"), columns))
    tasks, texts = folder / "tasks.jsonl", folder / "texts.jsonl"
    write_tasks(tasks, map(doc_to_task, docs))
    with texts.open("w", encoding="utf8") as file:
        for doc in docs:
            spans = [[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents]
            file.write(json.dumps({"text": doc.text, "label": spans}) + "\n")
    rows: List[Tuple[str, Path, Optional[int]]] = [
        ("columns, a sentence per doc", columns, None),
        ("columns, ten sentences per doc", columns, 10),
        ("texts and spans", texts, None),
        ("texts and spans with tokens", tasks, None),
    ]
    found = {}
    for name, path, n_sents in rows:
        binary = folder / f"{len(found)}.spacy"
        options = ReadOptions(n_sents=n_sents)
        DocBin(docs=read_docs(spacy.blank("es"), path, options)).to_disk(binary)
        found[name] = Files(binary, path, n_sents)
    return found


def seconds(read: Callable) -> float:
    """The time to read a corpus with a new vocabulary."""
    nlp = spacy.blank("es")
    began = time.process_time()
    examples = list(read(nlp))
    took = time.process_time() - began
    assert examples
    return took


def main() -> None:
    warnings.simplefilter("ignore")  # One tag of the corpus doesn't fit its scheme.
    columns = Path(sys.argv[1]) if len(sys.argv) > 1 else COLUMNS
    print("\n## Reading\n")
    print(
        f"{columns.name}, to examples. Ratio: the median of our time over spaCy's, turn by turn.\n"
    )
    print("| format | `.spacy`, spaCy's reader | ours | ratio |\n|---|---|---|---|")
    with TemporaryDirectory() as folder:
        for name, files in make_files(columns, Path(folder)).items():
            theirs, ours = Corpus(files.binary), make_reader(files.other, n_sents=files.n_sents)
            pairs = []
            for turn in range(TURNS):
                if turn % 2:
                    own = seconds(ours)
                    pairs.append((seconds(theirs), own))
                else:
                    pairs.append((seconds(theirs), seconds(ours)))
            times = [median(pair[i] for pair in pairs) for i in (0, 1)]
            ratio = median(own / their for their, own in pairs)
            print(f"| {name} | {times[0]:.2f} s | {times[1]:.2f} s | {ratio:.2f} |")


if __name__ == "__main__":
    main()
