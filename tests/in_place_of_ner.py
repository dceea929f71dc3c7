"""A plugin of pytest under which spaCy's own tests meet our component where they ask for `ner`.

    python -m pytest -p tests.in_place_of_ner --outcomes outcomes.json -c /dev/null --pyargs spacy

Outcomes are those of the tests that built one of our components; the others say nothing of it.
Run it so with a new spaCy, to see which these are.
"""

import inspect
import json
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
from spacy.lang.en import English
from spacy.language import Language
from spacy.pipeline.ner import DEFAULT_NER_MODEL
from spacy.util import registry
from thinc.api import Model, fix_random_seed

from spacy_costner.ml import build_linear_chain_crf
from spacy_costner.pipeline.component import (
    DEFAULT_CONFIG,
    CostSensitiveNER,
    make_cost_sensitive_ner,
)

from . import conftest as conftest  # looks up registered names faster
from .support.tokenizers import without_special_cases

English.Defaults = without_special_cases(English)

OF_THE_PARSER = {
    "moves": None,
    "update_with_oracle_cut_size": 100,
    "beam_width": 1,
    "beam_density": 0.0,
}
"""Settings of how spaCy searches, for which a chain has no use."""

PARSER = "spacy.TransitionBasedParser.v2"
"""The architecture of spaCy's `ner`, which its parser has too."""

OUTCOMES = pytest.StashKey[dict[str, str]]()
is_built = False
"""Whether the test that runs has built our component."""


def make_ner(**settings: Any) -> CostSensitiveNER:
    """Build our component, without settings of the parser."""
    global is_built
    is_built = True
    ours = {name: value for name, value in settings.items() if name not in OF_THE_PARSER}
    return make_cost_sensitive_ner(**ours)


def build_model(parser: Callable[..., Model], **settings: Any) -> Model:
    """Build our model from the settings of spaCy's."""
    if settings["state_type"] != "ner":
        return parser(**settings)
    model = build_linear_chain_crf(settings["tok2vec"], settings["nO"])
    model.attrs["has_upper"] = settings["use_upper"]  # which a test looks for
    return model


def register(name: str) -> None:
    """Put our factory where spaCy has one of its own."""
    meta = Language.get_factory_meta("cost_sensitive_ner")
    registry.factories.register(name, func=make_ner)
    Language.factory(
        name,
        assigns=meta.assigns,
        default_config={**DEFAULT_CONFIG, **OF_THE_PARSER, "model": DEFAULT_NER_MODEL},
        default_score_weights=meta.default_score_weights,
        func=make_ner,
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file for outcomes."""
    parser.addoption("--outcomes", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Register our component and model in the place of spaCy's."""
    signature = inspect.signature(make_cost_sensitive_ner)
    kind = inspect.Parameter.KEYWORD_ONLY
    ours = [parameter.replace(kind=kind) for parameter in signature.parameters.values()]
    theirs = [inspect.Parameter(name, kind, annotation=Any) for name in OF_THE_PARSER]
    make_ner.__signature__ = signature.replace(parameters=[*ours, *theirs])  # type: ignore[attr-defined]
    Language()  # has spaCy register its own first
    parser = registry.architectures.get(PARSER)
    registry.architectures.register(PARSER, func=wraps(parser)(partial(build_model, parser)))
    for name in ("ner", "beam_ner"):
        register(name)
    config.stash[OUTCOMES] = {}


def pytest_runtest_setup() -> None:
    """spaCy's tests don't set a seed."""
    fix_random_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """Note the outcome of a test that has built our component."""
    global is_built
    report = yield
    if call.when == "call":
        if is_built:
            item.config.stash[OUTCOMES][report.nodeid] = report.outcome
        is_built = False
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes."""
    outcomes = session.config.stash[OUTCOMES]
    session.config.option.outcomes.write_text(json.dumps(outcomes))
