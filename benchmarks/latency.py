"""Measure pipelines as in a service: the time to load them, the time for a short text, and memory.

    OMP_NUM_THREADS=1 python benchmarks/latency.py [train.spacy dev.spacy [transformer]]

Each config of the package is trained on CoNLL-2002 Spanish or the given corpora: linear models as
by `fit`, others for 200 steps, because more steps don't change these measurements. The transformer,
a name or folder, requires spacy-transformers. Each pipeline is loaded in a separate process, which
annotates sentences of the development corpus, one call per sentence.

A second table compares the linear models with spaCy's `ner`: all in one process, in turns, one text
at a time and in a batch.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy
import spacy
from spacy.cli.init_config import init_config
from spacy.cli.train import train
from spacy.language import Language
from spacy.tokens import DocBin, Span
from spacy.training import Corpus
from spacy.util import load_config
from thinc.types import Floats1d

from spacy_costner.pipeline.confidence import make_confidence
from spacy_costner.workflows import guarantee
from spacy_costner.workflows.fitting.fitting import fit

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "corpus" / "conll2002_es"
PARTS = [CORPUS / folder / "esp.spacy" for folder in ("train", "testa")]
LINEAR = ("sparse", "sparse_document")
OTHERS = ("cnn", "hybrid")
STEPS = 200
WARM_UP = 50
CALLS = 1000
COMPARED = 100
"""The number of texts in the second table."""
TURNS = 30
"""The number of turns for each pipeline in the second table."""
SHORT = (5, 40)
"""The minimum and maximum number of words in a short text."""

MB = 1e6
DIGITS = {"load": 2, "median": 2, "high": 2, "memory": 0, "disk": 0}
"""The columns of the first table, with their number of decimals: "high" is the 99th percentile."""


def train_pipeline(name: str, paths: dict[str, str], folder: Path, transformer: str) -> Path:
    """Train a config. Returns the path of the pipeline."""
    config = ROOT / "configs" / f"{name}.cfg"
    overrides = {**paths, "nlp.lang": "es"}
    with redirect_stdout(sys.stderr):
        if name in LINEAR:
            return fit(load_config(config, overrides=overrides), folder / name).path
        steps = {"training.max_steps": STEPS, "training.eval_frequency": STEPS}
        if name == "transformer":
            overrides["components.transformer.model.name"] = transformer
        train(config, folder / name, overrides={**overrides, **steps})
    return folder / name / "model-last"


def read_texts(path: Path) -> list[str]:
    """Read short texts from a corpus: its sentences, or its docs if they have no sentences."""
    least_words, most_words = SHORT
    texts: list[str] = []
    for doc in DocBin().from_disk(path).get_docs(spacy.blank("es").vocab):
        parts: Iterable[Span] = [doc[:]]
        if doc.has_annotation("SENT_START"):
            parts = doc.sents
        texts += [part.text for part in parts if least_words <= len(part) <= most_words]
    return texts[:CALLS]


def peak_bytes() -> int:
    """Get the peak memory of this process so far, on Linux."""
    status = Path("/proc/self/status").read_text()
    _, after_name = status.split("VmHWM:")
    kilobytes = int(after_name.split()[0])
    return 1024 * kilobytes


def measure(path: str, texts_path: str) -> dict[str, float]:
    """Load a pipeline and annotate texts, one at a time. Call it in a new process. Returns the
    cells of the first table, by the keys of DIGITS. Times per text are in milliseconds."""
    texts: list[str] = json.loads(Path(texts_path).read_text(encoding="utf8"))
    bytes_before = peak_bytes()
    began = perf_counter()
    nlp = spacy.load(path)
    load_seconds = perf_counter() - began

    seconds: list[float] = []
    for i in range(WARM_UP + CALLS):
        began = perf_counter()
        nlp(texts[i % len(texts)])
        seconds.append(perf_counter() - began)

    middle, high = numpy.percentile(seconds[WARM_UP:], [50, 99]).tolist()
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    return {
        "load": load_seconds,
        "median": 1000 * middle,
        "high": 1000 * high,
        "memory": (peak_bytes() - bytes_before) / MB,
        "disk": sum(file.stat().st_size for file in files) / MB,
    }


def train_ner(paths: dict[str, str], folder: Path) -> Path:
    """Train spaCy's `ner` for 200 steps. Returns the path of the pipeline."""
    init_config(lang="es", pipeline=["ner"], optimize="efficiency").to_disk(folder / "ner.cfg")
    steps = {"training.max_steps": STEPS, "training.eval_frequency": STEPS}
    with redirect_stdout(sys.stderr):
        train(folder / "ner.cfg", folder / "ner", overrides={**paths, **steps})
    return folder / "ner" / "model-last"


