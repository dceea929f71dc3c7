"""Blocks of configs, and the names that setup.cfg declares."""

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

from spacy.util import registry
from thinc.api import Config

SETUP = Path(__file__).parents[2] / "setup.cfg"
FEATURES = {"@misc": "spacy_costner.Features.v1"}
HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}
TOK2VEC = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    "pretrained_vectors": None,
    "width": 8,
    "depth": 1,
    "embed_size": 20,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": False,
}
REQUIRED: dict[str, dict[str, Any]] = {
    "spacy_costner.LinearChainCRF.v1": {"tok2vec": TOK2VEC},
    "spacy_costner.SparseCRF.v1": {"features": FEATURES},
    "spacy_costner.HybridCRF.v1": {"features": FEATURES, "tok2vec": TOK2VEC},
    "spacy_costner.Mixed.v1": {"k": 2.0},
    "spacy_costner.Schedule.v1": {
        "steps": [10],
        "*": {
            "first": {"@losses": "spacy_costner.Sequential.v1"},
            "then": {"@losses": "spacy_costner.Pointwise.v1"},
        },
    },
    "spacy_costner.HierarchicalCost.v1": {"tree": {"place": {"city": {}}, "sports-team": {}}},
    "spacy_costner.MatrixCost.v1": {
        "matrix": {
            "city": {"sports-team": 2.0, "O": 1.0},
            "sports-team": {"city": 2.0, "O": 1.0},
            "O": {"city": 0.5, "sports-team": 0.5},
        }
    },
    "spacy_costner.SumCost.v1": {"costs": {"hamming": HAMMING}},
    "spacy_costner.MinCostDecoding.v1": {"cost": HAMMING},
    "spacy_costner.cost_scorer.v1": {"cost": HAMMING},
}


def declared(group: str) -> dict[str, str]:
    """The names of a group of entry points in setup.cfg, and what each of them is."""
    parser = ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(SETUP, encoding="utf8")
    lines = parser["options.entry_points"].get(group, "").strip().splitlines()
    return dict(line.split(" = ") for line in lines)


def resolve(group: str, name: str, **settings: Any) -> Any:
    """Build a registered name, with the settings that it requires and these."""
    block = {f"@{group}": name, **REQUIRED.get(name, {}), **settings}
    return registry.resolve({"block": block})["block"]


def fragment(text: str) -> Config:
    """Sections of a config, as docs show them: those that they are in may be missing."""
    lines = []
    sections = set()
    for line in text.splitlines():
        header = re.fullmatch(r"\[(.+)\]", line)
        if header:
            names = header[1].split(".")
            outer_sections = [".".join(names[:i]) for i in range(1, len(names))]
            lines += [f"[{section}]" for section in outer_sections if section not in sections]
            sections.update([*outer_sections, header[1]])
        lines.append(line)
    return Config().from_str("\n".join(lines), interpolate=False)
