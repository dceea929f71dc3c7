"""Damage to saved pipelines, at random: by hand, after a change of how they are saved or loaded.

    python -m tests.damage --cases 1000 --seed 0

Each damaged model is refused at load by a ValueError, or answers as before. Ours, and so
damaged: `ner/cfg` and `ner/model`, which belong to one save, and the block `[components.ner]` of
config.cfg, from the file or overridden at load. Not ours: the vocab, the tokenizer, meta.json, the
rest of config.cfg, and other components, a shared tok2vec among them; and decoding, confidence,
temperature and scorer, which are made to be changed without training.
`pipeline/test_serialization.py` does the same with few cases.
"""

import json
import multiprocessing
import random
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import spacy
import srsly
import typer
from thinc.api import fix_random_seed, to_numpy

from .support.pipelines import SMALL, TEXTS, TRAIN, examples

TOK2VEC = SMALL["model"]["tok2vec"]
FEATURES = {
    "@misc": "spacy_costner.Features.v1",
    "windows": {"ORTH": 1, "SHAPE": 1, "prefix": 0, "flags": 1},
    "affixes": [1, 2],
    "bigrams": {"SHAPE": 1},
}
SPARSE = {"@architectures": "spacy_costner.SparseCRF.v1", "features": FEATURES}
MODELS: dict[str, dict[str, Any]] = {
    "sparse": SPARSE,
    "hybrid": {**SPARSE, "@architectures": "spacy_costner.HybridCRF.v1", "tok2vec": TOK2VEC},
    "cnn": SMALL["model"],
}
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 3, 1e-9, -0.5, 1e39, 2**31, 2**40, "", "x", "nan", "inf", [], {},
    [1], ["LOC"], ["LOC", "LOC"], {"x": 1}, [[0.0]], b"", b"\x00" * 8,
]  # fmt: skip
SECONDS = 60
GIGABYTES = 16
Answer = list[Any]


class Case(NamedTuple):
    """One way to damage a model: files with their new content, and overrides at load. `expected` is
    what may be predicted; None: anything, but no error."""

    name: str
    files: dict[str, bytes]
    config: dict[str, Any]
    expected: Answer | None


def train(kind: str, seed: int, path: Path) -> None:
    """Train a small pipeline and save it."""
    fix_random_seed(seed)
    nlp = spacy.blank("xx")
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": MODELS[kind]})
    batch = examples(nlp)[: len(TRAIN) - seed]
    optimizer = nlp.initialize(lambda: examples(nlp))
    for _ in range(15):
        nlp.update(batch, sgd=optimizer, losses={})
    nlp.get_pipe("ner").cfg["temperature"] = {"overall": 1.5, "labels": {"LOC": 1.25}}
    nlp.to_disk(path)


def load(path: Path, config: dict[str, Any]) -> Answer:
    """What a saved pipeline answers: entities, probabilities and scores, with all their digits.
    Confidence is on, so that every probability counts."""
    confidence = {"components.ner.confidence": {"@misc": "spacy_costner.Confidence.v1"}}
    nlp = spacy.load(path, config={**confidence, **config})
    docs = [nlp(text) for text in TEXTS]
    ner = nlp.get_pipe("ner")
    scores = to_numpy(ner.posterior(docs).potentials.emissions).astype("float64")
    entities: list[Any] = []
    for doc in docs:
        for ent in doc.ents:
            entities.append((ent.start_char, ent.end_char, ent.label_, ent._.confidence))
    # Through JSON, so that answers compare equal whatever process they come from.
    return json.loads(json.dumps([list(ner.labels), entities, scores.tolist()]))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys and indices that lead to each value within lists and dicts, and to these."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in items:
        if isinstance(child, (dict, list)):
            yield from places(child, (*path, key))
        else:
            yield (*path, key)


