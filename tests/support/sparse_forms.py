"""The forms of `sparse`."""
import pytest
from spacy_costner.sparse import native
form = pytest.mark.parametrize("form", [native])
