"""A comparison that takes seconds: a tiny corpus, a tiny config, two losses."""

from pathlib import Path
from typing import NamedTuple

from spacy.tokens import Doc, DocBin

from .vocabs import blank_vocab

CORPUS = [
    ("Rain in Paris , France .", ["O", "O", "B-city", "O", "B-country", "O"]),
    ("Republic of Georgia", ["B-country", "I-country", "I-country"]),
    ("Nothing happened .", ["O", "O", "O"]),
    ("Paris", ["B-city"]),
]

SENTENCES = """\
-DOCSTART- -X- O

Ana NC B-PER
Lee AQ I-PER
ve VMI O
Roma NC I-LOC

Roma NC B-LOC
duerme VMI O
"""
"""In columns, for the experiments of the papers."""

CONFIG = """
[paths]
train = "{corpus}"
dev = "{corpus}"

[system]
seed = 0
gpu_allocator = null

[nlp]
lang = "xx"
pipeline = ["ner"]

[components]

[components.ner]
factory = "cost_sensitive_ner"
scheme = "IOB2"

[components.ner.model]
@architectures = "spacy_costner.LinearChainCRF.v1"

[components.ner.model.tok2vec]
@architectures = "spacy.HashEmbedCNN.v2"
pretrained_vectors = null
width = 8
depth = 1
embed_size = 50
window_size = 1
maxout_pieces = 2
subword_features = false

[training]
seed = ${{system.seed}}
gpu_allocator = ${{system.gpu_allocator}}
max_steps = 6
eval_frequency = 1
"""

SHORT = """
[nlp]
lang = "xx"
pipeline = ["ner"]

[components]

[components.ner]
factory = "cost_sensitive_ner"

[components.ner.loss]
@losses = "spacy_costner.Risk.v1"

[components.ner.loss.cost]
@misc = "spacy_costner.HammingCost.v1"

[training]
seed = 9
max_steps = 90
dropout = 0.0
"""

SEQUENTIAL = """
[components]

[components.ner]

[components.ner.loss]
@losses = "spacy_costner.Sequential.v1"
"""


class Experiment(NamedTuple):
    """The arguments of `compare` and `plan`."""

    config_path: Path
    loss_paths: list[Path]
    test_path: Path
    output_path: Path


def save_cities(path: Path, n_docs: int) -> Path:
    """Save docs of a city and a number. Returns the path."""
    vocab = blank_vocab()
    docs = [Doc(vocab, words=["Paris", f"{i}"], ents=["B-city", "O"]) for i in range(n_docs)]
    DocBin(docs=docs).to_disk(path)
    return path


def make_corpus(path: Path) -> None:
    """Write the corpus."""
    vocab = blank_vocab()
    docs = [Doc(vocab, words=text.split(), ents=tags) for text, tags in CORPUS]
    DocBin(docs=docs).to_disk(path)


def make_experiment(folder: Path) -> Experiment:
    """Write corpus and configs to a folder."""
    corpus = folder / "corpus.spacy"
    make_corpus(corpus)
    texts = {"base": CONFIG.format(corpus=corpus), "sequential": SEQUENTIAL, "risk": SHORT}
    for name, text in texts.items():
        (folder / f"{name}.cfg").write_text(text, encoding="utf8")
    losses = [folder / "sequential.cfg", folder / "risk.cfg"]
    return Experiment(folder / "base.cfg", losses, corpus, folder / "output")
