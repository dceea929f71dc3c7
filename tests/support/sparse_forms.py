"""The forms of `sparse`: array code, and compiled code where it was built."""

from typing import Any, Tuple

import pytest

from spacy_costner.sparse import arrays

try:
    from spacy_costner.sparse import native

    FORMS: Tuple[Any, ...] = (arrays, native)
except ImportError:
    FORMS = (arrays,)
form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.split(".")[-1])
