"""What a config of spacy-transformers names, where that is not installed.

The functions have its arguments. In place of a transformer there are hashed word vectors.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import catalogue
from spacy.language import Language
from spacy.ml.models.tok2vec import build_hash_embed_cnn_tok2vec
from spacy.tokens import Doc
from spacy.util import SimpleFrozenDict, registry
from thinc.api import Model
from thinc.types import Floats2d, Ragged

NOTHING = SimpleFrozenDict()
DEFAULT_CONFIG: dict[str, Any] = {
    "max_batch_items": 4096,
    "model": {
        "@architectures": "spacy-transformers.TransformerModel.v3",
        "name": "roberta-base",
        "tokenizer_config": {"use_fast": True},
        "transformer_config": {},
        "mixed_precision": False,
        "grad_scaler_config": {},
        "get_spans": {
            "@span_getters": "spacy-transformers.strided_spans.v1",
            "window": 128,
            "stride": 96,
        },
    },
}


def make_model(
    name: str,
    get_spans: Callable,
    tokenizer_config: dict = NOTHING,
    transformer_config: dict = NOTHING,
    mixed_precision: bool = False,
    grad_scaler_config: dict = NOTHING,
) -> Model:
    """A model that hands docs on."""
    return Model(name, lambda model, docs, is_train: (docs, lambda d_docs: d_docs))


def make_listener(
    pooling: Model[Ragged, Floats2d], grad_factor: float = 1.0, upstream: str = "*"
) -> Model[list[Doc], list[Floats2d]]:
    """Hashed word vectors in the place of a listener."""
    return build_hash_embed_cnn_tok2vec(
        width=8,
        depth=1,
        embed_size=50,
        window_size=1,
        maxout_pieces=2,
        subword_features=False,
        pretrained_vectors=None,
    )


def make_span_getter(window: int, stride: int) -> Callable:
    """A function that gets each doc as one span."""
    return lambda docs: [[doc[:]] for doc in docs]


def make_transformer(nlp: Language, name: str, model: Model, max_batch_items: int) -> Callable:
    """A component that does nothing."""
    return lambda doc: doc


def register_transformers() -> None:
    """Register the functions, unless spacy-transformers is installed."""
    if find_spec("spacy_transformers") is not None or Language.has_factory("transformer"):
        return
    registry.architectures("spacy-transformers.TransformerModel.v3", func=make_model)
    registry.architectures("spacy-transformers.TransformerListener.v1", func=make_listener)
    if not hasattr(registry, "span_getters"):
        registry.span_getters = catalogue.create("spacy", "span_getters")
    registry.span_getters("spacy-transformers.strided_spans.v1", func=make_span_getter)
    Language.factory("transformer", default_config=DEFAULT_CONFIG, func=make_transformer)