def edit(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A structure with another value at one place."""
    if not path:
        return change(value)
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = edit(copied[path[0]], path[1:], change)
    return copied


def change(value: Any, rng: random.Random) -> Any:
    """Some change of a value: another one, its order reversed, some of it gone or twice."""
    another = rng.choice(HOSTILE)
    if isinstance(value, numpy.ndarray) and value.size:
        changed = value.copy()
        changed.flat[rng.randrange(value.size)] = rng.choice([numpy.nan, numpy.inf, 3.0, -1e30])
        return rng.choice([changed, changed[:1], changed[::-1].copy(), value * 2, value.T.copy()])
    if isinstance(value, (list, bytes)) and value:
        return rng.choice([value[::-1], value[1:], value[:1], value + value[:1], another])
    if isinstance(value, dict) and value:
        without_first = {name: value[name] for name in list(value)[1:]}
        return rng.choice([without_first, without_first, without_first, without_first, another])
    if isinstance(value, (int, float)):
        close = value + rng.choice([1, -1, 0.5])
        return rng.choice([close, close, another, another, another])
    return another


def flip(data: bytes, rng: random.Random) -> bytes:
    """The data with one bit flipped, or with four random bytes at one place."""
    place = rng.randrange(len(data))
    changed = bytearray(data)
    if rng.random() < 0.7:
        changed[place] ^= 1 << rng.randrange(8)
    else:
        changed[place : place + 4] = rng.randbytes(4)
    return bytes(changed)


def edit_model(data: bytes, rng: random.Random) -> bytes:
    """The msgpack of a model with one value changed. Shims are msgpack in it: so may be a value of
    theirs."""
    saved = srsly.msgpack_loads(data)
    saved["shims"] = [[srsly.msgpack_loads(shim) for shim in shims] for shims in saved["shims"]]
    name = rng.choice([name for name in saved if any(saved[name])])
    path = rng.choice([path for path in places(saved) if path[:1] == (name,)])

    changed = edit(saved, path, lambda value: change(value, rng))

    with suppress(TypeError):  # no lists any more
        changed["shims"] = [[srsly.msgpack_dumps(s) for s in shims] for shims in changed["shims"]]
    return srsly.msgpack_dumps(changed)


FREE_IN_CONFIG = ("confidence", "spans_key", "own_labels")
"""Settings of the component that may be changed without training."""

CONFIG_VALUES = 'null 0 1 2 true "x" [] {} {"ORTH":2} "IOB2" nan'.split()  # noqa: SIM905


def edit_config(text: str, rng: random.Random) -> tuple[str, bytes]:
    """The config with one setting of the component changed, gone or with a flipped bit, but none
    that is free. Before it what was changed: "config components.ner.scheme"."""
    lines = text.splitlines(keepends=True)
    section = ""
    section_of_line = {}
    for i, line in enumerate(lines):
        if line.startswith("["):
            section = line.strip(" []\n")
        is_ours = section == "components.ner" or section.startswith("components.ner.model")
        if is_ours and "=" in line and not line.startswith(FREE_IN_CONFIG):
            section_of_line[i] = section

    i = rng.choice(list(section_of_line))
    name, value = lines[i].split("=", 1)
    flipped = flip(value.encode(), rng).decode("latin1").replace("\n", " ")
    lines[i] = rng.choice([f"{name}={rng.choice(CONFIG_VALUES)}\n", "", f"{name}={flipped}\n"])
    return f"config {section_of_line[i]}.{name.strip()}", "".join(lines).encode("utf8")


WINDOWS: Any = FEATURES["windows"]
OVERRIDES: dict[str, list[Any]] = {
    "scheme": ["IOB2", "x"], "outside": ["before"], "incorrect_spans_key": ["wrong"],
    "loss": [{"@losses": "spacy_costner.Perceptron.v1"}],
    "model": [*MODELS.values()], "model.nO": [3, 13], "model.learn_rate": [1.0],
    "model.dropout": [0.5], "model.part_dropout": [0.5], "model.L1": [0.1],
    "model.features.windows": [
        {**WINDOWS, "ORTH": 2},
        {"SHAPE": 1, "ORTH": 1, "prefix": 0, "flags": 1},
        {"ORTH": 1, "LOWER": 1, "prefix": 0, "flags": 1},
        dict.fromkeys(WINDOWS, 9),
    ],
    "model.features.affixes": [[2, 1], [1, 3]],
    "model.features.flags": [["IS_UPPER", "is_first_upper"]],
    "model.features.bigrams": [{}, {"SHAPE": 2}], "model.features.min_count": [2],
    "model.tok2vec.width": [8], "model.tok2vec.depth": [2], "model.tok2vec.embed_size": [100],
    "model.tok2vec.window_size": [2], "model.tok2vec.maxout_pieces": [3],
    "model.tok2vec.subword_features": [False],
}  # fmt: skip


KINDS = "flip cut swap json json model model config override override".split()  # noqa: SIM905
FREE = ("decoding", "confidence", "temperature")


def free_settings(cfg: bytes) -> list[Any]:
    """What may be edited in cfg: other digits there are other settings."""
    try:
        saved = srsly.json_loads(cfg)
        return [saved.get(name) for name in FREE]
    except (ValueError, AttributeError):
        return []


def make_case(path: Path, other: Path, same: Answer, rng: random.Random) -> Case:
    """One case, by chance: of a model, another of the same config, and what the model answers."""
    kind = rng.choice(KINDS)
    if kind == "override":
        setting = rng.choice(list(OVERRIDES))
        config = {f"components.ner.{setting}": rng.choice(OVERRIDES[setting])}
        return Case(kind, {}, config, same)
    if kind == "json":
        name, content = edit_cfg(srsly.read_json(path / "ner" / "cfg"), rng)
        return Case(name, {"ner/cfg": content}, {}, same)
    if kind == "model":
        content = edit_model((path / "ner" / "model").read_bytes(), rng)
        return Case(kind, {"ner/model": content}, {}, same)
    if kind == "config":
        name, content = edit_config((path / "config.cfg").read_text("utf8"), rng)
        return Case(name, {"config.cfg": content}, {}, same)

    file = rng.choice(["ner/cfg", "ner/model"])
    undamaged = (path / file).read_bytes()
    expected: Answer | None = same
    if kind == "flip":
        content = flip(undamaged, rng)
        if file == "ner/cfg" and free_settings(content) != free_settings(undamaged):
            expected = None
    elif kind == "cut":
        content = undamaged[: rng.randrange(len(undamaged))]
    else:
        content = (other / file).read_bytes()
    return Case(f"{kind} {file}", {file: content}, {}, expected)


def edit_cfg(cfg: dict[str, Any], rng: random.Random) -> tuple[str, bytes]:
    """The component's cfg with one value changed, and which. A free setting gets only what it can't
    be."""
    impossible = [None, "x", float("nan"), float("inf"), [], [[1]], "nan", "inf", {"x": 1}]
    path = rng.choice([path for path in places(cfg) if path])
    if path == ("confidence",):
        impossible.remove(None)  # it turns confidences off
    if path[0] in FREE:
        changed = edit(cfg, path, lambda _: rng.choice(impossible))
    else:
        changed = edit(cfg, path, lambda value: change(value, rng))
    text = json.dumps(changed, default=lambda value: value.hex())
    return f"json {'.'.join(map(str, path))}", text.encode()


def outcome(case: Case, path: Path) -> str:
    """What becomes of a case: "refused", "same" or what is wrong."""
    before = {name: (path / name).read_bytes() for name in case.files}
    for name, content in case.files.items():
        (path / name).write_bytes(content)
    try:
        answer = load(path, case.config)
    except ValueError:
        return "refused"
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"
    finally:
        for name, content in before.items():
            (path / name).write_bytes(content)
    if case.expected is None:
        return "predicted"
    return "same" if answer == case.expected else "different"


def run_cases(path: Path, cases: list[Case]) -> list[str]:
    """The outcomes of cases, in a process that is replaced if it crashes."""

    def new_pool() -> ProcessPoolExecutor:
        limits = (resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
        context = multiprocessing.get_context("fork")
        return ProcessPoolExecutor(1, context, resource.setrlimit, limits)

    pool = new_pool()
    outcomes: list[str] = []
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a fork; and of the cases, there
            future = pool.submit(outcome, case, path)
        try:
            outcomes.append(future.result(SECONDS))
        except (BrokenProcessPool, TimeoutError) as error:
            outcomes.append(f"crash: {error!r}")
            pool = new_pool()
    pool.shutdown()
    return outcomes


def corrupt(kind: str, n_cases: int, seed: int) -> list[tuple[Case, str]]:
    """Damage a model of a kind so often. RETURNS (list[tuple[Case, str]]): Cases and outcomes."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "one")
        other = Path(folder, "other")
        train(kind, 0, path)
        train(kind, 1, other)
        same = load(path, {})
        cases = [make_case(path, other, same, rng) for _ in range(n_cases)]
        return list(zip(cases, run_cases(path, cases)))


def is_right(case: Case, outcome: str) -> bool:
    """Whether an outcome is as it should be. Registries are not ours, nor is a tok2vec: they have
    errors of their own for what is of the wrong type."""
    if outcome in ("refused", "same"):
        return True
    if case.name.startswith("config") and ("tok2vec" in case.name or "@" in case.name):
        return outcome.startswith("error")
    return outcome == "predicted" and case.expected is None


def main(cases: int = 1000, seed: int = 0) -> None:
    """Damage each kind of model so often."""
    n_wrong = 0
    for kind in MODELS:
        results = corrupt(kind, cases, seed)
        wrong = [(case, outcome) for case, outcome in results if not is_right(case, outcome)]
        n_wrong += len(wrong)
        counts = Counter(outcome.partition(":")[0] for _, outcome in results)
        print(kind, dict(counts), len(wrong), "wrong")
        for case, outcome in wrong:
            print(f"  {case.name} {list(case.files)} {case.config}: {outcome}")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    typer.run(main)