def load_compared(folder: Path, ner_path: Path, dev_path: str) -> dict[str, Language]:
    """Load the pipelines of the second table, by name. All of ours except one write
    probabilities."""
    one_pass = spacy.load(folder / LINEAR[0] / "model-best")
    without = spacy.load(folder / LINEAR[0] / "model-best")
    two_passes = spacy.load(folder / LINEAR[1] / "model-best")
    promising = spacy.load(folder / LINEAR[0] / "model-best")
    for nlp in (one_pass, two_passes, promising):
        ner: Any = nlp.get_pipe("ner")
        ner.set_confidence(make_confidence())
    ner_without: Any = without.get_pipe("ner")
    ner_without.set_confidence(None)
    guarantee(promising, Corpus(dev_path)(promising), miss=0.1)
    return {
        "one pass": one_pass,
        "one pass, without probabilities": without,
        "two passes": two_passes,
        "one pass, with a guarantee": promising,
        "spaCy's `ner`": spacy.load(ner_path),
    }


def compare_one_text(pipelines: dict[str, Language], texts: list[str]) -> None:
    """Print the second table: the time per text, one at a time and in a batch."""
    print("\nThe same sentences with pipelines that take turns in one process: the lowest CPU time")
    print(f"per sentence over {TURNS} turns, one at a time and in `nlp.pipe`, in milliseconds.\n")
    least_single: dict[str, Floats1d] = {}
    least_batch: dict[str, float] = {}
    for _ in range(TURNS):
        for name, nlp in pipelines.items():
            single = numpy.asarray([cpu_seconds(nlp, text) for text in texts])
            batch = cpu_seconds(list, nlp.pipe(texts))  # a generator: nothing has been done before
            least_single[name] = numpy.minimum(single, least_single.get(name, numpy.inf))
            least_batch[name] = min(batch, least_batch.get(name, numpy.inf))

    print("| pipeline | `nlp(text)` | `nlp.pipe` |")
    print("|---|--:|--:|")
    for name in pipelines:
        single_ms = 1000 * least_single[name].mean()
        batch_ms = 1000 * least_batch[name] / len(texts)
        print(f"| {name} | {single_ms:.2f} | {batch_ms:.3f} |", flush=True)


def cpu_seconds(task: Callable[[Any], object], argument: Any) -> float:
    """Measure the CPU time of a call."""
    began = process_time()
    task(argument)
    return process_time() - began


def main(train_path: str = "", dev_path: str = "", transformer: str = "") -> None:
    """Train the pipelines, and print both tables."""
    print("\n## A short text\n")
    print("Seconds to load a pipeline, milliseconds for `nlp(text)` on a sentence of 5 to 40 words")
    print("(median and 99th percentile of 1,000 calls), and the growth in memory during both.\n")
    if not train_path:
        train_path, dev_path = map(str, PARTS)
    if not Path(train_path).exists():
        print(f"Not run: there is no {train_path}. `python -m spacy project run` of")
        print("`conll2002-fetch` and `conll2002-convert` makes it.")
        return
    print("| config | load, s | median, ms | 99 %, ms | memory, MB | disk, MB |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    paths = {"paths.train": train_path, "paths.dev": dev_path}
    with TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps(read_texts(Path(dev_path))), encoding="utf8")
        names = [*LINEAR, *OTHERS]
        if transformer:
            names.append("transformer")
        for name in names:
            path = train_pipeline(name, paths, Path(folder), transformer)
            command = [sys.executable, "-W", "ignore", __file__, "--measure", str(path), str(texts)]
            measured = json.loads(subprocess.check_output(command))
            cells = [f"{measured[key]:.{digits}f}" for key, digits in DIGITS.items()]
            print(f"| `{name}.cfg` | {' | '.join(cells)} |", flush=True)

        ner_path = train_ner(paths, Path(folder))
        pipelines = load_compared(Path(folder), ner_path, dev_path)
        compare_one_text(pipelines, json.loads(texts.read_text(encoding="utf8"))[:COMPARED])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main(*sys.argv[1:])
