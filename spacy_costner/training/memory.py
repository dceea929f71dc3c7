"""What training needs of memory, and what can be trained on without keeping docs in it."""

from pathlib import Path
from typing import Any, Dict, Optional

from spacy.language import Language

from ..ml import linear_part
from ..pipeline.component import CostSensitiveNER

MEMINFO = Path("/proc/meminfo")

VECTORS = 22
"""Vectors of all weights in L-BFGS, in float64: 2 of each remembered step, and others."""

COPIES = 4
"""Arrays of all features while those that occur together are merged, in int32."""


def check_cache(nlp: Language, ner: CostSensitiveNER) -> None:
    """Check that a config can be trained on with a cache: docs are read twice and not kept.

    RAISES (ValueError): If a setting needs them, or makes others each time.
    """
    template, name = linear_part(ner.model)[0].template, nlp.config["training"]["train_corpus"]
    corpus: Any = nlp.config.interpolate()
    for part in name.split("."):
        corpus = corpus[part]
    component = f"components.{ner.name}"
    refused: Dict[str, Any] = {
        f"{component}.incorrect_spans_key": ner.objective.incorrect_spans_key,
        f"{component}.model.features.bigrams": template.bigrams,
        f"{component}.model.features.document": template.document,
        f"{name}.augmenter": corpus.get("augmenter"),
        f"{name}.shuffle": corpus.get("shuffle"),
    }
    for setting, value in refused.items():
        if value:
            raise ValueError(
                f"fit: {setting}: expected none with --cache, which reads docs twice and doesn't "
                f"keep them, got {value}"
            )


def batch_memory(ner: CostSensitiveNER, n_tokens: int) -> int:
    """About the most bytes that training on all examples at once needs besides the docs.

    ner (CostSensitiveNER): An initialized component.
    n_tokens (int): The number of tokens of all examples.
    """
    features, weights = linear_part(ner.model)
    of_features = 4 * features.n_slots * n_tokens
    return max(COPIES * of_features, of_features + 8 * VECTORS * weights.rows.size)


def available_memory() -> Optional[int]:
    """The bytes of memory that are free or can be freed, if the system tells."""
    if not MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0]) if "MemAvailable" in lines else None
